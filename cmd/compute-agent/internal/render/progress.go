// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

const (
	// redrawn is how often a terminal shows progress, from then on.
	redrawn = time.Second
	// reported is how often a file gets a line with the progress, from then on.
	reported = 10 * time.Second
)

// Progress shows that a command works: on a terminal a line that is drawn again, elsewhere a line
// now and then. What is over within a second shows nothing.
type Progress struct {
	w        io.Writer
	width    int
	terminal bool
	what     string
	begun    time.Time
	stop     func()

	mu    sync.Mutex
	note  string
	drawn bool
}

// NewProgress begins to show what is done, such as "Restoring the database". End it before anything
// else is printed. If w is a [Terminal], it has the line.
func NewProgress(w io.Writer, what string) *Progress {
	p := &Progress{w: w, what: what, begun: time.Now()}
	every := reported
	if t, is := w.(*Terminal); is {
		p.w, p.width, p.terminal, every = t.Unwrap(), t.Width, true, redrawn
	}
	p.stop = repeat(every, p.show)
	return p
}

// repeat calls a function at an interval until stop is called, which waits and may be called again.
func repeat(every time.Duration, do func()) (stop func()) {
	ended := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticks.C:
				do()
			}
		}
	})
	return sync.OnceFunc(func() {
		close(ended)
		over.Wait()
	})
}

// Note says how far it has come, such as "312 of 1000 rows". A nil Progress shows nothing.
func (p *Progress) Note(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = fmt.Sprintf(format, args...)
}

func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.what
	if p.note != "" {
		text += ": " + p.note
	}
	elapsed := fmt.Sprintf(" (%v)", time.Since(p.begun).Round(time.Second))
	if !p.terminal {
		_, _ = fmt.Fprintf(p.w, "%s%s\n", textutil.Printable(text), elapsed)
		return
	}
	text = textutil.Printable(text)
	if most := p.width - len(elapsed) - 1; p.width > 0 && runes(text) > most { // the last column stays free
		text = textutil.Line(text, max(most-len("..."), 1))
	}
	p.drawn = true
	_, _ = io.WriteString(p.w, "\r\x1b[K"+text+elapsed)
}

// End removes the line from a terminal.
func (p *Progress) End() {
	p.stop()
	if p.drawn {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// checkProgress shows which check runs: on a [Terminal] always, elsewhere if it is slow.
type checkProgress struct {
	w        io.Writer
	terminal bool
	end      func() // removes the line; it may be called again

	mu     sync.Mutex
	checks []trial.Check
	n      int
	last   int           // the check that ran at the last tick
	since  time.Duration // for how long it has been seen
}

func newCheckProgress(w io.Writer, checks []trial.Check) *checkProgress {
	p := &checkProgress{w: w, checks: checks, last: -1}
	if t, is := w.(*Terminal); is {
		p.w, p.terminal = t.Unwrap(), true // its control characters move the cursor
		p.end = sync.OnceFunc(p.clear)
	} else {
		p.end = repeat(reported, p.nameSlow)
	}
	p.show()
	return p
}

// nameSlow names the running check if it is still the same as at the last tick.
func (p *checkProgress) nameSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since += reported
	if p.n != p.last {
		p.last, p.since = p.n, 0
	}
	if p.since > 0 && p.n < len(p.checks) {
		_, _ = fmt.Fprintf(p.w, "%d of %d: %s has been running for at least %v\n", p.n+1,
			len(p.checks), p.checks[p.n].ID, p.since)
	}
}

// printAbove prints other output above the line, when more checks have finished.
func (p *checkProgress) printAbove(finished int, print func()) {
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
