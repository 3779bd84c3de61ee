// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// What went wrong with a request, in the terms in which a caller can act.
var (
	// ErrConflict: a generation is not ours any more, or a concurrent write interfered (409
	// placement.concurrent_update and its undefined_code kin). Read again and recompute.
	ErrConflict = errors.New("conflict with a concurrent update")
	// ErrInsufficientCapacity: an amount does not fit its inventory (capacity, min_unit, max_unit,
	// step_size), or the inventory does not exist; see [Client.PutAllocations].
	ErrInsufficientCapacity = errors.New("insufficient capacity")
	// ErrInventoryInUse: the write would take away inventory that is allocated (409
	// placement.inventory.inuse).
	ErrInventoryInUse = errors.New("the inventory is allocated")
	// ErrProviderInUse: a provider that has allocations or children cannot be deleted.
	ErrProviderInUse = errors.New("the resource provider is in use")
	// ErrDuplicate: another provider has this name, or this uuid (409 placement.duplicate_name).
	ErrDuplicate = errors.New("a resource provider of that name or uuid exists")
	// ErrNotFound: 404.
	ErrNotFound = errors.New("not found in placement")
	// ErrRefused: 401 or 403, or there are no credentials. Trying again does not help until someone
	// fixes it.
	ErrRefused = errors.New("placement rejects the credentials")
	// ErrHostRefused: 403, because we are a host and what was asked for is not that host's own, or
	// because the rules for hosts do not allow it. The credentials are good.
	ErrHostRefused = errors.New("placement does not allow this to the host")
	// ErrNotAdmitted: 403, because we are a host and report more than that is admitted to; see
	// [placement] host_capacity_factor. It is an ErrHostRefused, too.
	ErrNotAdmitted = fmt.Errorf("%w: it reports more than is admitted", ErrHostRefused)
	// ErrInvalid: 400, or too long (413, 414, 431). What we sent is wrong for this Placement.
	ErrInvalid = errors.New("placement rejects the request as invalid")
	// ErrUnavailable: Placement could not be reached, did not answer in time, or answered 5xx, 408
	// or 429.
	ErrUnavailable = errors.New("placement is unavailable")
	// ErrOutcomeUnknown: a write was sent and no answer of Placement's says what became of it. It
	// may have happened, or may yet. The error is also one of the others, as a rule ErrUnavailable.
	ErrOutcomeUnknown = errors.New("the outcome of the write is unknown")
	// ErrUnexpected: an answer that a Placement does not give. Probably something else listens
	// there.
	ErrUnexpected = errors.New("unexpected answer, is this a placement service?")
	// ErrTooOld: the server does not have the microversion that is needed, as a rule because it is
	// too old.
	ErrTooOld = errors.New("placement does not support the required microversion")
)

