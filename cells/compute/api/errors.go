// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"errors"
	"mime"
	"net/http"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Forbidden is a 403.
func Forbidden(format string, args ...any) *osapi.Error {
	return osapi.Errorf(http.StatusForbidden, format, args...)
}

// Conflict is a 409: the state of things does not allow it.
func Conflict(format string, args ...any) *osapi.Error {
	return osapi.Errorf(http.StatusConflict, format, args...)
}

// RefuseIf is the refusal if an error is of a kind, and otherwise the error.
func RefuseIf(err, kind error, refusal error) error {
	if errors.Is(err, kind) {
		return refusal
	}
	return err
}

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

// FaultName is the name that Nova gives to refusals with a status in their bodies.
func FaultName(status int) string { return cmp.Or(faultNames[status], "computeFault") }

// Encode writes an error as Nova does.
func (x *Exchange) Encode(e *osapi.Error) (contentType string, body []byte) {
	fault := new(Object).Add("code", e.Status).Add("message", e.Message)
	return "application/json; charset=UTF-8", new(Object).Add(FaultName(e.Status), fault).Bytes()
}

// acceptable says whether a body of that media type is read: JSON, or what says nothing of itself.
func acceptable(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil &&
		(kind == "text/plain" || kind == "application/json" || kind == "application/vnd.openstack.compute+json")
}
