// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CORS allows pages of other origins to use the API from a browser, with the options and the
// behavior of oslo.middleware, which Placement uses. The zero CORS allows none.
type CORS struct {
	// AllowedOrigins are origins such as "https://horizon.example.com", without a slash at the end;
	// "*" is any.
	AllowedOrigins []string
	// AllowHeaders are the request headers that such pages may send, beside the simple ones.
	AllowHeaders []string
	// AllowMethods are the methods that such pages may use; CORSMethods when empty.
	AllowMethods []string
	// ExposeHeaders are the headers of an answer that such pages may read, beside the simple ones.
	ExposeHeaders []string
	// MaxAge is how long a browser may cache the answer to a preflight. 0 is CORSMaxAge; a negative
	// one is not sent, and browsers cache it for some seconds.
	MaxAge time.Duration
	// WithoutCredentials keeps browsers from sending cookies and client certificates. They never
	// send them to "*".
	WithoutCredentials bool
}

// CORSMaxAge is the default of CORS.MaxAge.
const CORSMaxAge = time.Hour

// CORSMethods is Placement's default of CORS.AllowMethods.
var CORSMethods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodPatch}

const (
	originHeader  = "Origin"
	methodsHeader = "Access-Control-Request-Method"
	headersHeader = "Access-Control-Request-Headers"
)

var simpleHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Cache-Control", "Content-Language",
	"Expires", "Last-Modified", "Pragma"}

func (c *CORS) enabled() bool { return len(c.AllowedOrigins) > 0 }

// allow adds the headers that allow a page of the request's origin to read the answer.
func (c *CORS) allow(h http.Header, r *http.Request) {
	if c.allowOrigin(h, r) && len(c.ExposeHeaders) > 0 {
		h.Set("Access-Control-Expose-Headers", strings.Join(c.ExposeHeaders, ","))
	}
}

// allowOrigin adds the headers that preflights and requests share, and reports whether the origin
// is allowed.
func (c *CORS) allowOrigin(h http.Header, r *http.Request) bool {
	origin := r.Header.Get(originHeader)
	if origin == "" {
		return false
	}
	h.Add("Vary", originHeader)
	switch {
	case slices.Contains(c.AllowedOrigins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		if !c.WithoutCredentials {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
	case slices.Contains(c.AllowedOrigins, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		return false
	}
	return true
}

// preflight answers an OPTIONS request: 200, with or without the headers that permit the request.
func (c *CORS) preflight(h http.Header, r *http.Request) {
	method := r.Header.Get(methodsHeader)
	methods := c.AllowMethods
	if len(methods) == 0 {
		methods = CORSMethods
	}
	if !slices.Contains(methods, method) {
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
	if !c.allowOrigin(h, r) {
		return
	}
	age := c.MaxAge
	if age == 0 {
		age = CORSMaxAge
	}
	if age > 0 {
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(age/time.Second)))
	}
	h.Set("Access-Control-Allow-Methods", method)
	if len(asked) > 0 {
		h.Set("Access-Control-Allow-Headers", strings.Join(asked, ","))
	}
}
