// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// headerComputeRequestID is Nova's own header for the id of a request, beside that of all services.
const headerComputeRequestID = "X-Compute-Request-Id"

// Service is what all requests share.
type Service struct {
	*osapi.Service
	routes *osapi.Routes[route]
	policy *Policy
	// endpoint is what links begin with, as https://compute.example.org; "" takes scheme and host
	// of the request.
	endpoint string
	// came makes the context of a request whose body has arrived.
	came func(context.Context) context.Context
}

// exchange is one request and its answer.
type exchange struct {
	osapi.Exchange
	service *Service

	route       *route
	version     Version
	path        *http.Request // has the values of the route's path
	pathProject string        // the project in the path, "" for none
	action      string        // the one that the body asks for, "" for none
}

// ctx ends when the client goes away.
func (x *exchange) ctx() context.Context { return x.R.Context() }

// query are the parameters of the request; what cannot be read is refused. A semicolon is a
// character like others, as in Nova.
func (x *exchange) query() (url.Values, error) {
	values, err := url.ParseQuery(strings.ReplaceAll(x.R.URL.RawQuery, ";", "%3B"))
	if err != nil {
		return nil, badRequest("The query of the request cannot be read: %s.", shortened(err.Error()))
	}
	return values, nil
}

// body is what the client sent.
func (x *exchange) body() ([]byte, error) {
	data, err := x.Body()
	x.R = x.R.WithContext(x.service.came(x.ctx()))
	return data, err
}

// json answers with a value as JSON.
func (x *exchange) json(status int, body any) error {
	data, err := encode(body)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if err := x.Hold(len(data)); err != nil {
		return err
	}
	x.W.Header().Set("Content-Type", "application/json")
	x.Send(status, data)
	return nil
}

// empty answers without a body: 204, or 202 as some actions do.
func (x *exchange) empty(status int) error {
	x.Send(status, nil)
	return nil
}

// header are those of the answer, to be set before it.
func (x *exchange) header() http.Header { return x.W.Header() }

// param is the value of a segment of the path, by its name in the route.
func (x *exchange) param(name string) string { return x.path.PathValue(name) }
