// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/request"
)

// Microversion is what every request asks for: 1.37 is the newest whose allocations can be read and written back as they
// are (1.38 wants a consumer type that older consumers do not have), and the first that lets a provider move.
const Microversion = "1.37"

// maxBody bounds what is read of any answer: a tree of 10,000 providers lists in about 5 MiB.
const maxBody = 64 << 20

// Config says how to reach Placement.
type Config struct {
	// URL is the service's endpoint, http or https, with the path prefix if it has one.
	URL string
	// Endpoint is asked for the endpoint before each request, in place of URL: one that a catalogue names comes late, and may
	// move. It must be cheap once it has answered, and give the last answer while it cannot get a new one. A different answer
	// has the client look anew at what it reaches there. Its errors are judged as those of Authorize.
	Endpoint func(ctx context.Context) (string, error)
	// Authorize puts into the headers of each request what proves who we are; nil sends nothing. An error that wraps
	// [ErrUnavailable] says that it may work later, any other that it will not.
	Authorize func(ctx context.Context, headers http.Header) error
	// Reauthorize is called when Placement answers 401, with the headers that it refused. If it returns nil, Authorize gives a
	// new proof, and the request is sent once more: one that is answered 401 was not carried out. Requests that run at
	// the same time may each call it for the same proof. Nil: a 401 is an error at once.
	Reauthorize func(ctx context.Context, refused http.Header) error
	// Observe, if set, is called before each request is sent, and what it returns when the answer was read: status is 0 if
	// none came. A request that is sent once more after a 401 is another one; the tries of Retries are not. It may set headers,
	// such as traceparent. The route is the path with what varies replaced, such as "/resource_providers/{uuid}/inventories".
	Observe func(ctx context.Context, req *http.Request, route string) (done func(status int, err error))
	// Transport carries the requests: an *http.Transport set up with TLS and timeouts, or placement.Direct.
	Transport http.RoundTripper
	// Dial, if set, connects to Placement when a pass needs nothing else of it, so that an outage is noticed before
	// something has to be written: see [Client.Tree]. Leave it nil where the URL's host is not who is connected to (a proxy).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds each try of a request. Zero: 30 s.
	Timeout time.Duration
	// Retries is how often a request is tried again whose repetition is safe: reads, and writes that did not leave this
	// machine. A Placement that is down for longer is the tracker's business.
	Retries int
	// RefreshInterval is how long a tree is believed without looking. Zero: for ever.
	RefreshInterval time.Duration
	// Now and Jitter (0 <= x < 1) are the clock and the dice. Nil: the real ones.
	Now    func() time.Time
	Jitter func() float64
	// ReshapeLog is told of each reshape before it is posted and after. Nil: nobody is.
	ReshapeLog ReshapeLog
	// Logger takes a line for each request at debug level.
	Logger zerolog.Logger
}

// transport sends one request and reads its answer, or says what went wrong.
type transport struct {
	base     atomic.Pointer[url.URL] // the last endpoint; never nil if Config.Endpoint is
	config   Config
	client   *retryablehttp.Client
	unspoken func() // called when a server does not speak our microversion (any more)

	requests, writes atomic.Int64
}

func newTransport(cfg Config) (*transport, error) {
	t := &transport{unspoken: func() {}}
	if cfg.Endpoint == nil {
		base, err := parseEndpoint(cfg.URL)
		if err != nil {
			return nil, err
		}
		t.base.Store(base)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{
		Transport: cfg.Transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.RetryMax = cfg.Retries
	client.RetryWaitMin, client.RetryWaitMax = 200*time.Millisecond, 2*time.Second
	client.Backoff = retryablehttp.RateLimitLinearJitterBackoff
	client.CheckRetry = safeToRepeat
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.Logger = nil
	client.RequestLogHook = t.count
	t.config, t.client = cfg, client
	return t, nil
}

// count counts every try of every request.
func (t *transport) count(_ retryablehttp.Logger, req *http.Request, _ int) {
	t.requests.Add(1)
	if req.Method != http.MethodGet {
		t.writes.Add(1)
	}
}

// safeToRepeat allows another try for reads that failed on the way or met an overloaded server, and for any request that
// never reached a server. A write whose answer was lost is never sent again: it may have happened.
func safeToRepeat(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var urlErr *url.Error
		read := errors.As(err, &urlErr) && urlErr.Op == "Get" && !urlErr.Timeout() // a server that hangs hangs the next time too
		return request.Unsent(err) || read, nil
	}
	if resp.Request == nil || resp.Request.Method != http.MethodGet {
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}

// do sends a request with a JSON body (nil: none) and decodes a 2xx answer into out (nil: ignored). One that is refused for
// want of a valid proof of who we are is sent once more with a new one.
func (t *transport) do(ctx context.Context, method, path string, body, out any) error {
	var payload any // nil, and not an empty slice: a request without a body says so
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: encoding the body: %w", method, path, err)
		}
		payload = encoded
	}
	refused, failed := t.send(ctx, method, path, payload, out)
	if failed != nil && failed.Status == http.StatusUnauthorized && t.config.Reauthorize != nil {
		if err := t.config.Reauthorize(ctx, refused); err != nil {
			failed.Kind, failed.Cause, failed.Detail = &unproven{err}, err, err.Error()
			return failed
		}
		_, failed = t.send(ctx, method, path, payload, out)
	}
	if failed != nil {
		return failed
	}
	return nil
}

