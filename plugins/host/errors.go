// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

var (
	// ErrUnavailable says that the plugin is down, so the question could not be asked. See
	// [UnavailableError].
	ErrUnavailable = errors.New("plugin unavailable")
	// ErrNoAnswer says that the plugin did not answer in time.
	ErrNoAnswer = errors.New("no answer in time")
	// ErrBadReply says that the plugin answered something that cannot be used. The reply is
	// dropped.
	ErrBadReply = errors.New("unusable reply")
	// ErrBadRequest says that what was to be asked of the plugin cannot be, and was not: nothing
	// was sent.
	ErrBadRequest = errors.New("impossible request")
	// ErrOutcomeUnknown says that a Spawn, Destroy or SetPower may have changed something, or
	// nothing, or still be at it. To find out, ask again with the same arguments.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUntrusted says that the executable, or the way to it, could have been changed by another
	// user. See [UntrustedError].
	ErrUntrusted = errors.New("executable is not to be trusted")
	// ErrNotExecutable says that the kernel does not execute the file: it is made for another
	// machine, is no program, or its interpreter is not installed.
	ErrNotExecutable = errors.New("executable cannot be executed")
	// ErrNotInstalled says that there is no executable. See [NotInstalledError].
	ErrNotInstalled = errors.New("driver not installed")
	// ErrIncompatible says that the plugin speaks no version of the protocol that we do.
	ErrIncompatible = errors.New("incompatible plugin")
	// ErrRuntimeDir says that the runtime directory cannot hold the plugins' sockets.
	ErrRuntimeDir = errors.New("unusable runtime directory")

	errHostClosed = errors.New("the plugin host is closed")
	errRemoved    = errors.New("it was removed")
)

// UnavailableError is [ErrUnavailable] with the state that the plugin is in and why.
type UnavailableError struct {
	Driver string
	State  State
	Since  time.Time
	// Cause is what brought the plugin down, or nil if it has not been up yet.
	Cause error
}

func (e *UnavailableError) Error() string {
	if e.State == NotInstalled && e.Cause != nil {
		return e.Cause.Error() // it says all of it
	}
	msg := fmt.Sprintf("driver %s is unavailable (%s)", e.Driver, e.State)
	if e.Cause != nil {
		msg += ": " + e.Cause.Error()
	}
	return msg
}

// Is makes errors.Is(err, ErrUnavailable) hold.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// ReplacedError is [ErrUnavailable] of a call whose process was replaced by another one and ended
// before it had answered. The plugin is not down: the other process serves.
type ReplacedError struct {
	Driver string
	// Cause is how the call ended.
	Cause error
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("driver %s was being replaced: the former process ended before it had answered: %v", e.Driver, e.Cause)
}

// Unwrap returns the cause, which is ErrUnavailable.
func (e *ReplacedError) Unwrap() error { return e.Cause }

// TakeoverError says that another process, which was to replace the one that serves, cannot: that
// one goes on, with its former configuration. It wraps [ErrUntrusted], [ErrIncompatible], a
// [*StartError] or, from a driver that refuses the configuration, a [*plugins.ConfigError].
type TakeoverError struct {
	Path string // of the executable that was to be started
	Err  error
}

func (e *TakeoverError) Error() string {
	return "the new process cannot take over, the old one goes on: " + e.Err.Error()
}

// Unwrap returns why.
func (e *TakeoverError) Unwrap() error { return e.Err }

// excusedError is a missing answer that is not held against the plugin.
type excusedError struct{ err error }

func (e *excusedError) Error() string { return e.err.Error() }

// Unwrap returns it.
func (e *excusedError) Unwrap() error { return e.err }

// faultError is a call that ended with a fault of the plugin: the SDK reports it when the driver
// panics.
type faultError struct{ words string }

func (e *faultError) Error() string { return e.words }

// NotInstalledError is [ErrNotInstalled] with where the executable is expected, and how to put one
// there.
type NotInstalledError struct {
	Driver string
	Path   string
	// Searched are the directories in which it was looked for; none if the path is configured.
	Searched []string
}

func (e *NotInstalledError) Error() string {
	file := filepath.Base(e.Path)
	if len(e.Searched) == 0 {
		return fmt.Sprintf("driver %s is not installed: there is no executable %s. Install it there, or correct drivers.%[1]s.path", e.Driver, e.Path)
	}
	return fmt.Sprintf("driver %s is not installed: there is no %s in %s. Install it: install -D -m 0755 %[2]s %[4]s", e.Driver, file, strings.Join(e.Searched, " or "), e.Path)
}

// Is makes errors.Is(err, ErrNotInstalled) hold, and errors.Is(err, fs.ErrNotExist).
func (e *NotInstalledError) Is(target error) bool {
	return target == ErrNotInstalled || target == fs.ErrNotExist
}

// UntrustedError is [ErrUntrusted] with what is wrong and how to fix it.
type UntrustedError struct {
	Path    string
	Problem string
	Remedy  string
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s %s; not started. %s", e.Path, e.Problem, e.Remedy)
}

// Is makes errors.Is(err, ErrUntrusted) hold.
func (e *UntrustedError) Is(target error) bool { return target == ErrUntrusted }

// StartError says that a process did not become a working plugin.
type StartError struct {
	Path  string
	Cause error
	// Output is the end of what the process wrote, line by line.
	Output []string
}

func (e *StartError) Error() string {
	msg := fmt.Sprintf("starting %s: %v", e.Path, e.Cause)
	if len(e.Output) > 0 {
		msg += "; the end of its output: " + strings.Join(e.Output, " | ")
	}
	return msg
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Cause }

// CallError says which call of which driver failed. It wraps the driver's own error
// ([plugins.ErrReshapeNeeded], [*plugins.ReshapeFailed], ...), [ErrNoAnswer], [ErrBadReply] or an
// untyped error.
type CallError struct {
	Driver string
	Call   string
	Err    error
}

func (e *CallError) Error() string { return fmt.Sprintf("driver %s: %s: %v", e.Driver, e.Call, e.Err) }

// Unwrap returns what went wrong.
func (e *CallError) Unwrap() error { return e.Err }

// timeoutError is [ErrNoAnswer] of a call, with the last message of the other side or the
// transport.
type timeoutError struct {
	limit    time.Duration
	deadline time.Time // that passed: the limit's, or an earlier one of the caller
	words    string
}

func (e *timeoutError) Error() string {
	msg := fmt.Sprintf("%v (limit %v)", ErrNoAnswer, e.limit)
	if e.words != "" && e.words != context.DeadlineExceeded.Error() {
		msg += ": " + e.words
	}
	return msg
}

// Unwrap makes errors.Is hold for both.
func (e *timeoutError) Unwrap() []error { return []error{ErrNoAnswer, context.DeadlineExceeded} }

// callerGaveUp reports whether a call ended because of the caller's ctx, which says nothing about
// the plugin. ctx may learn of its own deadline a moment later than the answer to it arrives.
func callerGaveUp(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	var late *timeoutError
	theirs, has := ctx.Deadline()
	return has && errors.As(err, &late) && late.deadline.Equal(theirs)
}

// unhealthyError is a health check that was answered, with a problem.
type unhealthyError struct{ problem string }

func (e *unhealthyError) Error() string { return e.problem }
