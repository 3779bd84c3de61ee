// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/suite"
)

// checkProgress shows which check runs: on a [Terminal] always, elsewhere if it is slow.
type checkProgress struct {
	w        io.Writer
	terminal bool
	stop     chan struct{}
	over     sync.WaitGroup

	mu     sync.Mutex
	checks []suite.Check
	n      int
	ended  bool
}

func newCheckProgress(w io.Writer, checks []suite.Check) *checkProgress {
	p := &checkProgress{w: w, checks: checks, stop: make(chan struct{})}
	if t, is := w.(*Terminal); is {
		p.w, p.terminal = t.Unwrap(), true // its control characters move the cursor
	} else {
		p.over.Go(p.nameSlow)
	}
	p.show()
	return p
}

// nameSlow names the running check if it is still the same as at the last tick.
func (p *checkProgress) nameSlow() {
	tick := time.NewTicker(reported)
	defer tick.Stop()
	last, since := -1, time.Duration(0)
	for {
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
		p.mu.Lock()
		since += reported
		if p.n != last {
			last, since = p.n, 0
		}
		if since > 0 && p.n < len(p.checks) {
			_, _ = fmt.Fprintf(p.w, "%d of %d: %s has been running for at least %v\n", p.n+1, len(p.checks), p.checks[p.n].ID, since)
		}
		p.mu.Unlock()
	}
}

// above prints other output above the line, when more checks have finished.
func (p *checkProgress) above(finished int, print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n += finished
	p.clear()
	print()
	p.show()
}

func (p *checkProgress) show() {
	if p.terminal && p.n < len(p.checks) {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%d of %d: %s", p.n+1, len(p.checks), p.checks[p.n].ID)
	}
}

func (p *checkProgress) clear() {
	if p.terminal {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// end removes the line. It may be called again.
func (p *checkProgress) end() {
	p.mu.Lock()
	if !p.ended {
		p.ended = true
		close(p.stop)
		p.clear()
	}
	p.mu.Unlock()
	p.over.Wait()
}
