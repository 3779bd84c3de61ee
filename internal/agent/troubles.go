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

// troubles are what the agent itself remembers of what went wrong, for as long as it is so. The zero value remembers nothing.
type troubles struct {
	mu      sync.Mutex
	reload  string                    // why the configuration on disk was refused
	restart []string                  // keys whose changes wait for a restart
	refused map[string]health.Finding // why drivers could not be brought to their configuration
	journal string                    // why the journal of reshapes cannot be read
	damaged []string                  // its damaged entries
}

// set changes what is remembered.
func (t *troubles) set(change func(*troubles)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

// copyTo tells all of it.
func (t *troubles) copyTo(f *facts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.reload, f.journal = t.reload, t.journal
	f.restart, f.damaged, f.refused = slices.Clone(t.restart), slices.Clone(t.damaged), maps.Clone(t.refused)
}

// reloaded keeps what became of reading the configuration again.
func (t *troubles) reloaded(changes []config.Change, err error) {
	t.set(func(t *troubles) {
		t.reload = words(err)
		if err != nil {
			return
		}
		t.restart, t.refused = nil, nil // each driver is asked anew
		for _, c := range changes {
			if c.Restart {
				t.restart = append(t.restart, c.Key)
			}
		}
	})
}

// configured keeps whether a driver could be brought to its configuration.
func (t *troubles) configured(driver string, err error) {
	t.set(func(t *troubles) {
		if err == nil {
			delete(t.refused, driver)
			return
		}
		if t.refused == nil {
			t.refused = map[string]health.Finding{}
		}
		t.refused[driver] = refusal(driver, err)
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
