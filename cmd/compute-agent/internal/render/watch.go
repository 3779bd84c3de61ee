// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Watch repeats a command that only reads, and shows its output: on a terminal in place, elsewhere
// when it has changed. A failure is shown, and the command is repeated.
type Watch struct {
	// Title is the command, for the first line of a terminal.
	Title string
	// Every is the time between two runs.
	Every time.Duration
	// Out gets the output. On a terminal it must not sanitize.
	Out io.Writer
	// Size returns the size of the terminal; nil: Out is not one. Colors allows colours there.
	Size   func() (width, height int)
	Colors bool
	// Resized wakes up a terminal when its size has changed; it may be nil.
	Resized <-chan os.Signal
	// Documents means that the output is JSON: there are no lines with times, and each document has
	// one line.
	Documents bool
	// Problems gets failures, where Out is not a terminal.
	Problems io.Writer
	// Fatal reports whether a failure ends the watch before the first answer, because repeating the
	// command does not help. Later failures do not end it.
	Fatal func(error) bool

	answered bool

	shown   string // the answer that was written last, without what always changes
	problem string // the failure that was written last
	last    string // the output of the last run that succeeded, on a terminal
	at      time.Time
}

// Run runs the command until the context ends, which is no error. The command writes to out, and
// notes to notes, and returns the JSON that its output was made of.
func (w *Watch) Run(
	ctx context.Context, command func(ctx context.Context, out, notes io.Writer) (answer []byte, err error),
) error {
	if w.Size != nil {
		// the alternate screen, no cursor, no wrapping
		if _, err := io.WriteString(w.Out, "\x1b[?1049h\x1b[?25l\x1b[?7l"); err != nil {
			return err
		}
		defer func() { _, _ = io.WriteString(w.Out, reset+"\x1b[?7h\x1b[?25h\x1b[?1049l") }()
	}
	ticks := time.NewTicker(w.Every)
	defer ticks.Stop()
	for {
		var b, notes bytes.Buffer
		answer, err := command(ctx, w.frame(&b), textutil.NewWriter(&notes))
		switch {
		case ctx.Err() != nil:
			return nil // the user ended it
		case err != nil && !w.answered && w.Fatal(err):
			return err
		case err != nil:
			notes.WriteString("compute-agent: " + textutil.PrintableLines(err.Error()) + "\n")
		default:
			w.answered = true
		}
		if w.Size != nil {
			err = w.draw(b.String(), notes.String(), err == nil, time.Now())
		} else {
			err = w.write(b.Bytes(), notes.String(), answer, err == nil, time.Now())
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.Resized:
		case <-ticks.C:
		}
	}
}

// frame is the writer of one run.
func (w *Watch) frame(b *bytes.Buffer) io.Writer {
	if w.Size == nil {
		return b
	}
	width, _ := w.Size()
	return NewTerminal(b, width, w.Colors)
}

// write writes the output if it has changed.
func (w *Watch) write(output []byte, problem string, answer []byte, good bool, now time.Time) error {
	stamp := now.UTC().Format(time.RFC3339)
	if problem != w.problem {
		w.problem = problem
		for line := range strings.Lines(problem) {
			if _, err := io.WriteString(w.Problems, stamp+" "+line); err != nil {
				return err
			}
		}
	}
	if !good {
		w.shown = "" // what comes next is written, even if it is the same again
		return nil
	}
	steady := withoutCounters(answer)
	if steady == w.shown {
		return nil
	}
	w.shown = steady
	if w.Documents {
		var b bytes.Buffer
		if json.Compact(&b, output) == nil {
			output = append(bytes.TrimSpace(b.Bytes()), '\n')
		}
	} else {
		output = append([]byte("--- "+stamp+"\n"), output...)
	}
	_, err := w.Out.Write(output)
	return err
}

// draw draws the screen again. A run that failed leaves the output of the last one that did not.
func (w *Watch) draw(output, problem string, good bool, now time.Time) error {
	if good {
		w.last, w.at = output, now
	}
	width, height := w.Size()
	var b bytes.Buffer
	p := newPrinter(NewTerminal(&b, width, w.Colors))
	at := now.UTC().Format("15:04:05Z")
	title := "Every " + w.Every.String() + ": " + w.Title
	if most := width - len(at) - len(gap); runes(title) > most {
		title = textutil.Line(title, max(most-len("..."), 1))
	}
	p.row("%s%*s", p.styled(bold, title), max(width-runes(title), len(at)+2), at)
	for line := range strings.Lines(problem) {
		p.line("%s", p.styled(bad, strings.TrimSuffix(line, "\n")))
	}
	switch {
	case good:
	case w.at.IsZero():
		p.line("No answer yet; trying again.")
	default:
		p.line("%s", p.styled(notice, fmt.Sprintf("The state below is of %s.", w.at.UTC().Format("15:04:05Z"))))
	}
	p.line("")
	lines := strings.Split(strings.TrimRight(b.String()+w.last, "\n"), "\n")
	if hidden := len(lines) - height; hidden > 0 && height > 1 {
		lines = append(lines[:height-1], fmt.Sprintf("(%s below)", textutil.Count(hidden+1, "more line")))
	}
	var screen strings.Builder
	screen.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			screen.WriteString("\r\n")
		}
		screen.WriteString(line + reset + "\x1b[K") // the rest of the line
	}
	screen.WriteString("\x1b[J") // and of the screen
	_, err := io.WriteString(w.Out, screen.String())
	return err
}

// counters are the keys of answers that change without any event: usage, counts of requests and
// passes, and their times.
var counters = []string{"usage", "requests", "writes", "passes", "last_success", "last_answer", "read_at"}

// withoutCounters returns an answer without its counters.
func withoutCounters(answer []byte) string {
	var v any
	if json.Unmarshal(answer, &v) != nil {
		return string(answer)
	}
	out, err := json.Marshal(omit(v))
	if err != nil {
		return string(answer)
	}
	return string(out)
}

func omit(v any) any {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(key string, _ any) bool { return slices.Contains(counters, key) })
		for key, below := range v {
			v[key] = omit(below)
		}
	case []any:
		for i, below := range v {
			v[i] = omit(below)
		}
	}
	return v
}
