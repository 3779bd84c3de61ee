// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
)

// troubles are what the agent itself remembers of what went wrong, for as long as it lasts. The zero value remembers
// nothing.
type troubles struct {
	mu  sync.Mutex
	now health.Problems
}

// set changes what is remembered.
func (t *troubles) set(change func(*health.Problems)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.now)
}

// copy returns all of it.
func (t *troubles) copy() health.Problems {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.now
	p.RestartKeys, p.DamagedEntries, p.Drivers = slices.Clone(p.RestartKeys), slices.Clone(p.DamagedEntries), maps.Clone(p.Drivers)
	return p
}

// reloaded keeps what became of reading the configuration again.
func (t *troubles) reloaded(changes []config.Change, err error) {
	t.set(func(p *health.Problems) {
		p.Reload = words(err)
		if err != nil {
			return
		}
		p.RestartKeys, p.Drivers = nil, nil // each driver is asked again
		for _, c := range changes {
			if c.Restart {
				p.RestartKeys = append(p.RestartKeys, c.Key)
			}
		}
	})
}

// configured keeps whether a driver could be brought to its configuration.
func (t *troubles) configured(driver string, err error) {
	t.set(func(p *health.Problems) {
		if err == nil {
			delete(p.Drivers, driver)
			return
		}
		if p.Drivers == nil {
			p.Drivers = map[string]health.Finding{}
		}
		p.Drivers[driver] = refusal(driver, err)
	})
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// writable says what keeps a directory from being written to, without writing: "" if nothing does. Cost: two system calls.
func writable(dir string) string {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return dir + ": " + err.Error()
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Blocks > 0 && fs.Bavail == 0 {
		return dir + ": " + unix.ENOSPC.Error()
	}
	return ""
}
