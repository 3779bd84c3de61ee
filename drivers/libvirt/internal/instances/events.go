// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"time"
)

// Events of libvirt come in bursts: a start makes three. settle is how long a burst is waited for; after resync without any event, everything is
// said to have changed.
const (
	settle = 200 * time.Millisecond
	resync = 5 * time.Minute
)

// Watch calls changed whenever an instance may be no longer as it was, until ctx ends; see [plugins.InstanceWatcher]. As long as instances are not
// managed it says nothing, and then that everything has changed.
func (m *Manager) Watch(ctx context.Context, changed func(node, uuid string)) error {
	w := m.news.Watch(settle, resync)
	defer w.Close()
	for {
		c, err := w.Next(ctx)
		if err != nil {
			return err
		}
		m.mu.Lock()
		s := m.setup
		m.mu.Unlock()
		if s == nil {
			continue
		}
		node, err := s.Node(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case c.All || err != nil:
			changed("", "")
			continue
		}
		for _, uuid := range c.Domains {
			if !m.foreign(uuid) {
				changed(node, uuid)
			}
		}
	}
}

// foreign tells a domain that somebody else made, as far as is known.
func (m *Manager) foreign(uuid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known := m.known[uuid]
	return known && e.mark == nil
}
