// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io"
	"log"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// bridge is an hclog.Logger that writes to zerolog. go-plugin speaks through it about its own doings, which are all debug
// matters: what an operator should know is logged by the supervisor.
type bridge struct {
	log  zerolog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*bridge)(nil)

func newBridge(log zerolog.Logger) *bridge { return &bridge{log: log} }

// Log writes one record. Nothing above debug leaves here: see bridge.
func (b *bridge) Log(level hclog.Level, msg string, args ...any) {
	to := zerolog.DebugLevel
	if level <= hclog.Trace {
		to = zerolog.TraceLevel
	}
	event := b.log.WithLevel(to) //nolint:zerologlint // sent below
	if b.name != "" {
		event = event.Str("logger", b.name)
	}
	all := append(append([]any(nil), b.args...), args...)
	for i := 0; i+1 < len(all); i += 2 {
		if key, ok := all[i].(string); ok {
			event = event.Interface(fieldName(key), plain(all[i+1]))
		}
	}
	event.Msg(msg)
}

// plain turns what JSON would not show into words.
func plain(v any) any {
	if err, ok := v.(error); ok {
		return err.Error()
	}
	return v
}

// Trace is Log at that level; the following are too.
func (b *bridge) Trace(msg string, args ...any) { b.Log(hclog.Trace, msg, args...) }

// Debug logs.
func (b *bridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }

// Info logs.
func (b *bridge) Info(msg string, args ...any) { b.Log(hclog.Info, msg, args...) }

// Warn logs.
func (b *bridge) Warn(msg string, args ...any) { b.Log(hclog.Warn, msg, args...) }

// Error logs.
func (b *bridge) Error(msg string, args ...any) { b.Log(hclog.Error, msg, args...) }

// IsTrace reports whether trace records are written.
func (b *bridge) IsTrace() bool { return b.log.GetLevel() <= zerolog.TraceLevel }

// IsDebug reports whether the rest is.
func (b *bridge) IsDebug() bool { return b.log.GetLevel() <= zerolog.DebugLevel }

// IsInfo is IsDebug: everything becomes a debug record.
func (b *bridge) IsInfo() bool { return b.IsDebug() }

// IsWarn is IsDebug.
func (b *bridge) IsWarn() bool { return b.IsDebug() }

// IsError is IsDebug.
func (b *bridge) IsError() bool { return b.IsDebug() }

// ImpliedArgs returns the arguments given to With.
func (b *bridge) ImpliedArgs() []any { return b.args }

// With returns a logger that adds arguments to every record.
func (b *bridge) With(args ...any) hclog.Logger {
	return &bridge{log: b.log, name: b.name, args: append(append([]any(nil), b.args...), args...)}
}

// Name of the logger.
func (b *bridge) Name() string { return b.name }

// Named returns a logger with a name below this one's.
func (b *bridge) Named(name string) hclog.Logger {
	return b.ResetNamed(strings.TrimPrefix(b.name+"."+name, "."))
}

// ResetNamed returns a logger with a name.
func (b *bridge) ResetNamed(name string) hclog.Logger {
	return &bridge{log: b.log, name: name, args: b.args}
}

// SetLevel does nothing: the level is the agent's.
func (b *bridge) SetLevel(hclog.Level) {}

// GetLevel is the level below which nothing is written.
func (b *bridge) GetLevel() hclog.Level {
	switch {
	case b.IsTrace():
		return hclog.Trace
	case b.IsDebug():
		return hclog.Debug
	}
	return hclog.Off
}

// StandardLogger returns a logger of the standard library's kind.
func (b *bridge) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(b.StandardWriter(opts), "", 0)
}

// StandardWriter returns a writer each of whose writes becomes a record.
func (b *bridge) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return recordWriter{b} }

type recordWriter struct{ b *bridge }

func (w recordWriter) Write(p []byte) (int, error) {
	w.b.Debug(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
