// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Bounds on what the host keeps and logs of a process.
const (
	maxHandshake = 16 << 10 // bytes of the first line of standard output; with a certificate it has about 1.5 KiB
	maxLogLine   = 64 << 10 // bytes; the rest of a longer line is dropped
	maxLogFields = 64       // of one line
	tailLines    = 20       // kept for start errors
	tailWidth    = 400      // bytes of each
	linesASecond = 1000     // logged; others are counted and dropped
	bytesASecond = 4 << 20  // of them
)

// output is what a plugin process writes: the handshake and log lines. All of it is logged.
type output struct {
	log zerolog.Logger

	mu          sync.Mutex
	lines       []string // the last ones
	handshake   string   // the first line of standard output
	windowStart time.Time
	windowLines int
	windowBytes int
	dropped     int
	inPanic     bool                     // raw lines are a stack trace
	marks       map[string]chan struct{} // lines of [runner.catchUp]
}

func newOutput(log zerolog.Logger) *output {
	return &output{log: log, marks: map[string]chan struct{}{}}
}

func (o *output) setPID(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = o.log.With().Int("pid", pid).Logger()
}

// tail returns the last lines that the process wrote.
func (o *output) tail() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.lines...)
}

// firstLine returns what the process wrote as handshake.
func (o *output) firstLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handshake
}

func (o *output) setHandshake(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handshake = line
}

// expectMark returns a line that is not logged, and a channel that is closed when it is read.
func (o *output) expectMark() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	mark, seen := rand.Text(), make(chan struct{})
	o.marks[mark] = seen
	return mark, seen
}

// lineWriter splits what is written to it into lines and logs them. A line that is too long is
// truncated.
type lineWriter struct {
	output *output
	line   []byte
	cut    bool
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	size := len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		if free := maxLogLine - len(w.line); len(part) > free {
			part, w.cut = part[:free], true
		}
		w.line, p = append(w.line, part...), rest
		if ended {
			w.flush()
		}
	}
	return size, nil
}

// flush ends a line.
func (w *lineWriter) flush() {
	w.output.write(w.line, w.cut)
	w.line, w.cut = w.line[:0], false
}

// syncWriter logs each message of go-plugin's stream of standard output and error, which plugins
// with its own server have.
type syncWriter struct{ output *output }

// Write implements io.Writer.
func (w syncWriter) Write(p []byte) (int, error) {
	lines := &lineWriter{output: w.output}
	_, _ = lines.Write(p)
	lines.flush()
	return len(p), nil
}

func (o *output) write(line []byte, cut bool) {
	text := strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "\uFFFD")
	if strings.TrimSpace(text) == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen, ok := o.marks[text]; ok {
		delete(o.marks, text)
		close(seen)
		return
	}
	o.lines = append(o.lines, textutil.Sanitize(text, tailWidth))
	if len(o.lines) > tailLines {
		o.lines = o.lines[1:]
	}
	if !o.allowLine(len(text)) {
		return
	}
	if !cut && o.structured(text) {
		return
	}
	o.logRaw(text, cut)
}

// allowLine bounds the lines, and their bytes, per second.
func (o *output) allowLine(size int) bool {
	if now := time.Now(); now.Sub(o.windowStart) >= time.Second {
		o.reportDropped()
		o.windowStart, o.windowLines, o.windowBytes = now, 0, 0
	}
	o.windowLines++
	o.windowBytes += size
	if o.windowLines > linesASecond || o.windowBytes > bytesASecond {
		o.dropped++
		return false
	}
	return true
}

func (o *output) flushDropped() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reportDropped()
}

func (o *output) reportDropped() {
	if o.dropped > 0 {
		o.log.Warn().Int("dropped", o.dropped).Int("lines_a_second", linesASecond).Int("bytes_a_second", bytesASecond).
			Msg("The plugin writes too many log lines. Some were dropped.")
		o.dropped = 0
	}
}

// structured logs a line of the SDK's logger, and reports false for any other line.
func (o *output) structured(text string) bool {
	if !strings.HasPrefix(text, "{") {
		return false
	}
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return false
	}
	message, isText := fields[protocol.MessageField].(string)
	name, hasLevel := fields[protocol.LevelField].(string)
	if !isText || !hasLevel {
		return false
	}
	level, err := zerolog.ParseLevel(name)
	if err != nil || level < zerolog.TraceLevel {
		level = zerolog.InfoLevel
	}
	event := o.log.WithLevel(min(level, zerolog.ErrorLevel)) // sent below
	n := 0
	for key, value := range fields {
		if key == protocol.MessageField || key == protocol.LevelField || key == protocol.TimeField {
			continue
		}
		if n++; n > maxLogFields {
			break
		}
		event = event.Interface(fieldName(textutil.Sanitize(key, 100)), value)
	}
	event.Msg(textutil.Sanitize(message, maxLogLine))
	return true
}

// fieldName renames fields that the agent's own log lines use.
func fieldName(key string) string {
	switch key {
	case "driver", "pid", "output", "cut", "",
		zerolog.LevelFieldName, zerolog.MessageFieldName,
		zerolog.TimestampFieldName, zerolog.ErrorFieldName, zerolog.CallerFieldName:
		return "plugin_" + key
	}
	return key
}

// logRaw logs any other line: stray prints, output of a C library, the trace of a crash.
func (o *output) logRaw(text string, cut bool) {
	if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
		o.inPanic = true
	}
	event := o.log.Warn() // sent below
	if o.inPanic {
		event = o.log.Error() // sent below
	}
	event = event.Str("output", "raw")
	if cut {
		event = event.Bool("cut", true)
	}
	event.Msg(textutil.Sanitize(text, maxLogLine))
}
