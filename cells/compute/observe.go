// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"time"
)

// Observer is told of what the API does, for metrics. Its method is called in the goroutine of the request, at the same time by many, and must
// not block.
type Observer interface {
	// Answered is called once for each request, after its answer was written.
	Answered(Answer)
}

// Answer is one request that was answered. Route, Method and Status are out of small fixed sets, whatever clients send.
type Answer struct {
	// Route is the path as the API has it, such as "/v2.1/servers/{id}"; "" for a path that is none of the API's, or of a request that was
	// refused before it was looked at.
	Route string
	// Method is the HTTP method, OtherMethod for one that nobody knows.
	Method   string
	Status   int
	Duration time.Duration
}

// OtherMethod is what an Answer gives in place of methods that HTTP does not define.
const OtherMethod = "other"

// InFlight is how many requests are worked on at the moment.
func (a *API) InFlight() int64 { return a.inFlight.Load() }

// observe tells the observer of the exchange.
func (x *exchange) observe() {
	if x.api.observer == nil {
		return
	}
	answer := Answer{Method: knownMethod(x.r.Method), Status: x.status, Duration: x.api.now().Sub(x.started)}
	if x.route != nil {
		answer.Route = x.route.path
	}
	x.api.observer.Answered(answer)
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return OtherMethod
}

// slow is the time from which on a request gets a line in the log whatever it is.
const slow = time.Second

// ordinary reports whether the request is not worth a line in the log that everybody keeps: one that read something, got it, and did not take
// long. Clients send thousands of these, and each poll of a server is one.
func (x *exchange) ordinary(took time.Duration) bool {
	reads := x.r.Method == http.MethodGet || x.r.Method == http.MethodHead || x.route != nil && x.route.open
	return reads && x.status < http.StatusBadRequest && took <= slow
}
