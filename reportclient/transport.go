// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/wire"
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
	// Authorize puts into the headers of each request what proves who we are; nil sends nothing.
	Authorize func(ctx context.Context, headers http.Header) error
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
	base   *url.URL
	config Config
	client *retryablehttp.Client

	requests, writes atomic.Int64
}

func newTransport(cfg Config) (*transport, error) {
	base, err := url.Parse(strings.TrimRight(cfg.URL, "/"))
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("placement url %q: must be http://HOST:PORT[/PATH] or the same with https", cfg.URL)
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
	t := &transport{base: base, config: cfg, client: client}
	client.RequestLogHook = t.count
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
		return unsent(err) || read, nil
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

// unsent reports whether a request failed before any connection was there to send it on.
func unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || (errors.As(err, &op) && op.Op == "dial")
}

// do sends a request with a JSON body (nil: none) and decodes a 2xx answer into out (nil: ignored).
func (t *transport) do(ctx context.Context, method, path string, body, out any) error {
	failed := &RequestError{Method: method, Path: path, RequestID: "req-" + uuid.NewString()}
	var payload any // nil, and not an empty slice: a request without a body says so
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: encoding the body: %w", method, path, err)
		}
		payload = encoded
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, t.base.String()+path, payload)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := t.setHeaders(ctx, req.Request, body != nil, failed.RequestID); err != nil {
		failed.Kind, failed.Cause, failed.Detail, failed.Unsent = ErrRefused, err, err.Error(), true
		return failed
	}
	start := t.now()
	resp, err := t.client.Do(req)
	if err != nil {
		failed.Kind, failed.Cause, failed.Detail, failed.Unsent = ErrUnavailable, err, plain(err), unsent(err)
		t.log(failed, t.now().Sub(start))
		return failed
	}
	defer func() { _ = resp.Body.Close() }()
	failed.Status = resp.StatusCode
	failed.ServerRequestID = resp.Header.Get("X-Openstack-Request-Id")
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		failed.Kind, failed.Cause, failed.Detail = ErrUnavailable, err, "the answer broke off: "+plain(err)
	case len(content) > maxBody:
		failed.Kind, failed.Detail = ErrUnexpected, fmt.Sprintf("the answer is longer than %d MiB", maxBody>>20)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		failed.refuse(content)
	default:
		if err := decode(resp.StatusCode, content, out); err != nil {
			failed.Kind, failed.Cause, failed.Detail = ErrUnexpected, err, err.Error()
		}
	}
	t.log(failed, t.now().Sub(start))
	if failed.Kind != nil {
		return failed
	}
	return nil
}

// knock opens a connection to Placement and closes it: no request, but an answer to whether anybody is there.
func (t *transport) knock(ctx context.Context) error {
	if t.config.Dial == nil {
		return nil
	}
	port := t.base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[t.base.Scheme]
	}
	ctx, cancel := context.WithTimeout(ctx, t.config.Timeout)
	defer cancel()
	conn, err := t.config.Dial(ctx, "tcp", net.JoinHostPort(t.base.Hostname(), port))
	if err != nil {
		return &RequestError{Method: "CONNECT", Path: t.base.Host, Kind: ErrUnavailable, Cause: err, Detail: err.Error()}
	}
	return conn.Close()
}

func (t *transport) setHeaders(ctx context.Context, req *http.Request, hasBody bool, requestID string) error {
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OpenStack-API-Version", "placement "+Microversion)
	req.Header.Set("X-Openstack-Request-Id", requestID)
	req.Header.Set("User-Agent", "compute-agent")
	if hasBody {
		req.Header.Set("Content-Type", "application/json")
	}
	if t.config.Authorize == nil {
		return nil
	}
	if err := t.config.Authorize(ctx, req.Header); err != nil {
		return fmt.Errorf("nothing to prove to placement who we are: %w", err)
	}
	return nil
}

func (t *transport) log(r *RequestError, took time.Duration) {
	e := t.config.Logger.Debug().Str("method", r.Method).Str("path", r.Path).Int("status", r.Status).
		Str("request_id", r.RequestID).Dur("took", took)
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

// refuse sorts an answer that is not 2xx.
func (e *RequestError) refuse(content []byte) {
	var answer wire.ErrorBody
	if json.Unmarshal(content, &answer) == nil && len(answer.Errors) > 0 {
		e.Code, e.Detail = string(answer.Errors[0].Code), strings.Join(strings.Fields(answer.Errors[0].Detail), " ")
	} else {
		e.Detail = excerpt(content)
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge:
		e.Kind = ErrInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Kind = ErrRefused
	case http.StatusNotFound:
		e.Kind = ErrNotFound
	case http.StatusNotAcceptable:
		e.Kind = ErrTooOld
	case http.StatusConflict:
		e.Kind = conflictKind(e.Code)
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		e.Kind = ErrUnavailable
	default:
		e.Kind = ErrUnexpected
		if e.Status >= http.StatusInternalServerError {
			e.Kind = ErrUnavailable
		}
	}
}

func conflictKind(code string) error {
	switch wire.ErrorCode(code) {
	case wire.CodeInventoryInUse:
		return ErrInventoryInUse
	case wire.CodeDuplicateName:
		return ErrDuplicate
	case wire.CodeProviderInUse, wire.CodeCannotDeleteParent:
		return ErrProviderInUse
	}
	return ErrConflict
}

func decode(status int, content []byte, out any) error {
	switch out.(type) {
	case nil:
		return nil
	case noContent:
		if status != http.StatusNoContent {
			return fmt.Errorf("the answer has status %d, and done is only 204: %s", status, excerpt(content))
		}
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("the answer cannot be read: %w: %s", err, excerpt(content))
	}
	return nil
}

// excerpt makes a line of log from whatever came instead of an answer.
func excerpt(content []byte) string {
	const most = 200
	text := string(bytes.ToValidUTF8(content, []byte("?")))
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return text
}

// plain takes the wrapping off a transport's error that repeats method and URL.
func plain(err error) string {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err.Error()
	}
	return err.Error()
}