// Down reports whether an error is about Placement as a whole, and not about what was asked: other
// requests would fail as well.
func Down(err error) bool {
	for _, kind := range []error{ErrUnavailable, ErrOutcomeUnknown, ErrRefused, ErrUnexpected, ErrNotFound, ErrTooOld} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Error is one request that failed.
type Error struct {
	// Method and Path, with the query, name the request without the server.
	Method, Path string
	// Status is 0 when no answer came.
	Status int
	// Code is Placement's own error code ("placement.concurrent_update", ...), where it gave one.
	Code string
	// Detail is what Placement said, or what the transport did.
	Detail string
	// RequestID is ours, under which Placement logs the request; ServerRequestID is Placement's.
	RequestID, ServerRequestID string
	// NotAdmitted are the classes and kinds of traits of an ErrNotAdmitted that a person has to
	// admit: all, or the first ones; none from an older Placement.
	NotAdmitted []string
	// Unsent: no connection came about, so Placement has not seen the request.
	Unsent bool
	// Service is what answered, where that is known not to be a Placement: "a cell of
	// compute-agent".
	Service string
	// Kind is one of the sentinels of this package; Cause is the transport's error, if any.
	Kind, Cause error
}

// maxQuery bounds how much of a query is shown in an error, in bytes.
const maxQuery = 200

// Error is the request, its kind, what was answered, and the id under which Placement's log has it.
func (e *Error) Error() string {
	var b strings.Builder
	path, query, found := strings.Cut(e.Path, "?")
	if found {
		path += "?" + textutil.Clip(query, maxQuery)
	}
	kind := e.Kind
	if e.OutcomeUnknown() && errors.Is(kind, ErrUnavailable) {
		kind = ErrOutcomeUnknown
	}
	fmt.Fprintf(&b, "%s %s: %v", e.Method, path, kind)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d", e.Status)
		if e.Code != "" {
			b.WriteString(", " + e.Code)
		}
		b.WriteString(")")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	switch {
	case e.ServerRequestID != "":
		b.WriteString(" [" + e.ServerRequestID + "]")
	case e.RequestID != "":
		b.WriteString(" [" + e.RequestID + "]")
	}
	return b.String()
}

// Unwrap gives errors.Is both the kind and the transport's cause (context.DeadlineExceeded, ...).
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Is makes a write whose outcome is unknown an [ErrOutcomeUnknown].
func (e *Error) Is(target error) bool { return target == ErrOutcomeUnknown && e.OutcomeUnknown() }

// OutcomeUnknown reports whether a write may have happened: it was sent, and Placement itself, not
// a proxy or a broken server, has not turned it down.
func (e *Error) OutcomeUnknown() bool {
	byPlacement := e.Status == http.StatusUnauthorized ||
		e.Status == http.StatusForbidden || (e.Status >= 400 && e.Status < 500 && e.Code != "")
	return e.Method != http.MethodGet && !e.Unsent && !byPlacement
}

// setUnanswered notes the transport's error in place of an answer.
func (e *Error) setUnanswered(err error) {
	e.Kind, e.Cause, e.Detail, e.Unsent = ErrUnavailable, err, withoutURL(err), unsent(err)
}

// setCutShort notes that the answer began, and that this error came before its end.
func (e *Error) setCutShort(err error) {
	e.Kind, e.Cause, e.Detail = ErrUnavailable, err, "the answer was cut short: "+withoutURL(err)
}

// maxDetail bounds what is kept of Placement's own words, which can list much, maxSnippet of
// anything else that came as an answer, in characters.
const (
	maxDetail  = 2000
	maxSnippet = 300
)

// setRefusal notes what an answer says that is not 2xx: code and detail of Placement's error body,
// or the beginning of whatever else it is.
func (e *Error) setRefusal(content []byte) {
	var answer wire.ErrorBody
	if json.Unmarshal(content, &answer) == nil && len(answer.Errors) > 0 {
		e.Code, e.Detail = string(answer.Errors[0].Code), textutil.Line(answer.Errors[0].Detail, maxDetail)
		e.NotAdmitted = answer.Errors[0].NotAdmitted
	} else {
		e.Detail = textutil.Line(content, maxSnippet)
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType,
		http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		e.Kind = ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = ErrRefused
		switch wire.ErrorCode(e.Code) {
		case wire.CodeHost:
			e.Kind = ErrHostRefused
		case wire.CodeHostCapacity:
			e.Kind = ErrNotAdmitted
		}
	case http.StatusNotFound:
		e.Kind = ErrNotFound
	case http.StatusNotAcceptable:
		e.Kind = ErrTooOld
	case http.StatusConflict:
		e.Kind = conflictKind(wire.ErrorCode(e.Code))
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		e.Kind = ErrUnavailable
	default:
		e.Kind = ErrUnexpected
		if e.Status >= http.StatusInternalServerError {
			e.Kind = ErrUnavailable
		}
	}
}

// setForeignService notes that the answer is that of a service which is no Placement.
func (e *Error) setForeignService(header http.Header, content []byte) {
	if e.mayBeProxy() && header.Get(wire.HeaderVersion) == "" {
		return
	}
	switch who := textutil.Answering(header, content); who {
	case "", "a Placement":
	default:
		e.Service, e.Kind, e.Code = who, ErrUnexpected, ""
		e.Detail = who + " answers there: placement_client.url must be the URL of Placement"
	}
}

// mayBeProxy reports whether the answer may be that of a proxy before Placement, or of the
// middleware of Keystone within it: their texts are not Placement's. Its versions are there without
// a login.
func (e *Error) mayBeProxy() bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return e.Path != "/"
	case http.StatusProxyAuthRequired, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func conflictKind(code wire.ErrorCode) error {
	switch code {
	case wire.CodeInventoryInUse:
		return ErrInventoryInUse
	case wire.CodeDuplicateName:
		return ErrDuplicate
	case wire.CodeProviderInUse, wire.CodeCannotDeleteParent:
		return ErrProviderInUse
	}
	return ErrConflict
}

// noCredentials is the kind of a request that could not be sent, or be sent once more, because
// there was nothing to prove who we are, or no endpoint to send it to. It is [ErrUnavailable] if
// that may be gone later or time ran out, and [ErrRefused] otherwise.
type noCredentials struct{ cause error }

func (*noCredentials) Error() string { return "there are no valid credentials for placement" }

func (n *noCredentials) Is(target error) bool {
	var temporary interface{ Temporary() bool }
	switch {
	case errors.As(n.cause, &temporary) && temporary.Temporary(),
		errors.Is(n.cause, ErrUnavailable), errors.Is(n.cause, context.Canceled),
		errors.Is(n.cause, context.DeadlineExceeded):
		return target == ErrUnavailable
	}
	return target == ErrRefused
}

// unsent reports whether a request failed before any connection was there to send it on.
func unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || (errors.As(err, &op) && op.Op == "dial")
}

// withoutURL takes the wrapping off a transport's error that repeats method and URL.
func withoutURL(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}
