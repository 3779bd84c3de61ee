// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"mime"
	"net/http"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// The refusals that handlers make most. They return others too, with osapi.Errorf; whatever else
// they return is a 500.
var (
	badRequest  = osapi.BadRequest
	notFound    = osapi.NotFound
	unavailable = osapi.Unavailable
	shortened   = osapi.Shortened
)

// forbidden is a 403.
func forbidden(format string, args ...any) *osapi.Error {
	return osapi.Errorf(http.StatusForbidden, format, args...)
}

// serverNotFound is the 404 for a server that does not exist or that the client must not see.
func serverNotFound(uuid string) *osapi.Error {
	return notFound("Instance %s could not be found.", shortened(uuid))
}

// conflict is a 409: the state of things does not allow it.
func conflict(format string, args ...any) *osapi.Error {
	return osapi.Errorf(http.StatusConflict, format, args...)
}

// cellDown is the 500 for what cannot be done with a server because its cell is down. Nova's
// sentence for it is "Unexpected API Error"; its tests look for the name of the exception.
func cellDown(err error) *osapi.Error {
	return osapi.Errorf(http.StatusInternalServerError, "NovaException: The server's cell is not responding. Try again when it is back.").Because(err)
}

// statusClientClosed is in the log for requests whose client went away, as nginx has it.
const statusClientClosed = 499

// computeFault is the name of refusals that have no other.
const computeFault = "computeFault"

// faultNames are the names that Nova gives to refusals in their bodies; all others are
// computeFault.
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

// Encode writes an error as Nova does.
func (x *exchange) Encode(e *osapi.Error) (contentType string, body []byte) {
	name := faultNames[e.Status]
	if name == "" {
		name = computeFault
	}
	fault := new(object).add("code", e.Status).add("message", e.Message)
	return "application/json; charset=UTF-8", new(object).add(name, fault).bytes()
}

// acceptable says whether a body of that media type is read: JSON, or what says nothing of itself.
func acceptable(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (kind == "text/plain" || kind == "application/json" || kind == "application/vnd.openstack.compute+json")
}
