// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

func (p *process) failed(call string, err error) error {
	return &CallError{Driver: p.name, Call: call, Err: p.refusedBySandbox(err)}
}

// refusedBySandbox adds the way out to an error that the sandbox may have caused: the kernel does
// not say which of its rules refused something.
func (p *process) refusedBySandbox(err error) error {
	message := err.Error()
	if p.runner == nil || p.runner.sandbox == nil || !strings.Contains(message, syscall.EACCES.Error()) &&
		!strings.Contains(message, syscall.EPERM.Error()) {
		return err
	}
	return &wrappedError{
		message: fmt.Sprintf(
			"%s. If the driver's user may do this, its sandbox refused it: [drivers.%s] write_paths and read_paths "+
				"open files to it", message, p.name), err: err,
	}
}

// callError converts a gRPC error to a [*CallError].
func (p *process) callError(ctx context.Context, call string, limit time.Duration, err error) error {
	if tooLarge := (*oversized)(nil); errors.As(err, &tooLarge) {
		return p.failed(call, tooLarge)
	}
	f := sanitizeFailure(protocol.FailureOf(err))
	if f.Kind != protocol.KindOther {
		return p.failed(call, driverError(f))
	}
	switch code := status.Code(err); {
	case code == codes.Canceled && ctx.Err() != nil:
		return p.failed(call, context.Cause(ctx))
	case code == codes.DeadlineExceeded && protocol.Expired(ctx): // otherwise the driver reports another deadline
		deadline, _ := ctx.Deadline()
		return p.failed(call, &timeoutError{limit: limit, deadline: deadline, message: clip(f.Message, 2000)})
	case code == codes.Unavailable, code == codes.Canceled: // Canceled: the connection is being closed on this side
		return p.failed(call, fmt.Errorf("%w: the connection broke: %s", ErrUnavailable, clip(f.Message, 2000)))
	case code == codes.ResourceExhausted:
		return p.failed(
			call,
			fmt.Errorf("%w: %s (a message has at most %d MiB in both directions, and a plugin must allow that)",
				ErrBadReply, clip(f.Message, 2000), protocol.MaxMessage>>20),
		)
	case code == codes.Unknown:
		return p.failed(call, errors.New(clip(f.Message, 20000)))
	case code == codes.Internal:
		return p.failed(call, &faultError{fmt.Sprintf("%s (%s)", clip(f.Message, 20000), code)})
	default:
		return p.failed(call, fmt.Errorf("%s (%s)", clip(f.Message, 20000), code))
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
		for _, o := range f.Violations {
			failed.Violations = append(failed.Violations, plugins.Violation(o))
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
