// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// HeaderComputeRequestID is Nova's own header for the id of a request, beside that of all services.
const HeaderComputeRequestID = "X-Compute-Request-Id"

// Service is what all requests of the API share.
type Service struct {
	*osapi.Service
	Routes *osapi.Routes[Route]
	Policy *Policy
	// Endpoint is what links begin with, as https://compute.example.org; "" takes scheme and host
	// of the request.
	Endpoint string
	// Came makes the context of a request whose body has arrived.
	Came func(context.Context) context.Context
}

// Exchange is one request and its answer.
type Exchange struct {
	osapi.Exchange
	Service *Service
	// Version is what the client asks for.
	Version Version
	// Asked is the body, and Params are the parameters, of a route that says what they have to be.
	Asked  *jsonkit.Object
	Params Query
	// Action is the one that the body asks for, "" for none.
	Action string

	route       *Route
	path        *http.Request // has the values of the route's path
	pathProject string        // the project in the path, "" for none
}

// Context ends when the client goes away.
func (x *Exchange) Context() context.Context { return x.R.Context() }

// Values are the parameters of the request; what cannot be read is refused. A semicolon is a
// character like others, as in Nova.
func (x *Exchange) Values() (url.Values, error) {
	values, err := url.ParseQuery(strings.ReplaceAll(x.R.URL.RawQuery, ";", "%3B"))
	if err != nil {
		return nil, osapi.BadRequest("The query of the request cannot be read: %s.", osapi.Shortened(err.Error()))
	}
	return values, nil
}

// body is what the client sent.
func (x *Exchange) body() ([]byte, error) {
	data, err := x.Body()
	x.R = x.R.WithContext(x.Service.Came(x.Context()))
	return data, err
}

// JSON answers with a value as JSON.
func (x *Exchange) JSON(status int, body any) error {
	data, err := encode(body)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if err := x.ReserveMemory(len(data)); err != nil {
		return err
	}
	x.W.Header().Set("Content-Type", "application/json")
	x.Send(status, data)
	return nil
}

// Empty answers without a body: 204, or 202 as some actions do.
func (x *Exchange) Empty(status int) error {
	x.Send(status, nil)
	return nil
}

// Header returns the headers of the answer, to be set before it.
func (x *Exchange) Header() http.Header { return x.W.Header() }

// Param is the value of a segment of the path, by its name in the route.
func (x *Exchange) Param(name string) string { return x.path.PathValue(name) }

// The roles in Nova's policies.
const (
	roleAdmin  = "admin"
	roleMember = "member"
	roleReader = "reader"
)

// identify finds out who sends the request. As in Keystone, the role admin implies member, and
// member implies reader. Who is only believed (osapi.NoAuth) and names no role, in X-Roles or as a
// third part of the token USER:PROJECT:ROLES, is a member of the project, as with Nova's noauth2.
func (x *Exchange) identify() error {
	if err := x.Authenticate(); err != nil {
		return err
	}
	who := &x.Caller
	if who.Host != nil {
		return osapi.Errorf(http.StatusForbidden,
			"The compute API has no calls for hosts, and the token is that of host %s.", who.Host.Name)
	}
	roles := slices.Clone(who.Roles)
	if _, believed := x.Service.Authenticator.(osapi.NoAuth); believed && len(x.R.Header[osapi.HeaderRoles]) == 0 {
		project, named, _ := strings.Cut(who.Project, ":")
		who.Project = project
		switch {
		case named != "":
			roles = strings.Split(strings.ToLower(named), ",")
		case len(roles) == 0:
			roles = append(roles, roleMember)
		}
	}
	if slices.Contains(roles, roleAdmin) && !slices.Contains(roles, roleMember) {
		roles = append(roles, roleMember)
	}
	if slices.Contains(roles, roleMember) && !slices.Contains(roles, roleReader) {
		roles = append(roles, roleReader)
	}
	who.Roles = roles
	return nil
}
