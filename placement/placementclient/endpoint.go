// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

func parseEndpoint(address string) (*url.URL, error) {
	base, err := url.Parse(strings.TrimRight(address, "/"))
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("placement url %q: must be http://HOST:PORT[/PATH] or the same with https", address)
	}
	return base, nil
}

// endpoint returns the present URL of Placement.
func (c *Client) endpoint(ctx context.Context) (*url.URL, error) {
	if c.config.Endpoint == nil {
		return c.base.Load(), nil
	}
	address, err := c.config.Endpoint(ctx)
	if err != nil {
		return nil, err
	}
	base, err := parseEndpoint(address)
	if err != nil {
		return nil, err
	}
	c.base.Store(base)
	return base, nil
}

// Endpoint is where Placement is, as far as it is known without a request: empty until a catalog
// has said it.
func (c *Client) Endpoint() string {
	if base := c.base.Load(); base != nil {
		return base.String()
	}
	return ""
}

// Probe opens a TCP connection to Placement and closes it: no request, but it finds out whether a
// server listens there. Without [Config].Dial it does nothing.
//
// Errors: [ErrUnavailable]; those of Config.Endpoint.
func (c *Client) Probe(ctx context.Context) error {
	if c.config.Dial == nil {
		return nil
	}
	base, err := c.endpoint(ctx)
	if err != nil {
		return &Error{Method: "CONNECT", Path: "placement",
			Kind: &noCredentials{err}, Cause: err, Detail: err.Error(), Unsent: true}
	}
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	conn, err := c.config.Dial(ctx, "tcp", net.JoinHostPort(base.Hostname(), port))
	if err != nil {
		return &Error{Method: "CONNECT", Path: base.Host,
			Kind: ErrUnavailable, Cause: err, Detail: err.Error(), Unsent: true}
	}
	return conn.Close()
}

// fixedParts are the parts of Placement's paths that do not vary.
var fixedParts = map[string]bool{
	"": true, "aggregates": true, "allocation_candidates": true, "allocations": true, "explain": true,
	"inventories": true, "reshaper": true,
	"resource_classes": true, "resource_providers": true, "traits": true, "usages": true,
}

// places are what stands for names, behind these parts.
var places = map[string]string{"traits": "{name}", "resource_classes": "{name}", "inventories": "{name}"}

// route is a path without its query, in which {uuid} stands for the providers and consumers and
// {name} for the classes and traits, so that there are few of them.
func route(path string) string { return textutil.Route(path, fixedParts, places) }
