// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// maxAnswer bounds what is read of an answer, in bytes: a tree of 10,000 providers lists in about 5
// MiB, 1,000 candidates of trees of 20 providers in about 8.
const maxAnswer = 64 << 20

// Call is one request, and the headers of its answer.
type Call struct {
	// Path is with the query.
	Method, Path string
	// Body is encoded as JSON; nil: no body.
	Body any
	// Out takes the JSON of a 2xx answer. Nil: whatever it is, it is ignored. [NoContent]: only 204
	// means done. A type with a method Complete() bool says by it whether the answer has what
	// Placement's always has: {} would read as "there is nothing". A *[json.RawMessage] takes the
	// answer as it is.
	Out any
	// Microversion is asked for in place of the client's, if it is not empty, and Extensions beside
	// it (the header Placement-Extensions).
	Microversion, Extensions string

	// Header is the answer's; nil if none came.
	Header http.Header
}

// NoContent is the Out of calls whose only good answer is 204: whatever else answers, such as a
// login page, is no Placement.
type NoContent struct{}

// Do sends a request with a JSON body (nil: none) and decodes a 2xx answer into out: see [Call].
//
// Errors: an [*Error].
func (c *Client) Do(ctx context.Context, method, path string, body, out any) error {
	return c.Send(ctx, &Call{Method: method, Path: path, Body: body, Out: out})
}

// Send carries out a call. One that is answered 401 is sent once more with a new proof of who we
// are.
//
// Errors: an [*Error].
func (c *Client) Send(ctx context.Context, call *Call) error {
	var payload any // nil, and not an empty slice: a request without a body says so
	if call.Body != nil {
		encoded, err := json.Marshal(call.Body)
		if err != nil {
			return fmt.Errorf("%s %s: encoding the body: %w", call.Method, call.Path, err)
		}
		payload = encoded
	}
	refused, failed := c.send(ctx, call, payload)
	if failed != nil && failed.Status == http.StatusUnauthorized && c.config.Reauthorize != nil {
		if err := c.config.Reauthorize(ctx, refused); err != nil {
			failed.Kind, failed.Cause, failed.Detail = &noCredentials{err}, err, err.Error()
			return failed
		}
		_, failed = c.send(ctx, call, payload)
	}
	if failed != nil {
		return failed
	}
	return nil
}

// send does it once, and returns the headers that went out.
func (c *Client) send(ctx context.Context, call *Call, payload any) (http.Header, *Error) {
	result := &Error{Method: call.Method, Path: call.Path, RequestID: c.requestID(ctx)}
	req, err := c.request(ctx, call, payload, result.RequestID)
	if err != nil {
		result.Kind, result.Cause, result.Detail, result.Unsent = &noCredentials{err}, err, err.Error(), true
		return nil, result
	}
	observed := func(int, error) {}
	if c.config.Observe != nil {
		observed = c.config.Observe(ctx, req.Request, route(call.Path))
	}
	start := c.config.Now()
	c.exchange(req, call, result)
	c.log(result, c.config.Now().Sub(start))
	if result.Kind == nil {
		observed(result.Status, nil)
		return req.Header, nil
	}
	observed(result.Status, result)
	if result.Status == http.StatusNotAcceptable {
		c.checked.Store(nil)
	}
	return req.Header, result
}

// requestID is the id under which Placement logs a request.
func (c *Client) requestID(ctx context.Context) string {
	if c.config.RequestID != nil {
		if id := c.config.RequestID(ctx); id != "" {
			return id
		}
	}
	return "req-" + uuid.NewString()
}

// request makes a request with all its headers.
func (c *Client) request(
	ctx context.Context, call *Call, payload any, requestID string,
) (*retryablehttp.Request, error) {
	// The proof comes first: where the endpoint is comes with it.
	headers := http.Header{}
	if c.config.Authorize != nil {
		if err := c.config.Authorize(ctx, headers); err != nil {
			return nil, err
		}
	}
	base, err := c.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, call.Method, base.String()+call.Path, payload)
	if err != nil {
		return nil, err
	}
	req.Header = headers
	req.Header.Set("Accept", wire.MediaType)
	req.Header.Set("User-Agent", "compute-agent")
	req.Header.Set(wire.HeaderRequestID, requestID)
	if payload != nil {
		req.Header.Set("Content-Type", wire.MediaType)
	}
	if call.Path != "/" { // a server without our microversion must still say which it has
		version := cmp.Or(call.Microversion, c.config.Microversion)
		req.Header.Set(wire.HeaderVersion, wire.ServiceType+" "+version)
	}
	if call.Extensions != "" {
		req.Header.Set(wire.HeaderExtensions, call.Extensions)
	}
	return req, nil
}

// exchange sends the request and notes in result what came of it; result.Kind stays nil if all went
// well.
func (c *Client) exchange(req *retryablehttp.Request, call *Call, result *Error) {
	call.Header = nil
	resp, err := c.http.Do(req)
	if err != nil {
		result.setUnanswered(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	call.Header = resp.Header
	result.Status, result.ServerRequestID = resp.StatusCode, resp.Header.Get(wire.HeaderRequestID)
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode/100 != 2:
		result.setRefusal(content) // the status says it, also without the rest of the text
		result.setForeignService(resp.Header, content)
	case err != nil:
		result.setCutShort(err)
	case len(content) > maxAnswer:
		result.Kind, result.Detail = ErrUnexpected, fmt.Sprintf("the answer is longer than %d MiB", maxAnswer>>20)
	default:
		if err := decode(resp.StatusCode, content, call.Out); err != nil {
			result.Kind, result.Cause, result.Detail = ErrUnexpected, err, err.Error()
		}
		if result.Kind != nil || call.Path == "/" {
			result.setForeignService(resp.Header, content)
		}
	}
}

func decode(status int, content []byte, out any) error {
	switch out.(type) {
	case nil:
		return nil
	case NoContent:
		if status != http.StatusNoContent {
			return fmt.Errorf("the answer has status %d instead of 204: %s", status, textutil.Line(content, maxSnippet))
		}
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("the answer cannot be read: %w: %s", err, textutil.Line(content, maxSnippet))
	}
	if a, is := out.(interface{ Complete() bool }); is && !a.Complete() {
		return fmt.Errorf("the answer is not Placement's: %s", textutil.Line(content, maxSnippet))
	}
	if err := wire.CheckAnswer(out); err != nil {
		return fmt.Errorf("the answer is not Placement's: %w", err)
	}
	return nil
}

func (c *Client) log(r *Error, took time.Duration) {
	e := c.config.Logger.Debug().Str("method", r.Method).Str("path", r.Path).Int("status", r.Status).
		Str("request_id", r.RequestID).Str("server_request_id", r.ServerRequestID).Dur("took", took)
	if r.Kind != nil {
		e = e.Err(r)
	}
	e.Msg("Sent a request to Placement.")
}
