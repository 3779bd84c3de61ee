// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// Observer is told of what the API does, for metrics. Its methods are called in the goroutine of the request, at the same
// time by many, and must not block.
type Observer interface {
	// Answered is called once for each request, after its answer was written.
	Answered(Answer)
	// Searched is called once for each search for allocation candidates.
	Searched(Search)
}

// Answer is one request that was answered. Route, Method and Code are out of small fixed sets, whatever clients send.
type Answer struct {
	// Route is the path as the API describes it, such as "/resource_providers/{uuid}"; "" for a path that is none of the API's.
	Route string
	// Method is the HTTP method, OtherMethod for one that nobody knows.
	Method string
	Status int
	// Code is the error code of a refusal, also where the client's microversion does not show it; "" for a success.
	Code     wire.ErrorCode
	Duration time.Duration
	// Received and Sent are the sizes of the bodies, as far as they were read and written, in bytes.
	Received, Sent int
}

// OtherMethod is what an Answer gives in place of methods that HTTP does not define.
const OtherMethod = "other"

// Search is one search for allocation candidates.
type Search struct {
	// Candidates is how many were returned.
	Candidates int
	// Steps is how many choices of a provider the search tried.
	Steps int
}

// Load is what the API works on at the moment.
type Load struct {
	// Requests is how many requests are worked on, of Limits.InFlight.
	Requests int64
	// BodyBytes is the memory that request bodies take, of Limits.Bodies.
	BodyBytes int64
}

// Load returns what the API works on at the moment.
func (a *API) Load() Load { return Load{Requests: a.inFlight.Load(), BodyBytes: a.bodies.Load()} }

// observe tells the observer of the exchange.
func (x *exchange) observe() {
	if x.api.observer == nil {
		return
	}
	x.api.observer.Answered(Answer{
		Route: x.route, Method: knownMethod(x.r.Method), Status: x.status, Code: x.code,
		Duration: x.api.now().Sub(x.started), Received: x.received, Sent: x.size,
	})
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return OtherMethod
}
