// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
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
	stop     chan struct{}
	over     sync.WaitGroup

	mu    sync.Mutex
	note  string
	drawn bool
}

// NewProgress begins to show what is done, such as "Restoring the database". End it before anything
// else is printed. If w is a [Terminal], it has the line.
func NewProgress(w io.Writer, what string) *Progress {
	p := &Progress{w: w, what: what, begun: time.Now(), stop: make(chan struct{})}
	every := reported
	if t, is := w.(*Terminal); is {
		p.w, p.width, p.terminal, every = t.Unwrap(), t.Width, true, redrawn
	}
	p.over.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-ticks.C:
				p.show()
			}
		}
	})
	return p
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
	close(p.stop)
	p.over.Wait()
	if p.drawn {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}
