// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Kind says how a cell failed.
type Kind int

// The kinds of failures.
const (
	// Refused: no connection could be made. It costs no time.
	Refused Kind = iota + 1
	// TimedOut: there was no whole answer in time.
	TimedOut
	// Broken: what came is no answer: a connection that broke, half a body, not JSON, a 5xx, too
	// much, or about something else.
	Broken
	// Cancelled: the caller went away first. It says nothing about the cell.
	Cancelled
)

func (k Kind) String() string {
	switch k {
	case Refused:
		return "no connection"
	case TimedOut:
		return "no answer in time"
	case Broken:
		return "broken answer"
	case Cancelled:
		return "cancelled"
	default:
		return fmt.Sprintf("Kind(%d)", int(k))
	}
}

// Failure says that a cell gave no answer that counts.
type Failure struct {
	Kind Kind
	// Sent is false only if nothing of the request can have reached the cell: then nothing was
	// done. Otherwise the outcome is unknown.
	Sent bool
	Err  error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.Kind, f.Err) }

// Unwrap gives what lies beneath. It is never a *cellwire.Error: a failure is no refusal.
func (f *Failure) Unwrap() error { return f.Err }

var errNoCall = errors.New("it has no such call; it may be of another version")

// IsNoCall reports whether the cell has no such call, because it is of another version.
func IsNoCall(err error) bool { return errors.Is(err, errNoCall) }

// IsNotFound reports whether the cell refused because there is no such thing.
func IsNotFound(err error) bool { return hasCode(err, cellwire.CodeNotFound) }

// IsForbidden reports whether the cell refused because the credentials are not for that: they are
// another host's, for one.
func IsForbidden(err error) bool { return hasCode(err, cellwire.CodeForbidden) }

// AsFailure turns the rejection of a request that every cell must accept into a Failure: such a
// cell is unusable. 401 and 403 stay rejections.
func AsFailure(err error) error {
	var refusal *cellwire.Error
	if errors.As(err, &refusal) && refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
		return broken("it rejected a valid request: %s", err.Error())
	}
	return err
}

// IsConflict reports whether the cell refused because the state of the server does not allow it, or
// because another has its uuid.
func IsConflict(err error) bool { return hasCode(err, cellwire.CodeConflict, cellwire.CodeExists) }

// IsContested reports whether the cell refused a server on a node because it is not certain whose
// that is.
func IsContested(err error) bool { return hasCode(err, cellwire.CodeContested) }

// IsBadRequest reports whether the cell refused what it cannot read, or does not know: a field of a
// newer version, for one.
func IsBadRequest(err error) bool { return hasCode(err, cellwire.CodeBadRequest) }

// IsOverQuota reports whether the cell refused because there would be more of something than there
// may be.
func IsOverQuota(err error) bool { return hasCode(err, cellwire.CodeOverQuota) }

// IsOutdated reports whether the cell refused because it has seen a later term than that of the
// request's context ([cellwire.WithTerm]).
func IsOutdated(err error) bool { return hasCode(err, cellwire.CodeOutdated) }

// IsCertificate reports whether the two sides do not accept each other's certificates, or agree on
// TLS at all: trying again does not help.
func IsCertificate(err error) bool {
	var unverified *tls.CertificateVerificationError
	var op *net.OpError
	// an alert of the cell's, as crypto/tls has it
	return errors.As(err, &unverified) || errors.As(err, &op) && op.Op == "remote error"
}

// NotSent reports whether an error promises that nothing reached the cell.
func NotSent(err error) bool {
	var f *Failure
	return errors.As(err, &f) && !f.Sent
}

func hasCode(err error, codes ...cellwire.Code) bool {
	var refusal *cellwire.Error
	if !errors.As(err, &refusal) {
		return false
	}
	for _, code := range codes {
		if refusal.Code == code {
			return true
		}
	}
	return false
}

// broken is a failure by what a cell answered, so it was sent.
func broken(format string, args ...any) *Failure {
	return &Failure{Kind: Broken, Sent: true, Err: fmt.Errorf(format, args...)}
}

// kindOf says what an error of the transport means.
func kindOf(err error) Kind {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return Refused
	}
	return Broken
}

// IsInUse says that servers, or a host that is up, keep the cell from doing it.
func IsInUse(err error) bool { return hasCode(err, cellwire.CodeInUse) }

// IsUnable says that a host lacks the ability for it.
func IsUnable(err error) bool { return hasCode(err, cellwire.CodeUnable) }