// send does it once, and returns the headers that went out.
func (t *transport) send(ctx context.Context, method, path string, payload, out any) (http.Header, *RequestError) {
	failed := request.New(method, path)
	req, err := t.request(ctx, method, path, payload, failed.RequestID)
	if err != nil {
		failed.Kind, failed.Cause, failed.Detail, failed.Unsent = &unproven{err}, err, err.Error(), true
		return nil, failed
	}
	observed := func(int, error) {}
	if t.config.Observe != nil {
		observed = t.config.Observe(ctx, req.Request, route(path))
	}
	start := t.now()
	t.exchange(req, out, failed)
	t.log(failed, t.now().Sub(start))
	if failed.Kind == nil {
		observed(failed.Status, nil)
		return req.Header, nil
	}
	observed(failed.Status, failed)
	if failed.Status == http.StatusNotAcceptable {
		t.unspoken()
	}
	return req.Header, failed
}

// request makes a request with all its headers.
func (t *transport) request(ctx context.Context, method, path string, payload any, requestID string) (*retryablehttp.Request, error) {
	// The proof comes first: where the endpoint is comes with it.
	headers := http.Header{}
	if t.config.Authorize != nil {
		if err := t.config.Authorize(ctx, headers); err != nil {
			return nil, err
		}
	}
	base, err := t.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, base.String()+path, payload)
	if err != nil {
		return nil, err
	}
	req.Header = headers
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-Openstack-Request-Id", requestID)
	req.Header.Set("User-Agent", "compute-agent")
	if path != "/" { // a server that does not speak it is to say so, and not to refuse the question what it speaks
		req.Header.Set("OpenStack-API-Version", "placement "+Microversion)
	}
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// exchange sends the request and notes in failed what came of it; failed.Kind stays nil if all went well.
func (t *transport) exchange(req *retryablehttp.Request, out any, failed *RequestError) {
	resp, err := t.client.Do(req)
	if err != nil {
		failed.Unanswered(err)
		failed.Kind = ErrUnavailable
		return
	}
	defer func() { _ = resp.Body.Close() }()
	failed.Status = resp.StatusCode
	failed.ServerRequestID = resp.Header.Get("X-Openstack-Request-Id")
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		failed.BrokeOff(err)
		failed.Kind = ErrUnavailable
	case len(content) > maxBody:
		failed.Kind, failed.Detail = ErrUnexpected, fmt.Sprintf("the answer is longer than %d MiB", maxBody>>20)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		refuse(failed, content)
	default:
		if err := decode(resp.StatusCode, content, out); err != nil {
			failed.Kind, failed.Cause, failed.Detail = ErrUnexpected, err, err.Error()
		}
		if h, ok := out.(headed); ok {
			h.readHeader(resp.Header)
		}
	}
}

// headed is an answer whose headers say something, too.
type headed interface{ readHeader(http.Header) }

func (t *transport) log(r *RequestError, took time.Duration) {
	e := t.config.Logger.Debug().Str("method", r.Method).Str("path", r.Path).Int("status", r.Status).
		Str("request_id", r.RequestID).Str("server_request_id", r.ServerRequestID).Dur("took", took)
	if r.Kind != nil {
		e = e.Err(r)
	}
	e.Msg("Placement was asked.")
}

func (t *transport) now() time.Time {
	if t.config.Now != nil {
		return t.config.Now()
	}
	return time.Now()
}
