// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

var (
	// ErrUnavailable says that the plugin is down, so the call could not be made or
	// was not answered.
	ErrUnavailable = errors.New("plugin unavailable")
	// ErrNoAnswer says that the plugin did not respond in time.
	ErrNoAnswer = errors.New("no response in time")
	// ErrBadReply says that the plugin's response is invalid. It is discarded.
	ErrBadReply = errors.New("invalid response")
	// ErrBadRequest says that the request is invalid and was not sent.
	ErrBadRequest = errors.New("invalid request")
)

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

// FaultError is a call that ended with a fault of the plugin: the SDK reports panics so.
type FaultError struct{ Text string }

func (e *FaultError) Error() string { return e.Text }

// UnhealthyError is a health check that was answered with a problem.
type UnhealthyError struct{ Problem string }

func (e *UnhealthyError) Error() string { return e.Problem }

// TimeoutError is [ErrNoAnswer] of a call, with the message of the plugin or the transport.
type TimeoutError struct {
	Limit time.Duration
	// Deadline is the one that passed: the limit's, or an earlier one of the caller.
	Deadline time.Time
	Message  string
}

func (e *TimeoutError) Error() string {
	msg := fmt.Sprintf("%v (limit %v)", ErrNoAnswer, e.Limit)
	if e.Message != "" && e.Message != context.DeadlineExceeded.Error() {
		msg += ": " + e.Message
	}
	return msg
}

// Unwrap makes errors.Is hold for both.
func (e *TimeoutError) Unwrap() []error { return []error{ErrNoAnswer, context.DeadlineExceeded} }

// CallerGaveUp reports whether a call ended because of the caller's ctx, so that it does not count
// against the plugin. The response can arrive a moment before ctx notices its own deadline.
func CallerGaveUp(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	var timeout *TimeoutError
	deadline, has := ctx.Deadline()
	return has && errors.As(err, &timeout) && timeout.Deadline.Equal(deadline)
}

// ReachedLimit reports whether a call that began then ended because of its own limit, and not the
// caller's.
func ReachedLimit(err error, begun time.Time) bool {
	var timeout *TimeoutError
	return errors.As(err, &timeout) && time.Since(begun) >= timeout.Limit-protocol.DeadlineSkew
}

func (c *Client) failed(call string, err error) error {
	return &CallError{Driver: c.name, Call: call, Err: c.refusedBySandbox(err)}
}

// refusedBySandbox adds the way out to an error that the sandbox may have caused: the kernel does
// not say which of its rules refused something.
func (c *Client) refusedBySandbox(err error) error {
	message := err.Error()
	if !c.confined || !strings.Contains(message, syscall.EACCES.Error()) &&
		!strings.Contains(message, syscall.EPERM.Error()) {
		return err
	}
	return &wrappedError{
		message: fmt.Sprintf(
			"%s. If the driver's user may do this, its sandbox refused it: [drivers.%s] write_paths and read_paths "+
				"open files to it", message, c.name), err: err,
	}
}

// callError converts a gRPC error to a [*CallError].
func (c *Client) callError(ctx context.Context, call string, limit time.Duration, err error) error {
	if tooLarge := (*oversizedRequest)(nil); errors.As(err, &tooLarge) {
		return c.failed(call, tooLarge)
	}
	f := sanitizeFailure(protocol.FailureOf(err))
	if f.Kind != protocol.KindOther {
		return c.failed(call, driverError(f))
	}
	switch code := status.Code(err); {
	case code == codes.Canceled && ctx.Err() != nil:
		return c.failed(call, context.Cause(ctx))
	case code == codes.DeadlineExceeded && protocol.Expired(ctx): // otherwise the driver reports another deadline
		deadline, _ := ctx.Deadline()
		return c.failed(call, &TimeoutError{Limit: limit, Deadline: deadline, Message: clip(f.Message, 2000)})
	case code == codes.Unavailable, code == codes.Canceled: // Canceled: the connection is being closed on this side
		return c.failed(call, fmt.Errorf("%w: the connection broke: %s", ErrUnavailable, clip(f.Message, 2000)))
	case code == codes.ResourceExhausted:
		return c.failed(
			call,
			fmt.Errorf("%w: %s (a message has at most %d MiB in both directions, and a plugin must allow that)",
				ErrBadReply, clip(f.Message, 2000), protocol.MaxMessage>>20),
		)
	case code == codes.Unknown:
		return c.failed(call, errors.New(clip(f.Message, 20000)))
	case code == codes.Internal:
		return c.failed(call, &FaultError{fmt.Sprintf("%s (%s)", clip(f.Message, 20000), code)})
	default:
		return c.failed(call, fmt.Errorf("%s (%s)", clip(f.Message, 20000), code))
	}
}

