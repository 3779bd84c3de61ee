// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
)

const (
	// cpuInterval is how often the kernel's list of online CPUs is read: no event tells of a change.
	cpuInterval = 10 * time.Second
	// settleTime is how long a burst of events is waited for.
	settleTime = 500 * time.Millisecond
	// resyncInterval is after how long without events everything may have changed: libvirt's daemon can lose them, and goes on to answer.
	resyncInterval = 5 * time.Minute
)

// Watch says to look again when a connection to libvirt was made, when devices of the host or domains came, went or changed, when CPUs went
// online or offline, and after a while without any of that.
func (d *Driver) Watch(ctx context.Context, changed func(node string)) error {
	events := make(chan error)
	watcher := d.news.Watch(settleTime, resyncInterval)
	defer watcher.Close()
	var listening sync.WaitGroup
	defer listening.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening.Go(func() {
		for {
			_, err := watcher.Next(ctx)
			select {
			case events <- err:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	tick := time.NewTicker(cpuInterval)
	defer tick.Stop()
	cpus := d.onlineCPUs()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-events:
			if err != nil {
				return errors.Join(err, ctx.Err())
			}
			changed("")
		case <-tick.C:
			// A list that cannot be read now says nothing.
			if now := d.onlineCPUs(); now != nil && !slices.Equal(now, cpus) {
				if cpus != nil {
					changed("")
				}
				cpus = now
			}
		}
	}
}

func (d *Driver) onlineCPUs() []int {
	d.mu.Lock()
	root := discovery.Root(d.cfg.Chroot)
	d.mu.Unlock()
	cpus, err := root.OnlineCPUs()
	if err != nil {
		return nil
	}
	return cpus
}
