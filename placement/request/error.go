// SPDX-License-Identifier: Apache-2.0

// Package request tells of one request to Placement that failed: to whom it was, what Placement or the transport said, and whether Placement has
// seen it. It is for clients; what a failure means to each of them, its Kind, is theirs.
package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// Error is one request that failed.
type Error struct {
	// Method and Path name the request, without the server; whether with the query is the client's choice.
	Method, Path string
	// Status is 0 when no answer came.
	Status int
	// Code is Placement's own error code ("placement.concurrent_update", ...), where it gave one.
	Code string
	// Detail is what Placement said, or what the transport did.
	Detail string
	// RequestID is ours, under which Placement logs the request; ServerRequestID is Placement's.
	RequestID, ServerRequestID string
	// Unsent: no connection came about, so Placement has not seen the request.
	Unsent bool
	// Kind is one of the client's sentinels; Cause is the transport's error, if any.
	Kind, Cause error
}

// New is what will be told of a request if it fails, with a new RequestID.
func New(method, path string) *Error {
	return &Error{Method: method, Path: path, RequestID: "req-" + uuid.NewString()}
}

// Error is the request, its kind, what was answered, and the id under which Placement's log has it.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %v", e.Method, e.Path, e.Kind)
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

// Unanswered notes the transport's error in place of an answer.
func (e *Error) Unanswered(err error) {
	e.Cause, e.Detail, e.Unsent = err, plain(err), Unsent(err)
}

// BrokeOff notes that the answer began, and that this error came before its end.
func (e *Error) BrokeOff(err error) { e.Cause, e.Detail = err, "the answer broke off: "+plain(err) }

// maxDetail bounds what is kept of Placement's own words, which can list much, maxExcerpt of anything else that came as an answer, in characters.
const (
	maxDetail  = 2000
	maxExcerpt = 300
)

// Refused notes what an answer says that is not 2xx: code and detail of Placement's error body, or the beginning of whatever else it is.
func (e *Error) Refused(content []byte) {
	var answer wire.ErrorBody
	if json.Unmarshal(content, &answer) == nil && len(answer.Errors) > 0 {
		e.Code, e.Detail = string(answer.Errors[0].Code), line(answer.Errors[0].Detail, maxDetail)
		return
	}
	e.Detail = Excerpt(content)
}

// ByPlacement reports whether Placement itself, and no proxy or broken server, has turned the request down: then nothing of it happened.
func (e *Error) ByPlacement() bool {
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		return true
	}
	return e.Status >= 400 && e.Status < 500 && e.Code != ""
}

// Excerpt makes a line of log from whatever came instead of an answer.
func Excerpt(content []byte) string {
	return line(string(content[:min(len(content), 8*maxExcerpt+1)]), maxExcerpt)
}

// line is a text on one line of at most that many characters. No more is read than they can take, at up to four bytes each, with as much white space.
func line(text string, most int) string {
	begins := text[:min(len(text), 8*most)]
	r := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(begins, "?")), " "))
	if len(r) > most || len(begins) < len(text) {
		return string(r[:min(len(r), most)]) + "..."
	}
	return string(r)
}

// Unsent reports whether a request failed before any connection was there to send it on.
func Unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || (errors.As(err, &op) && op.Op == "dial")
}

// plain takes the wrapping off a transport's error that repeats method and URL.
func plain(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}
