// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// settling is what a reload does about one driver. It may outlive the reload: a driver may take as long for its configuration as its
// timeouts say, and systemd does not wait for that.
type settling struct {
	driver string
	done   chan struct{} // closed when it is over
}

// settle begins what a reload does about a driver, after what a former one is still at. Of several that wait, only the last is done. It is
// called by the goroutine that reloads, alone; awaitAllSettled waits for what it began.
func (a *Agent) settle(driver string, work func()) *settling {
	s := &settling{driver: driver, done: make(chan struct{})}
	a.mu.Lock()
	former := a.settlings[driver]
	a.settlings[driver] = s
	a.mu.Unlock()
	go func() {
		defer close(s.done)
		if former != nil {
			<-former.done
		}
		a.mu.Lock()
		last := a.settlings[driver] == s
		a.mu.Unlock()
		if last {
			work()
		}
	}()
	return s
}

// awaitSettled waits until everything is done, but for no longer than limit, and then says what is not.
func (a *Agent) awaitSettled(ctx context.Context, all []*settling, limit time.Duration) {
	patience, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var late []string
	for _, s := range all {
		select {
		case <-s.done:
			continue
		case <-patience.Done():
		}
		select {
		case <-s.done:
		default:
			late = append(late, s.driver)
		}
	}
	if len(late) > 0 && ctx.Err() == nil {
		a.log.Warn().Strs("drivers", late).Stringer("startup_deadline", limit).
			Msg("Reload: these drivers have not applied their new configuration yet. The reload is reported as complete, so that systemd does not wait; it continues in the background until the drivers' timeouts, and `compute-agent status` shows the result.")
	}
}

// awaitAllSettled waits for all that reloads have begun. It ends soon once the agent's context has ended.
func (a *Agent) awaitAllSettled() {
	a.mu.Lock()
	all := make([]*settling, 0, len(a.settlings))
	for _, s := range a.settlings {
		all = append(all, s)
	}
	a.mu.Unlock()
	for _, s := range all {
		<-s.done
	}
}
