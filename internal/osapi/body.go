// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// maxBelieved is the largest body whose memory is allocated before it arrives, in bytes.
const maxBelieved = 64 << 10

// Body reads the request body. It is bounded in size (413, an [http.MaxBytesError]), in the time
// that it takes to arrive (408) and, together with the bodies of all other requests under way, in
// memory (503).
//
// Cost: one allocation for a body of up to maxBelieved bytes whose length is given; beyond, memory
// doubles as it fills.
func (x *Exchange) Body() ([]byte, error) {
	limit := x.service.Limits.Body
	if x.R.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if x.R.Body == nil || x.R.Body == http.NoBody {
		return nil, nil
	}
	// The connection's deadlines are in real time, whatever clock the API has. A server without
	// connections has none, which is the error here. net/http takes the deadline away as soon as
	// the body is there.
	_ = http.NewResponseController(x.W).SetReadDeadline(time.Now().Add(x.service.Limits.BodyTime))
	// A slow client takes no place from requests that are worked on; what it takes is bounded by
	// Limits.Bodies.
	x.service.inFlight.Add(-1)
	var n int64
	b, err := func() ([]byte, error) {
		defer func() { n = x.service.inFlight.Add(1) }() // Also when a body from within the process panics.
		return x.readBody(limit)
	}()
	x.received = len(b)
	if err == nil && x.service.tooMany(n) {
		err = tooMany(n - 1)
	}
	return b, err
}

// readBody reads up to limit bytes into memory that it reserves before it takes it.
func (x *Exchange) readBody(limit int64) ([]byte, error) {
	length := x.R.ContentLength
	if length <= 0 {
		length = -1 // unknown
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
		n, err := x.R.Body.Read(b[len(b):cap(b)])
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

// ends reports whether a body of unknown length that has reached the limit ends there.
func (x *Exchange) ends() bool {
	var one [1]byte
	n, err := io.ReadFull(x.R.Body, one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// reserve takes n bytes of the memory of all request bodies. The exchange releases them when it
// ends.
func (x *Exchange) reserve(n int64) error {
	if all := x.service.bodies.Add(n); all > x.service.Limits.Bodies {
		x.service.bodies.Add(-n)
		return Unavailable(
			"The bodies of the requests under way take up all the memory that this server has for them. Send the " +
				"request again in a moment.")
	}
	x.held += n
	return nil
}

func (x *Exchange) release(n int64) {
	x.service.bodies.Add(-n)
	x.held -= n
}

func readFailure(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return BadRequest("The body ends before the length that the request gives.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Errorf(http.StatusRequestTimeout, "The body of the request did not arrive in time.").Because(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, new(*http.MaxBytesError)):
		return fmt.Errorf("read the request body: %w", err) // a MaxBytesError, or one that ends the request
	}
	// Invalid chunks, a closed connection: the error is the client's.
	return BadRequest("The body of the request could not be read.").
		Because(fmt.Errorf("read the request body: %w", err))
}
