// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// defaultTimeout bounds a try where the configuration says nothing.
const defaultTimeout = 30 * time.Second

// Config says how to reach Placement.
type Config struct {
	// URL is the service's endpoint, http or https, with the path prefix if it has one.
	URL string
	// Endpoint is asked for the endpoint before each request, in place of URL: one that a catalog
	// names comes late, and may move. It must be cheap once it has answered, and give the last
	// answer while it cannot get a new one. Its errors are treated as those of Authorize.
	Endpoint func(ctx context.Context) (string, error)
	// Authorize puts into the headers of each request what proves who we are; nil sends nothing. An
	// error that wraps [ErrUnavailable], or has a method Temporary that returns true, may be gone
	// later; any other stays until someone fixes it.
	Authorize func(ctx context.Context, headers http.Header) error
	// Reauthorize is called when Placement answers 401, with the headers that it refused. If it
	// returns nil, Authorize gives a new proof, and the request is sent once more: one that is
	// answered 401 was not carried out. Requests that run at the same time may each call it for the
	// same proof. Nil: a 401 is an error at once.
	Reauthorize func(ctx context.Context, refused http.Header) error
	// Observe, if set, is called before each request is sent, and what it returns when the answer
	// was read: status is 0 if none came. A request that is sent once more after a 401 is another
	// one; the tries of Retries are not. It may set headers, such as traceparent. The route is the
	// path with what varies replaced, such as "/resource_providers/{uuid}/inventories".
	Observe func(ctx context.Context, req *http.Request, route string) (done func(status int, err error))
	// RequestID, if set, returns the id of the request that a request is sent for, under which
	// Placement logs it; "": none, and it gets one of its own.
	RequestID func(ctx context.Context) string
	// Transport carries the requests: an *http.Transport set up with TLS and timeouts, or
	// placement.Direct. Nil: http.DefaultTransport.
	Transport http.RoundTripper
	// Dial, if set, makes the connection of a [Client.Probe]. Leave it nil where the URL's host is
	// not who is connected to (a proxy).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds each try of a request, its answer included. Zero: 30 s.
	Timeout time.Duration
	// Retries is how often a request is tried again whose repetition is safe.
	Retries int
	// Microversion is what every request asks for that does not say otherwise, such as "1.37". It
	// is required: a Placement that has all that the caller needs may be older than the newest
	// microversion that this program knows, and would refuse it.
	Microversion string
	// Now is the clock. Nil: the real one.
	Now func() time.Time
	// Logger takes a line for each request at debug level.
	Logger zerolog.Logger
}

// Client sends requests to one Placement. Its methods may be called from several goroutines.
type Client struct {
	config  Config
	http    *retryablehttp.Client
	base    atomic.Pointer[url.URL] // the last endpoint; never nil without Config.Endpoint
	checked atomic.Pointer[string]  // the endpoint whose microversions were found good

	requests, writes atomic.Int64
}

// New checks the configuration and returns a client. It makes no request: Placement may come up
// later.
func New(cfg Config) (*Client, error) {
	c := &Client{}
	if cfg.Endpoint == nil {
		base, err := parseEndpoint(cfg.URL)
		if err != nil {
			return nil, err
		}
		c.base.Store(base)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Microversion == "" {
		return nil, errors.New("the client of Placement has no microversion")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c.config, c.http = cfg, newRetrying(cfg)
	c.http.RequestLogHook = c.count
	return c, nil
}

// count counts every try of every request.
func (c *Client) count(_ retryablehttp.Logger, req *http.Request, _ int) {
	c.requests.Add(1)
	if req.Method != http.MethodGet {
		c.writes.Add(1)
	}
}

// Requests returns how many requests were sent so far, each try counted, and how many of them were
// writes.
func (c *Client) Requests() (all, writes int64) { return c.requests.Load(), c.writes.Load() }

// Timeout is how long one try of a request may take.
func (c *Client) Timeout() time.Duration { return c.config.Timeout }

// CloseIdle closes the idle connections; the client stays usable.
func (c *Client) CloseIdle() { c.http.HTTPClient.CloseIdleConnections() }

// MaxRetryAfter is the longest Retry-After that is waited for within one call.
const MaxRetryAfter = 10 * time.Second

// newRetrying makes the HTTP client. It follows no redirect: credentials go only where they were
// meant to go.
func newRetrying(cfg Config) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{
		Transport: cfg.Transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.RetryMax = cfg.Retries
	client.RetryWaitMin, client.RetryWaitMax = 200*time.Millisecond, 2*time.Second
	client.Backoff = retryablehttp.RateLimitLinearJitterBackoff // heeds Retry-After
	client.CheckRetry = safeToRepeat
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.Logger = nil
	return client
}

// safeToRepeat allows another try for reads that failed on the way or met an overloaded server, and
// for any request that never reached a server, or that Placement itself answered with 429: it was
// not carried out. A write whose answer was lost is never sent again: it may have happened.
func safeToRepeat(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var urlErr *url.Error
		// a server that hangs hangs the next time too
		read := errors.As(err, &urlErr) && urlErr.Op == "Get" && !urlErr.Timeout()
		return unsent(err) || read, nil
	}
	limited := resp.StatusCode == http.StatusTooManyRequests && byPlacement(resp)
	if !limited && (resp.Request == nil || resp.Request.Method != http.MethodGet) {
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return worthWaiting(ctx, retryAfter(resp)), nil
	}
	return false, nil
}

// byPlacement reports whether an answer is of Placement itself, and not of what is before it:
// Placement says its microversion.
func byPlacement(resp *http.Response) bool { return resp.Header.Get(wire.HeaderVersion) != "" }

// retryAfter is the pause that an answer asks for; 0 if it asks for none.
func retryAfter(resp *http.Response) time.Duration {
	return retryablehttp.RateLimitLinearJitterBackoff(0, 0, 0, resp)
}

// worthWaiting reports whether a pause is short enough to be spent within the call.
func worthWaiting(ctx context.Context, pause time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return pause >= 0 && pause <= MaxRetryAfter && (!bounded || pause < time.Until(deadline))
}
