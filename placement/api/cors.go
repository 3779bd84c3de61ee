// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"slices"
	"strings"
)

// CORS lets pages of other origins use the API from a browser. The zero CORS lets none.
type CORS struct {
	// AllowedOrigins are origins such as "https://horizon.example.com", without a slash at the end; "*" is any.
	AllowedOrigins []string
	// AllowHeaders are the request headers that such pages may send, beside the simple ones.
	AllowHeaders []string
}

const (
	preflightAge  = "3600" // seconds a browser may remember a preflight
	originHeader  = "Origin"
	methodsHeader = "Access-Control-Request-Method"
	headersHeader = "Access-Control-Request-Headers"
)

var (
	corsMethods   = []string{"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PATCH"}
	simpleHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Cache-Control", "Content-Language", "Expires", "Last-Modified", "Pragma"}
)

func (c *CORS) enabled() bool { return len(c.AllowedOrigins) > 0 }

// allow adds the headers that let a page of the request's origin read the answer, if it may.
func (c *CORS) allow(h http.Header, r *http.Request) bool {
	origin := r.Header.Get(originHeader)
	if origin == "" {
		return false
	}
	h.Add("Vary", originHeader)
	switch {
	case slices.Contains(c.AllowedOrigins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
	case slices.Contains(c.AllowedOrigins, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		return false
	}
	return true
}

// preflight answers an OPTIONS request: 200, with the headers that permit what was asked for, or without.
func (c *CORS) preflight(h http.Header, r *http.Request) {
	method := r.Header.Get(methodsHeader)
	if !slices.Contains(corsMethods, method) {
		return
	}
	var asked []string
	for name := range strings.SplitSeq(r.Header.Get(headersHeader), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		same := func(known string) bool { return strings.EqualFold(known, name) }
		if !slices.ContainsFunc(c.AllowHeaders, same) && !slices.ContainsFunc(simpleHeaders, same) {
			return
		}
		asked = append(asked, name)
	}
	if !c.allow(h, r) {
		return
	}
	h.Set("Access-Control-Max-Age", preflightAge)
	h.Set("Access-Control-Allow-Methods", method)
	if len(asked) > 0 {
		h.Set("Access-Control-Allow-Headers", strings.Join(asked, ","))
	}
}
