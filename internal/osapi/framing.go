// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
)

// framing follows the requests that arrive on an HTTP/1 connection far enough to know where the
// headers of each begin and end, and finds the first one whose end a proxy could see elsewhere than
// net/http does.
//
// net/http removes Content-Length from a request that has Transfer-Encoding too, so a handler
// cannot see that both were there. framing parses nothing after a request that has
// Transfer-Encoding, or anything unusual about its length: the connection ends with the answer to
// it. So it needs no parser of bodies and cannot get out of step.
type framing struct {
	// unusualRequest is the number of the first request that is not ordinary, from 1 on, and what
	// it is: 0, or number<<1, with the lowest bit set if it has both headers. It is read by
	// handlers.
	unusualRequest atomic.Uint64

	requests uint64 // whose headers are complete
	body     int64  // bytes to skip
	inHeader bool   // the request line has begun

	line    [80]byte // the beginning of the current line
	lines   int      // of the current headers
	n       int      // bytes in line
	whole   int      // bytes of the current line
	first   bool     // it is the request line
	length  int64    // Content-Length, -1 without
	chunked bool     // has Transfer-Encoding
	unusual bool
}

// verdict classifies a request by its framing.
type verdict int

const (
	ordinary  verdict = iota
	last              // the connection must end with the answer
	ambiguous         // it has Content-Length and Transfer-Encoding
)

// verdictOf returns the verdict of the request with the number, from 1 on. Its headers have
// arrived.
func (f *framing) verdictOf(number uint64) verdict {
	switch unusual := f.unusualRequest.Load(); {
	case unusual == 0 || unusual>>1 != number:
		return ordinary
	case unusual&1 == 1:
		return ambiguous
	}
	return last
}

// feed processes the next bytes. It returns the cost of those in unfinished headers.
func (f *framing) feed(b []byte) (cost int64) {
	for len(b) > 0 && f.unusualRequest.Load() == 0 {
		if f.body > 0 {
			skip := min(f.body, int64(len(b)))
			f.body -= skip
			b = b[skip:]
			continue
		}
		if !f.inHeader {
			if b[0] == '\r' || b[0] == '\n' { // net/http skips them after a POST, and refuses them otherwise
				b = b[1:]
				continue
			}
			f.inHeader, f.first, f.lines, f.length, f.chunked, f.unusual = true, true, 0, -1, false, false
		}
		part, end := b, bytes.IndexByte(b, '\n')
		if end >= 0 {
			part = b[:end+1]
		}
		f.n += copy(f.line[f.n:], part)
		f.whole += len(part)
		cost += int64(len(part))
		b = b[len(part):]
		if end < 0 {
			continue
		}
		cost += lineCost
		f.lines++
		if f.endLine() {
			cost = 0
		}
	}
	return cost
}

// endLine evaluates a line, and reports whether it ends the headers.
func (f *framing) endLine() bool {
	line, cut := f.line[:f.n], f.whole > f.n
	f.n, f.whole = 0, 0
	if f.first {
		f.first = false
		return false
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) == 0 && !cut {
		f.endHeader()
		return true
	}
	if line[0] == ' ' || line[0] == '\t' { // it goes on with the line before
		f.unusual = true
		return false
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	name = bytes.TrimRight(name, " \t")
	switch {
	case headerIs(name, "transfer-encoding"):
		f.chunked = true
	case headerIs(name, "content-length"):
		length, err := strconv.ParseInt(string(bytes.Trim(value, " \t")), 10, 64)
		if cut || err != nil || length < 0 || f.length >= 0 {
			f.unusual = true
		}
		f.length = max(length, 0)
	case headerIs(name, "upgrade"): // what follows may be another protocol
		f.unusual = f.unusual || !strings.EqualFold(string(bytes.Trim(value, " \t")), "h2c")
	}
	return false
}

// headerIs reports whether a header has a name, in any case. Most have another length.
func headerIs(header []byte, name string) bool {
	return len(header) == len(name) && strings.EqualFold(string(header), name)
}

func (f *framing) endHeader() {
	f.requests++
	f.inHeader = false
	switch {
	case f.chunked && f.length >= 0:
		f.unusualRequest.Store(f.requests<<1 | 1)
	case f.chunked || f.unusual:
		f.unusualRequest.Store(f.requests << 1)
	default:
		f.body = max(f.length, 0)
	}
}

// maxHeaderLines is how many lines the headers of a request may have, with the request line. Each
// costs net/http much more than its bytes.
const maxHeaderLines = 200

var errTooManyLines = errors.New("osapi: the headers of the request have too many lines")

// watched is an HTTP/1 connection whose requests are followed.
type watched struct {
	net.Conn // the counted connection, or TLS over it
	counted  *conn
	framing
	served uint64 // requests that a handler got, one after the other
}

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if cost := w.feed(p[:n]); cost > 0 {
		w.counted.charge(cost)
	}
	if w.lines > maxHeaderLines { // net/http answers 400 and closes the connection
		return 0, errTooManyLines
	}
	return n, err
}

// CloseWrite shuts down the writing side of the connection, or of TLS.
func (w *watched) CloseWrite() error { return closeWrite(w.Conn) }

// watchedTLS is one over TLS. net/http asks it for the state of TLS.
type watchedTLS struct {
	*watched
	tls *tls.Conn
}

// ConnectionState returns the state of TLS.
func (w watchedTLS) ConnectionState() tls.ConnectionState { return w.tls.ConnectionState() }
