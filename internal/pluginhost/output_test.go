// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestLogLines(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	long := strings.Repeat("x", maxLogLine+10)
	for _, c := range []struct {
		name, line, level, message string
		fields                     map[string]any
	}{
		{"of the SDK", `{"@message":"hello","@level":"debug","@timestamp":"2026-01-01T00:00:00.000000Z","n":1}`,
			"debug", "hello", map[string]any{"n": 1.0}},
		{"our own keys", `{"@message":"m","@level":"info","driver":"x","pid":1,"level":"y","message":"z"}`, "info",
			"m", map[string]any{"plugin_driver": "x", "plugin_level": "y", "plugin_message": "z"}},
		{"unknown level", `{"@message":"m","@level":"loud"}`, "info", "m", nil},
		{"fatal is no more than an error", `{"@message":"m","@level":"fatal"}`, "error", "m", nil},
		{"numeric message", `{"@message":1}`, "warn", `{"@message":1}`, map[string]any{"output": "raw"}},
		{"numeric level", `{"@message":"m","@level":3}`, "warn", `{"@message":"m","@level":3}`, nil},
		{"list", `[1,2]`, "warn", `[1,2]`, nil},
		{"deep", strings.Repeat("[", 20000), "warn", strings.Repeat("[", 20000), nil},
		{"words", "libvirt: error", "warn", "libvirt: error", nil},
		{"carriage return", "windows\r", "warn", "windows", nil},
		{"not utf-8", "a\xffb", "warn", "a\uFFFDb", nil},
		{"too long", long, "warn", long[:maxLogLine], map[string]any{"cut": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var buf syncBuffer
			o := newOutput(zerolog.New(&buf).With().Str("driver", "me").Logger())
			o.read(strings.NewReader(c.line + "\n\n"))
			recs := buf.records(t)
			if len(recs) != 1 {
				t.Fatalf("%d records: %s", len(recs), textutil.Clip(buf.String(), 500))
			}
			if recs[0]["level"] != c.level || recs[0]["message"] != c.message || recs[0]["driver"] != "me" {
				t.Errorf("record %.300v", recs[0])
			}
			for k, v := range c.fields {
				testproc.Equal(t, recs[0][k], v, "%s is %v", k)
			}
		})
	}
}

func TestTraceOfAPanicIsAnError(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var buf syncBuffer
	newOutput(zerolog.New(&buf)).read(strings.NewReader("before\npanic: oh\n\ngoroutine 1 [running]:\n"))
	var levels []any
	for _, rec := range buf.records(t) {
		levels = append(levels, rec["level"])
	}
	testproc.Equal(t, fmt.Sprint(levels), "[warn error error]", "levels %s")
}

func TestFloodIsCountedNotKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var buf syncBuffer
	o := newOutput(zerolog.New(&buf))
	const lines = 100_000
	o.read(strings.NewReader(strings.Repeat("spam\n", lines)))
	logged, dropped := 0, 0
	for _, rec := range buf.records(t) {
		if n, ok := rec["dropped"].(float64); ok {
			dropped += int(n)
			continue
		}
		logged++
	}
	if logged+dropped != lines || dropped == 0 {
		t.Errorf("%d logged and %d dropped of %d", logged, dropped, lines)
	}
	testproc.Equal(t, len(o.tail()), tailLines, "%d lines kept")
}

// TestFloodOfLongLines: the lines are few enough, but there is much in each.
func TestFloodOfLongLines(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var buf syncBuffer
		o := newOutput(zerolog.New(&buf))
		o.read(strings.NewReader(strings.Repeat(strings.Repeat("x", maxLogLine-1)+"\n", linesASecond/2)))
		if n := len(buf.String()); n < bytesASecond/2 || n > 2*bytesASecond {
			t.Errorf("%d bytes are logged of one second, at most about %d are to be", n, bytesASecond)
		}
		if !strings.Contains(buf.String(), `"dropped":`) {
			t.Error("the dropped output is not logged")
		}
	})
}

func FuzzLogLine(f *testing.F) {
	for _, seed := range []string{`{"@message":1}`, `{"@message":"x","@level":"info"}`, "{", "panic: x", "\x00\xff",
		`{"":{},"@message":"","@level":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var buf syncBuffer
		o := newOutput(zerolog.New(&buf))
		o.read(bytes.NewReader(line))
		buf.records(t) // every line of ours is valid JSON whatever came
	})
}

// read logs all that a process wrote.
func (o *output) read(r io.Reader) {
	lines := &lineWriter{output: o}
	_, _ = io.Copy(lines, r)
	lines.flush()
	o.flushDropped()
}
