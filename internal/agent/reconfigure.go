// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"
)

// reconfiguration is the work of a reload on one driver. It may outlive the reload, because a
// driver has its own timeouts and systemd does not wait that long.
type reconfiguration struct {
	driver string
	done   chan struct{} // closed when the work is done
}

// reconfigure runs work for a driver after the driver's previous reconfiguration. If several wait,
// only the last one runs.
func (s *driverSet) reconfigure(driver string, work func()) *reconfiguration {
	r := &reconfiguration{driver: driver, done: make(chan struct{})}
	s.mu.Lock()
	previous := s.reloads[driver]
	s.reloads[driver] = r
	s.mu.Unlock()
	go func() {
		defer close(r.done)
		if previous != nil {
			<-previous.done
		}
		s.mu.Lock()
		last := s.reloads[driver] == r
		s.mu.Unlock()
		if last {
			work()
		}
	}()
	return r
}

// awaitReconfigured waits until all reconfigurations have ended.
func (s *driverSet) awaitReconfigured() {
	s.mu.Lock()
	all := make([]*reconfiguration, 0, len(s.reloads))
	for _, r := range s.reloads {
		all = append(all, r)
	}
	s.mu.Unlock()
	for _, r := range all {
		<-r.done
	}
}

// awaitReload waits for the reconfigurations of a reload for at most limit, and logs those that are
// still running.
func (a *Agent) awaitReload(ctx context.Context, all []*reconfiguration, limit time.Duration) {
	deadline, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var late []string
	for _, r := range all {
		select {
		case <-r.done:
			continue
		case <-deadline.Done():
		}
		select {
		case <-r.done:
		default:
			late = append(late, r.driver)
		}
	}
	if len(late) > 0 && ctx.Err() == nil {
		slices.Sort(late)
		a.log.Warn().Strs("drivers", late).Stringer("startup_deadline", limit).
			Msg("Reload: these drivers have not applied their new configuration yet. The reload is reported as " +
				"complete, so that systemd does not wait; it continues in the background until the drivers' " +
				"timeouts, and `compute-agent status` shows the result.")
	}
}