// driverError returns the driver's typed error, with what the driver wrapped around it.
func driverError(f protocol.Failure) error {
	var err error
	switch f.Kind {
	case protocol.KindReshapeNeeded:
		err = &plugins.ReshapeNeeded{Reason: f.Words}
	case protocol.KindReshapeFailed:
		failed := &plugins.ReshapeFailed{Reason: f.Words, Hint: f.Hint}
		for _, v := range f.Violations {
			failed.Violations = append(failed.Violations, plugins.Violation(v))
		}
		err = failed
	case protocol.KindNotReady:
		err = &plugins.NotReady{Reason: f.Words}
	case protocol.KindConfigError:
		refused := &plugins.ConfigError{Key: f.Key, Problem: f.Words}
		for _, p := range f.More {
			refused.More = append(refused.More, plugins.ConfigError{Key: p.Key, Problem: p.Problem})
		}
		err = refused
	case protocol.KindUnsupported:
		err = plugins.ErrUnsupported
	case protocol.KindInstanceNotFound:
		err = &plugins.InstanceNotFound{UUID: f.UUID}
	case protocol.KindInstanceFault:
		err = &plugins.InstanceFault{UUID: f.UUID, Reason: f.Words}
	default:
		return errors.New(f.Message)
	}
	if f.Message == "" || f.Message == err.Error() {
		return err
	}
	return &wrappedError{message: f.Message, err: err}
}

// wrappedError is a typed error with the message that the driver wrapped around it.
type wrappedError struct {
	message string
	err     error
}

func (e *wrappedError) Error() string { return e.message }

// Unwrap returns the typed error.
func (e *wrappedError) Unwrap() error { return e.err }

// printable makes text from a plugin one printable line of at most size bytes: an escape sequence
// would reach the operator's terminal, a line feed would forge a log line.
func printable(s string, size int) string { return textutil.Sanitize(s, size) }

// sanitizeFailure makes a driver's error printable, and bounds its lists.
func sanitizeFailure(f protocol.Failure) protocol.Failure {
	const most, short, more, violations = 20_000, 600, 51, 501 // the SDK sends 500, and one for how many more there are
	f.Message, f.Words = printable(f.Message, most), printable(f.Words, most)
	f.Key, f.UUID, f.Hint = printable(f.Key, short), printable(f.UUID, short), printable(f.Hint, most)
	f.More = slices.Clone(f.More[:min(len(f.More), more)])
	for i, p := range f.More {
		f.More[i] = protocol.KeyProblem{Key: printable(p.Key, short), Problem: printable(p.Problem, short)}
	}
	rest := len(f.Violations) - violations
	f.Violations = slices.Clone(f.Violations[:min(len(f.Violations), violations)])
	for i, v := range f.Violations {
		f.Violations[i] = protocol.Violation{
			Consumer: printable(v.Consumer, short),
			Provider: printable(v.Provider, short),
			Class:    printable(v.Class, short),
			Problem:  printable(v.Problem, short),
			Hint:     printable(v.Hint, short),
		}
	}
	if rest > 0 {
		f.Violations = append(f.Violations, protocol.Violation{Problem: fmt.Sprintf("and %d more", rest)})
	}
	return f
}

// clip shortens text from a plugin to at most size bytes.
func clip(s string, size int) string { return textutil.Clip(s, size) }
