// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// place is one process of a cell.
type place struct {
	url       string
	base      string // without a slash at its end
	transport http.RoundTripper
}

func newPlace(text string, c Config) (*place, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("invalid URL of a cell, want http://, https:// or unix:///PATH: %w", withoutURL(err))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, fmt.Errorf("the URL of a cell, %s, must have a scheme, an address and a path only", u.Redacted())
	}
	p := &place{url: text, transport: c.Transport}
	socket := ""
	switch u.Scheme {
	case "http", "https":
		if u.Hostname() == "" {
			return nil, fmt.Errorf("the URL of a cell, %q, has no host", text)
		}
		p.base = strings.TrimRight(text, "/")
	case "unix":
		if u.Host != "" || len(u.Path) < 2 {
			return nil, fmt.Errorf("the URL of a cell, %q, must be unix:///PATH, with an absolute path", text)
		}
		socket, p.base = u.Path, "http://localhost"
	default:
		return nil, fmt.Errorf("the URL of a cell, %q, must begin with http://, https:// or unix:///", text)
	}
	switch {
	case p.transport != nil:
	case c.TLS != nil:
		p.transport = newTransport(socket, c.TLS)
	default:
		p.transport, err = c.Files.Transport(c.Logger, nil,
			func(config *tls.Config) *http.Transport { return newTransport(socket, config) })
	}
	return p, err
}

// tryPlaces sends a request to the place that answered last, and while there is no valid answer to
// the others, each once. All requests of the protocol can be repeated. A place that did not answer
// in time is not asked first by the next call; this one has no time left.
func (c *Client) tryPlaces(ctx context.Context, send func(*place) error) error {
	n := int64(len(c.places))
	began := c.lastPlace.Load()
	failed := &Failure{}
	for i := began; ; i++ {
		p := c.places[i%n]
		err := send(p)
		var f *Failure
		if n == 1 || !errors.As(err, &f) || f.Kind == Cancelled {
			c.lastPlace.CompareAndSwap(began, i)
			return err
		}
		here := fmt.Errorf("%s: %w", p.url, f.Err)
		if failed.Err != nil {
			here = fmt.Errorf("%w; %w", failed.Err, here)
		}
		failed = &Failure{Kind: f.Kind, Sent: f.Sent || failed.Sent, Err: here}
		if i+1 == began+n || ctx.Err() != nil {
			c.lastPlace.CompareAndSwap(began, i+1)
			return failed
		}
	}
}
