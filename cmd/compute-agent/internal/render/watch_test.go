// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// answer is one run of the watched command: the JSON, the output, or a failure.
type answer struct {
	json, text string
	err        error
}

// watched runs a Watch on answers, each two seconds after the one before, in virtual time that
// begins at 2000-01-01T00:00:00Z. It returns what Run returned.
func watched(t *testing.T, w *Watch, answers ...answer) error {
	t.Helper()
	w.Every, w.Title = 2*time.Second, "compute-agent status"
	if w.Fatal == nil {
		w.Fatal = func(error) bool { return false }
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	return w.Run(ctx, func(ctx context.Context, out, _ io.Writer) ([]byte, error) {
		if n == len(answers) {
			cancel()
			return nil, ctx.Err()
		}
		a := answers[n]
		n++
		_, _ = io.WriteString(out, a.text)
		return []byte(a.json), a.err
	})
}

var errDown = errors.New("the agent is not running")

func TestWatchWritesChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, problems bytes.Buffer
		testproc.Check(t, watched(t, &Watch{Out: &out, Problems: &problems},
			answer{`{"state":"good","passes":1,"drivers":[{"usage":{"open_files":1}}]}`, "good, 1 s ago\n", nil},
			answer{`{"state":"good","passes":2,"drivers":[{"usage":{"open_files":2}}]}`, "good, 3 s ago\n", nil},
			answer{`{"state":"bad","passes":2,"drivers":[]}`, "bad\n", nil},
			answer{"", "", errDown},
			answer{"", "", errDown},
			answer{`{"state":"bad","passes":9,"drivers":[]}`, "bad again\n", nil},
		))
		want := "--- 2000-01-01T00:00:00Z\ngood, 1 s ago\n--- 2000-01-01T00:00:04Z\nbad\n--- 2000-01-01T00:00:10Z\n" +
			"bad again\n"
		testproc.Equal(t, out.String(), want, "got %q")
		if want := "2000-01-01T00:00:06Z compute-agent: the agent is not running\n"; problems.String() != want {
			t.Errorf("got %q, want %q", problems.String(), want)
		}
	})
}

func TestWatchWritesADocumentOnALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		testproc.Check(t, watched(t, &Watch{Out: &out, Problems: io.Discard, Documents: true},
			answer{`{"a":1}`, "{\n  \"a\": 1,\n  \"passes\": 1\n}\n", nil},
			answer{`{"a":1}`, "{\n  \"a\": 1,\n  \"passes\": 2\n}\n", nil},
			answer{`{"a":2}`, "{\n  \"a\": 2\n}\n", nil}))
		if want := "{\"a\":1,\"passes\":1}\n{\"a\":2}\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
}

func TestWatchEndsOnlyBeforeTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("permission denied")
		fatal := func(err error) bool { return errors.Is(err, denied) }
		var out bytes.Buffer
		if err := watched(t, &Watch{Out: &out, Problems: io.Discard, Fatal: fatal}, answer{err: errDown},
			answer{err: denied}); !errors.Is(err, denied) {
			t.Errorf("before an answer: %v", err)
		}
		if err := watched(t, &Watch{Out: &out, Problems: io.Discard, Fatal: fatal}, answer{`{}`, "yes\n", nil},
			answer{err: denied}); err != nil {
			t.Errorf("after an answer: %v", err)
		}
	})
}

// TestWatchStopsWhenItsReaderIsGone, as with `| head`.
func TestWatchStopsWhenItsReaderIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		_ = r.CloseWithError(io.ErrClosedPipe)
		if err := watched(t, &Watch{Out: w, Problems: io.Discard},
			answer{`{}`, "text\n", nil}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchRedrawsATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := &Watch{Out: &out, Size: func() (int, int) { return 42, 7 }}
		long := strings.Repeat("line\n", 9)
		err := watched(t, w, answer{`{}`, "all is well\n", nil},
			answer{err: fmt.Errorf("down\x1b[2J %w", errDown)}, answer{`{}`, long, nil})
		testproc.Check(t, err)
		text := out.String()
		const begin, end = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
		if !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) {
			t.Fatalf("the terminal is not restored: %q", text)
		}
		frames := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, begin), end), "\x1b[H")[1:]
		want := [][]string{
			{"Every 2s: compute-agent status   00:00:00Z", "", "all is well"},
			{
				"Every 2s: compute-agent status   00:00:02Z",
				`compute-agent: down\u001b[2J the agent is`, "  not running",
				"The state below is of 00:00:00Z.", "", "all is well",
			},
			{"Every 2s: compute-agent status   00:00:04Z", "", "line", "line", "line", "line", "(5 more lines below)"},
		}
		if len(frames) != len(want) {
			t.Fatalf("%d frames: %q", len(frames), frames)
		}
		for i, frame := range frames {
			if got := strings.Join(want[i], "\x1b[0m\x1b[K\r\n") + "\x1b[0m\x1b[K\x1b[J"; frame != got {
				t.Errorf("frame %d:\n got %q\nwant %q", i, frame, got)
			}
		}
	})
}
