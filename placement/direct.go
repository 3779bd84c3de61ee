// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Direct is a Placement service without a socket: an http.RoundTripper whose requests the
// service answers in the goroutine that sends them. Whatever the URL of a request says besides its
// path and query does not matter.
type Direct struct {
	server *Server
	closed atomic.Bool
}

// directPrincipal is who every request through Direct comes from.
var directPrincipal = osapi.Principal{User: "compute-agent", Project: "service", Roles: []string{"service"}}

// NewDirect opens a Placement service in this process. It is the service that New makes, but that
// every request comes from a service user, whatever token it carries, and that no answer is stale.
// Close it when done.
func NewDirect(ctx context.Context, cfg Config) (*Direct, error) {
	cfg.Auth = Auth{Authenticator: osapi.Fixed{Principal: directPrincipal}}
	cfg.StaleReads = 0 // what is read here is written
	server, err := assemble(ctx, cfg, nil)
	if err != nil {
		return nil, err
	}
	return &Direct{server: server}, nil
}

// RoundTrip answers one request. As with any transport, an answer with an error status is no error;
// the only errors are that the context of the request ended, or that the service is closed.
func (d *Direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }() // RoundTrip must close it; what could fail has been read.
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("%s %s: the Placement service in this process is closed", req.Method, req.URL.Path)
	}
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	served := req.Clone(ctx)
	served.Body = req.Body
	if served.Body == nil {
		served.Body = http.NoBody
	}
	if served.Host == "" {
		served.Host = req.URL.Host
	}
	served.RequestURI, served.RemoteAddr = req.URL.RequestURI(), "direct"
	answer := answer{header: http.Header{}, status: http.StatusOK}
	d.server.Handler().ServeHTTP(&answer, served)
	if err := ctx.Err(); err != nil && answer.status >= http.StatusInternalServerError {
		return nil, err
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", answer.status, http.StatusText(answer.status)),
		StatusCode:    answer.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        answer.header,
		Body:          io.NopCloser(&answer.body),
		ContentLength: int64(answer.body.Len()),
		Request:       req,
	}, nil
}

// Close closes the service. Requests fail from then on.
func (d *Direct) Close() error {
	d.closed.Store(true)
	return d.server.Close()
}

// answer is the http.ResponseWriter of a request that never goes over a network.
type answer struct {
	header http.Header
	body   bytes.Buffer
	status int
	began  bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.began {
		a.status, a.began = status, true
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.began = true
	return a.body.Write(b)
}
