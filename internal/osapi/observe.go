// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net/http"
	"time"
)

// Observer gets what a service does, for metrics. Its method is called in the goroutine of the
// request, by many at the same time, and must not block.
type Observer interface {
	// Answered is called once for each request, after its answer was written.
	Answered(Answer)
}

// Answer is one request that was answered. Route, Method and Code are out of small fixed sets,
// whatever clients send.
type Answer struct {
	// Route is the path as the API describes it, such as "/resource_providers/{uuid}"; "" for a
	// path that the API does not have, or a request that was refused before its path was read.
	Route string
	// Method is the HTTP method, OtherMethod for one that HTTP does not define.
	Method string
	Status int
	// Code is the error code of a failure, also where the client's microversion does not show it;
	// "" for a success.
	Code     string
	Duration time.Duration
	// Received and Sent are the sizes of the bodies, as far as they were read and written, in
	// bytes.
	Received, Sent int
}

// OtherMethod is what an Answer gives in place of methods that HTTP does not define.
const OtherMethod = "other"

func (x *Exchange) observe(took time.Duration) {
	if x.service.Observer == nil {
		return
	}
	a := Answer{Route: x.Route, Method: knownMethod(x.R.Method), Status: x.Status, Duration: took,
		Received: x.received, Sent: x.sent}
	if x.err != nil {
		a.Code = x.err.Code
	}
	x.service.Observer.Answered(a)
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return OtherMethod
}
