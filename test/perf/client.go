// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Microversion is the one that all requests use: the newest that needs no consumer type, as agents
// write.
const Microversion = "1.37"

// Client sends requests to one Placement, as its administrator.
type Client struct {
	endpoint string
	http     *http.Client
	requests atomic.Int64
}

// NewClient is for up to workers requests at a time.
func NewClient(endpoint string, workers int) *Client {
	return NewClientOver(&http.Transport{MaxIdleConnsPerHost: workers, DisableCompression: true}, endpoint)
}

// NewClientOver sends the requests over a transport.
func NewClientOver(transport http.RoundTripper, endpoint string) *Client {
	return &Client{endpoint: endpoint, http: &http.Client{Timeout: 10 * time.Minute, Transport: transport}}
}

// Requests is how many were sent so far.
func (c *Client) Requests() int64 { return c.requests.Load() }

// StatusError is an answer that refuses.
type StatusError struct {
	Method, Path string
	Status       int
	Body         []byte
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: status %d: %.500s", e.Method, e.Path, e.Status, e.Body)
}

// Send sends a request; body is sent as JSON unless nil, or as it is if it is a []byte. It returns
// the body of the answer; an answer of 400 and above is a *StatusError.
func (c *Client) Send(ctx context.Context, method, path string, body any) ([]byte, error) {
	var content io.Reader
	switch body := body.(type) {
	case nil:
	case []byte:
		content = bytes.NewReader(body)
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("X-Roles", "admin,service") // the reshaper is for services
	req.Header.Set("OpenStack-API-Version", "placement "+Microversion)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.requests.Add(1)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end
	answer := bytes.NewBuffer(make([]byte, 0, max(resp.ContentLength, 0)+bytes.MinRead))
	if _, err := answer.ReadFrom(resp.Body); err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, &StatusError{Method: method, Path: path, Status: resp.StatusCode, Body: answer.Bytes()}
	}
	return answer.Bytes(), nil
}

// read sends a GET and reads the answer.
func read[T any](ctx context.Context, c *Client, path string) (T, error) {
	var v T
	answer, err := c.Send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return v, fmt.Errorf("read the answer to GET %s: %w", path, err)
	}
	return v, nil
}

// object is a JSON object.
type object = map[string]any

// steps sends requests in turn until one fails.
type steps struct {
	ctx context.Context
	c   *Client
	err error
}

func (s *steps) send(method, path string, body any) {
	if s.err == nil {
		_, s.err = s.c.Send(s.ctx, method, path, body)
	}
}
