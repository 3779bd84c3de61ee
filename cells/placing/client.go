// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compute-agent/compute-agent/placement/request"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Microversion is what every request asks for: candidates with mappings, root_required and same_subtree (1.36), and consumer
// types (1.38). Only a request that needs an extension asks for another one: see [Client.Check].
const Microversion = "1.38"

// ConsumerType is the consumer type of a server, as Nova has it.
const ConsumerType = "INSTANCE"

// maxBody bounds what is read of an answer: 1,000 candidates of trees of 20 providers are about 8 MiB.
const maxBody = 64 << 20

// Config says how to reach Placement. The functions are those of an internal/access.Access.
type Config struct {
	// Endpoint is where Placement is, http or https; it is asked before each request and must be cheap.
	Endpoint func(ctx context.Context) (string, error)
	// Authorize puts into the headers of each request what proves who we are; nil sends nothing.
	Authorize func(ctx context.Context, headers http.Header) error
	// Reauthorize is called when Placement answers 401, with the headers that it refused; if it returns nil, the request is sent
	// once more. Nil: a 401 is an error at once.
	Reauthorize func(ctx context.Context, refused http.Header) error
	// Transport carries the requests; nil is http.DefaultTransport.
	Transport http.RoundTripper
	// Timeout bounds each request, its answer included. Zero: 30 s.
	Timeout time.Duration
}

// Client asks one Placement. Its methods may be called from several goroutines.
type Client struct {
	config   Config
	http     *http.Client
	requests atomic.Int64
	// optionalPolicy: the last request that needed it was granted the extension group_policy.
	optionalPolicy atomic.Bool
}

// New returns a client. It makes no request.
func New(cfg Config) (*Client, error) {
	if cfg.Endpoint == nil {
		return nil, errors.New("placing: Config.Endpoint is missing: where is Placement?")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Client{config: cfg, http: &http.Client{
		Transport:     cfg.Transport,
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Requests is how many requests were sent so far.
func (c *Client) Requests() int64 { return c.requests.Load() }

// Timeout is how long a request may take.
func (c *Client) Timeout() time.Duration { return c.config.Timeout }

// CloseIdle gives up the idle connections; the client stays usable.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// call is one request, and what its answer says beside the body.
type call struct {
	method, path string
	query        url.Values
	payload      []byte // JSON; nil: no body
	out          any    // the answer is decoded into it; nil: it must be 204
	version      string // microversion
	extension    string // of the bundled Placement; "": none is asked for

	granted []string // values of the header Placement-Extensions of the answer
}

// do sends a request with a JSON body (nil: none) and decodes the answer into out (nil: it must be 204).
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body, out any) error {
	q := &call{method: method, path: path, query: query, out: out, version: Microversion}
	if body != nil {
		var err error
		if q.payload, err = json.Marshal(body); err != nil {
			return fmt.Errorf("%s %s: encoding the body: %w", method, path, err)
		}
	}
	if failed := c.carry(ctx, q); failed != nil {
		return failed
	}
	return nil
}

// carry sends a request. One that is refused for want of a valid proof of who we are was not
// carried out, and is sent once more with a new one.
func (c *Client) carry(ctx context.Context, q *call) *RequestError {
	refused, failed := c.send(ctx, q)
	if failed != nil && failed.Status == http.StatusUnauthorized && c.config.Reauthorize != nil {
		if err := c.config.Reauthorize(ctx, refused); err != nil {
			failed.Cause, failed.Detail = err, err.Error()
			return failed
		}
		_, failed = c.send(ctx, q)
	}
	return failed
}

// answer is what says of itself whether it has all that Placement's always have. One that has not, as {}, would say that there is nothing: no
// host for a server, or none of the allocations that are to be removed.
type answer interface{ complete() bool }

// send does it once, and returns the headers that went out.
func (c *Client) send(ctx context.Context, q *call) (http.Header, *RequestError) {
	failed := request.New(q.method, q.path)
	req, err := c.request(ctx, q, failed.RequestID)
	if err != nil {
		failed.Kind, failed.Cause, failed.Detail = ErrRefused, err, err.Error()
		if ctx.Err() != nil {
			failed.Kind = ErrUnavailable
		}
		return nil, failed
	}
	c.requests.Add(1)
	resp, err := c.http.Do(req)
	if err != nil {
		failed.Unanswered(err)
		failed.Kind = lost(q.method)
		if failed.Unsent {
			failed.Kind = ErrUnavailable
		}
		return req.Header, failed
	}
	defer func() { _ = resp.Body.Close() }()
	failed.Status, q.granted = resp.StatusCode, resp.Header[wire.HeaderExtensions]
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		refuse(failed, content) // the status says it, also without the rest of the text
	case err != nil:
		failed.BrokeOff(err)
		failed.Kind = lost(q.method)
	case len(content) > maxBody:
		failed.Kind, failed.Detail = ErrUnexpected, fmt.Sprintf("the answer is longer than %d MiB", maxBody>>20)
		if q.method != http.MethodGet {
			failed.Kind = ErrOutcomeUnknown
		}
	case q.out == nil && resp.StatusCode != http.StatusNoContent:
		failed.Kind, failed.Detail = ErrOutcomeUnknown, "done is only 204, and it says: "+request.Excerpt(content)
	case q.out != nil:
		if err := json.Unmarshal(content, q.out); err != nil {
			failed.Kind, failed.Cause, failed.Detail = ErrUnexpected, err, "the answer cannot be read: "+request.Excerpt(content)
		} else if a, is := q.out.(answer); is && !a.complete() {
			failed.Kind, failed.Detail = ErrUnexpected, "the answer is not Placement's: "+request.Excerpt(content)
		}
	}
	if failed.Kind != nil {
		return req.Header, failed
	}
	return req.Header, nil
}

func (c *Client) request(ctx context.Context, q *call, requestID string) (*http.Request, error) {
	headers := http.Header{}
	if c.config.Authorize != nil {
		if err := c.config.Authorize(ctx, headers); err != nil {
			return nil, fmt.Errorf("proving who we are: %w", err)
		}
	}
	base, err := c.config.Endpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("where Placement is: %w", err)
	}
	address := strings.TrimRight(base, "/") + q.path
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	var body io.Reader = http.NoBody
	if q.payload != nil {
		body = bytes.NewReader(q.payload)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, address, body)
	if err != nil {
		return nil, err
	}
	req.Header = headers
	req.Header.Set("Accept", wire.MediaType)
	req.Header.Set("User-Agent", "compute-agent")
	req.Header.Set(wire.HeaderRequestID, requestID)
	req.Header.Set(wire.HeaderVersion, wire.ServiceType+" "+q.version)
	if q.extension != "" {
		req.Header.Set(wire.HeaderExtensions, q.extension)
	}
	if q.payload != nil {
		req.Header.Set("Content-Type", wire.MediaType)
	}
	return req, nil
}
