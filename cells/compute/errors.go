// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/quota"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// fault is a refusal: its status, and the sentence that the client gets. Handlers return one for whatever is not to be answered with 500.
type fault struct {
	status  int
	message string
	cause   error // for the log
	headers map[string]string
}

// Error is the sentence, with the cause.
func (f *fault) Error() string {
	if f.cause != nil {
		return f.message + ": " + f.cause.Error()
	}
	return f.message
}

// Unwrap is the cause.
func (f *fault) Unwrap() error { return f.cause }

func newFault(status int, format string, args ...any) *fault {
	return &fault{status: status, message: fmt.Sprintf(format, args...)}
}

// because notes the cause of a refusal, for the log.
func (f *fault) because(err error) *fault {
	f.cause = err
	return f
}

// badRequest is a 400: the request is wrong.
func badRequest(format string, args ...any) *fault {
	return newFault(http.StatusBadRequest, format, args...)
}

// forbidden is a 403.
func forbidden(format string, args ...any) *fault {
	return newFault(http.StatusForbidden, format, args...)
}

// notFound is a 404 for something that the path names.
func notFound(format string, args ...any) *fault {
	return newFault(http.StatusNotFound, format, args...)
}

// noServer is the 404 for a server, whether there is none or the caller may not know.
func noServer(uuid string) *fault {
	return notFound("Instance %s could not be found.", shortened(uuid))
}

// conflict is a 409: the state of things does not allow it.
func conflict(format string, args ...any) *fault {
	return newFault(http.StatusConflict, format, args...)
}

// unavailable is a 503: the same request may succeed in a moment.
func unavailable(format string, args ...any) *fault {
	f := newFault(http.StatusServiceUnavailable, format, args...)
	f.headers = map[string]string{"Retry-After": "1"}
	return f
}

// cellDown is the 500 for what cannot be done with a server because its cell is down. Nova's sentence for it is "Unexpected API Error"; its
// tests look for the name of the exception.
func cellDown(err error) *fault {
	return newFault(http.StatusInternalServerError, "NovaException: The server's cell is not responding. Try again when it is back.").because(err)
}

// statusGivenUp is in the log for requests whose client went away, as nginx has it.
const statusGivenUp = 499

func methodNotAllowed(method string, allowed []string) *fault {
	f := newFault(http.StatusMethodNotAllowed, "The method %s is not allowed for this resource.", shortened(method))
	f.headers = map[string]string{"Allow": strings.Join(allowed, ", ")}
	return f
}

// faultNames are the names that Nova gives to refusals in their bodies; all others are computeFault.
var faultNames = map[int]string{
	http.StatusBadRequest:            "badRequest",
	http.StatusUnauthorized:          "unauthorized",
	http.StatusForbidden:             "forbidden",
	http.StatusNotFound:              "itemNotFound",
	http.StatusMethodNotAllowed:      "badMethod",
	http.StatusConflict:              "conflictingRequest",
	http.StatusRequestEntityTooLarge: "overLimit",
	http.StatusUnsupportedMediaType:  "badMediaType",
	http.StatusTooManyRequests:       "overLimit",
	http.StatusNotImplemented:        "notImplemented",
	http.StatusServiceUnavailable:    "serviceUnavailable",
}

// asFault is how an error of any kind is answered.
func (x *exchange) asFault(err error) *fault {
	var f *fault
	var wrong *wire.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &wrong) && wrong.Status == http.StatusBadRequest: // a query that no cell would take
		return badRequest("%s", shortened(wrong.Message))
	case errors.Is(err, apidb.ErrUnavailable):
		return unavailable("The API database cannot be used now. Send the request again in a moment.").because(err)
	case errors.Is(err, gather.ErrDown):
		return cellDown(err)
	case errors.Is(err, context.Canceled) && x.r.Context().Err() != nil:
		return newFault(statusGivenUp, "The request was given up.").because(err) // nobody reads it
	case errors.Is(err, quota.ErrPlacement):
		return unavailable("The Placement service cannot be used now, so the usage of the project is not known. Send the request again later.").because(err)
	}
	return newFault(http.StatusInternalServerError, "Unexpected API Error. The log of the compute API says more, under the request id %s.", x.id).because(err)
}

// refuse answers with an error.
func (x *exchange) refuse(err error) {
	f := x.asFault(err)
	x.cause = f.cause
	name := faultNames[f.status]
	if name == "" {
		name = "computeFault"
	}
	h := x.w.Header()
	for key, value := range f.headers {
		h.Set(key, value)
	}
	h.Set("Content-Type", "application/json; charset=UTF-8")
	body := new(object).add("code", f.status).add("message", f.message)
	x.send(f.status, new(object).add(name, body).bytes())
}

// acceptable says whether a body of that media type is read: JSON, or what says nothing of itself.
func acceptable(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (kind == "text/plain" || kind == "application/json" || kind == "application/vnd.openstack.compute+json")
}
