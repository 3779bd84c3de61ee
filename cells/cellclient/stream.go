// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// maxOpening bounds the opening of a stream at one process of a cell, which waits for the other
// end.
const maxOpening = 30 * time.Second

// OpenStream opens a stream to the agent of a server's host. length is how many bytes of what has a
// length are asked for, 0: all. The processes of the cell are asked one after the other, until one
// has the agent. When the context ends, so does the stream.
func (c *Client) OpenStream(
	ctx context.Context, uuid string, purpose cellwire.Purpose, length int64,
) (*cellwire.Stream, error) {
	values := url.Values{"purpose": {string(purpose)}}
	if length > 0 {
		values.Set("length", strconv.FormatInt(length, 10))
	}
	path, err := pathOf("/v1/servers/", uuid, "/stream?"+values.Encode())
	if err != nil {
		return nil, err
	}
	return c.stream(ctx, path)
}

// AcceptStream opens the agent's end of a stream that is offered to its host. When the context
// ends, so does the stream.
func (c *Client) AcceptStream(ctx context.Context, host, id string) (*cellwire.Stream, error) {
	path, err := pathOf("/v1/hosts/", host, "/streams/"+url.PathEscape(id))
	if err != nil {
		return nil, err
	}
	return c.stream(ctx, path)
}

// OpenSource opens a stream for a host to the source of the migration in which a server arrives
// there. When the context ends, so does the stream.
func (c *Client) OpenSource(ctx context.Context, host, uuid string) (*cellwire.Stream, error) {
	path, err := pathOf("/v1/hosts/", host, "/arrivals/"+url.PathEscape(uuid))
	if err != nil {
		return nil, err
	}
	return c.stream(ctx, path)
}

// stream opens a stream at the process that answered last, or at another one: a stream is in the
// memory of one process.
func (c *Client) stream(ctx context.Context, path string) (*cellwire.Stream, error) {
	n := int64(len(c.places))
	at := c.lastPlace.Load()
	var failed error
	for i := at; i < at+n && ctx.Err() == nil; i++ {
		stream, err := c.streamAt(ctx, c.places[i%n], path)
		var failure *Failure
		if err == nil || !errors.As(err, &failure) && !IsNotFound(err) {
			return stream, err
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil { // it was over before the first attempt
		failed = ctx.Err()
	}
	return nil, failed
}

func (c *Client) streamAt(ctx context.Context, p *place, path string) (*cellwire.Stream, error) {
	opening, opened := context.WithTimeout(ctx, maxOpening)
	defer opened()
	req, err := c.request(bound(opening), p, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", cellwire.StreamProtocol)
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, &Failure{Kind: kindIn(opening, err), Sent: true, Err: err}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = resp.Body.Close() }()
		if err := read(opening, resp, nil); err != nil {
			return nil, err
		}
		return nil, broken("status %d instead of a stream", resp.StatusCode)
	}
	conn, both := resp.Body.(io.ReadWriteCloser)
	if !both {
		return nil, broken("a stream that cannot be written")
	}
	stream := cellwire.NewStream(conn, conn)
	context.AfterFunc(ctx, func() { _ = stream.Close() })
	return stream, nil
}
