// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// maxBelieved is the largest body that gets its memory before it is there, in bytes.
const maxBelieved = 64 << 10

// body reads the request body. It is bounded in size (413), in the time that it takes to arrive (408) and, together with the
// bodies of all other requests under way, in memory (503).
//
// Cost: one allocation for a body of up to maxBelieved bytes whose length is given; beyond, memory doubles as it fills.
func (x *exchange) body() ([]byte, error) {
	limit := x.api.limits.Body
	if x.r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil, nil
	}
	// The connection's deadlines are in real time, whatever clock the API has. Who serves without connections has none, and
	// gets an error here that means just that. net/http takes the deadline away as soon as the body is there.
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(x.api.limits.BodyTime))
	// Who sends slowly takes no place from those that are worked on; what it does take is bounded by Limits.Bodies.
	x.api.inFlight.Add(-1)
	var n int64
	b, err := func() ([]byte, error) {
		defer func() { n = x.api.inFlight.Add(1) }() // Also when the body that somebody within the process gives panics.
		return x.readBody(limit)
	}()
	x.received = len(b)
	if err == nil && n > x.api.limits.InFlight {
		err = tooMany(n - 1)
	}
	return b, err
}

// readBody reads up to limit bytes into memory that it reserves before it takes it.
func (x *exchange) readBody(limit int64) ([]byte, error) {
	length := x.r.ContentLength
	if length <= 0 {
		length = -1 // not told
	}
	size := min(maxBelieved, limit)
	if length > 0 {
		size = min(size, length)
	}
	if err := x.reserve(size); err != nil {
		return nil, err
	}
	b := make([]byte, 0, size)
	for {
		n, err := x.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		have := int64(len(b))
		switch {
		case have == length, errors.Is(err, io.EOF) && length < 0:
			return b, nil
		case err != nil:
			return b, readFailure(err)
		case len(b) < cap(b):
			continue
		case have == limit:
			if x.ends() {
				return b, nil
			}
			return b, &http.MaxBytesError{Limit: limit}
		}
		grown := min(2*size, limit)
		if err := x.reserve(grown); err != nil { // Both are there while one is copied into the other.
			return b, err
		}
		bigger := make([]byte, len(b), grown)
		copy(bigger, b)
		x.release(size)
		b, size = bigger, grown
	}
}

// ends says whether a body of unknown length that has filled the limit ends there.
func (x *exchange) ends() bool {
	var one [1]byte
	n, err := io.ReadFull(x.r.Body, one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// reserve takes n bytes of what all request bodies together may take. The exchange gives back what it holds when it ends.
func (x *exchange) reserve(n int64) error {
	if all := x.api.bodies.Add(n); all > x.api.limits.Bodies {
		x.api.bodies.Add(-n)
		f := fail(http.StatusServiceUnavailable, wire.CodeUndefined,
			"The bodies of the requests under way take up all the memory that this server has for them. Send the request again in a moment.")
		f.retry = true
		return f
	}
	x.held += n
	return nil
}

func (x *exchange) release(n int64) {
	x.api.bodies.Add(-n)
	x.held -= n
}

func readFailure(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("The body ends before the length that the request gives.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		f := fail(http.StatusRequestTimeout, wire.CodeUndefined, "The body of the request did not arrive in time.")
		f.cause = err
		return f
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, new(*http.MaxBytesError)):
		return fmt.Errorf("read the request body: %w", err) // see failureOf
	}
	// Chunks that are none, a connection that was cut: whatever it is, it is not this server's.
	f := badRequest("The body of the request could not be read.")
	f.cause = fmt.Errorf("read the request body: %w", err)
	return f
}
