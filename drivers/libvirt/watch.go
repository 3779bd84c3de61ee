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
	// cpuInterval is how often the kernel's list of online CPUs is read: there is no event for a
	// change.
	cpuInterval = 10 * time.Second
	// settleTime is how long a burst of events is waited for.
	settleTime = 500 * time.Millisecond
	// resyncInterval is the time without events after which everything may have changed: libvirt's
	// daemon can lose events while it continues to answer.
	resyncInterval = 5 * time.Minute
)

// Watch requests a pass when it connects to libvirt, when devices or domains are added, removed or
// changed, when CPUs go online or offline whose power is not managed, and after resyncInterval
// without any of that.
func (d *Driver) Watch(ctx context.Context, changed func(node string)) error {
	events := make(chan error)
	watcher := d.eventLog.Watch(settleTime, resyncInterval)
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
			// An unreadable list is not a change.
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
	cfg := d.cfg
	d.mu.Unlock()
	cpus, err := discovery.Root(cfg.Chroot).OnlineCPUs()
	if err != nil {
		return nil
	}
	return cfg.unmanaged(cpus)
}
