// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Service is one side of the comparison.
type Service interface {
	// Do sends a request and returns whatever is answered.
	Do(ctx context.Context, r Request) (Answer, error)
	// Reset empties the service: no providers, no consumers, no custom names.
	Reset(ctx context.Context) error
}

func (r *Request) http(ctx context.Context, base string) (*http.Request, error) {
	var body io.Reader
	if r.HasBody {
		body = strings.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, base+r.Target, body)
	if err != nil {
		return nil, fmt.Errorf("make the request %s %s: %w", r.Method, r.Target, err)
	}
	req.Header = r.Header.Clone()
	return req, nil
}

// Ours is the bundled Placement, in this process.
type Ours struct {
	database string // a DSN
	empty    func()
	server   *placement.Server
}

// NewOurs makes an empty service on a database, given as a DSN, that empty empties.
func NewOurs(ctx context.Context, database string, empty func()) (*Ours, error) {
	o := &Ours{database: database, empty: empty}
	return o, o.Reset(ctx)
}

// Do asks the HTTP handler.
func (o *Ours) Do(ctx context.Context, r Request) (Answer, error) {
	req, err := r.http(ctx, "http://ours")
	if err != nil {
		return Answer{}, err
	}
	if req.Body == nil {
		req.Body = http.NoBody
	}
	req.RequestURI, req.RemoteAddr = r.Target, "127.0.0.1:1"
	recorder := httptest.NewRecorder()
	o.server.Handler().ServeHTTP(recorder, req)
	answer := Answer{Status: recorder.Code, Header: recorder.Header(), Body: recorder.Body.String()}
	answer.local()
	return answer, nil
}

// Reset begins with an empty database.
func (o *Ours) Reset(ctx context.Context) error {
	err := o.Close()
	if err != nil {
		return err
	}
	o.empty()
	o.server, err = placement.New(ctx, placement.Config{
		Database: o.database,
		Auth:     placement.Auth{Strategy: placement.NoAuth},
		Policy:   api.Legacy,
		Logger:   zerolog.Nop(),
	})
	if err != nil {
		return fmt.Errorf("start the bundled Placement: %w", err)
	}
	return nil
}

// Close ends the service.
func (o *Ours) Close() error {
	if o.server == nil {
		return nil
	}
	server := o.server
	o.server = nil
	if err := server.Close(); err != nil {
		return fmt.Errorf("stop the bundled Placement: %w", err)
	}
	return nil
}

// Real is OpenStack's Placement, in a process of its own.
type Real struct {
	server *testproc.Placement
	client *http.Client
}

// NewReal starts an empty service that lives until the test ends; see testproc.StartPlacement for
// what happens without it.
func NewReal(t testing.TB) *Real {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	return &Real{server: testproc.StartPlacement(t), client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do sends the request over loopback.
func (r *Real) Do(ctx context.Context, request Request) (Answer, error) {
	req, err := request.http(ctx, r.server.URL)
	if err != nil {
		return Answer{}, err
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "oracle")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("ask the real Placement: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return Answer{}, fmt.Errorf("read the answer of the real Placement to %s %s: %w",
			request.Method, request.Target, err)
	}
	answer := Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
	answer.local()
	return answer, nil
}

// Reset empties the tables.
func (r *Real) Reset(ctx context.Context) error { return r.server.Reset(ctx) }

// local takes scheme and host off the Location header: each service has its own.
func (a *Answer) local() {
	location := a.Header.Get("Location")
	if u, err := url.Parse(location); err == nil && u.IsAbs() {
		a.Header.Set("Location", u.RequestURI())
	}
}
