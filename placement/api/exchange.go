// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Header values that many answers share; assigned, not copied, and never changed.
var (
	headerJSON    = []string{wire.MediaType}
	headerText    = []string{"text/plain; charset=utf-8"}
	headerHTML    = []string{"text/html; charset=utf-8"}
	headerVary    = []string{wire.VaryVersion}
	headerNoCache = []string{wire.CacheControl}

	headerVersions = func() (h [wire.MaxVersion + 1][]string) {
		for v := range h {
			h[v] = []string{wire.Version(v).HeaderValue()}
		}
		return h
	}()
)

// exchange is one request and its answer. It goes through http.ServeMux as the ResponseWriter, so that the handlers get it
// without anything stored in the request's context.
type exchange struct {
	w   http.ResponseWriter
	r   *http.Request
	api *API

	id, globalID string // of the request; the caller's own, if it sent one
	started      time.Time
	who          osapi.Principal
	v            wire.Version
	negotiated   bool // v is known

	pooled   *[]byte        // what body appends to
	held     int64          // bytes reserved for the request's body
	received int            // bytes of it read
	route    string         // the pattern of the path; "" for none
	status   int            // sent; 0: nothing yet
	size     int            // bytes of body sent
	code     wire.ErrorCode // of a failure
	cause    error          // behind a failure, for the log
	hint     string         // what the operator can do about a failure, for the log
	quiet    bool           // not worth a line in the log
}

func (a *API) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{w: w, r: r, api: a, id: newRequestID(), started: a.now()}
	if id := r.Header.Get(wire.HeaderRequestID); isRequestID(id) {
		x.globalID = id
	}
	w.Header()[wire.HeaderRequestID] = []string{x.id}
	return x
}

// Header, Write and WriteHeader make the exchange the ResponseWriter that ServeMux passes on.
func (x *exchange) Header() http.Header { return x.w.Header() }

// Write writes to the client as it is.
func (x *exchange) Write(b []byte) (int, error) { return x.w.Write(b) }

// WriteHeader begins the answer.
func (x *exchange) WriteHeader(status int) { x.w.WriteHeader(status) }

// newRequestID makes an id as OpenStack's services do: "req-" and a random UUID. It identifies and protects nothing.
func newRequestID() string {
	var b [40]byte
	copy(b[:], "req-xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx")
	const digits = "0123456789abcdef"
	bits, left := rand.Uint64(), 16
	for i := 4; i < len(b); i++ {
		if b[i] != 'x' {
			continue
		}
		if left == 0 {
			bits, left = rand.Uint64(), 16
		}
		d := bits & 15
		if i == 4+19 {
			d = d&3 | 8 // The variant of a random UUID.
		}
		b[i] = digits[d]
		bits >>= 4
		left--
	}
	return string(b[:])
}

// isRequestID says whether s looks like an id of newRequestID.
func isRequestID(s string) bool {
	if len(s) != 40 || s[:4] != "req-" || strings.ToLower(s) != s {
		return false
	}
	uuid, err := providertree.CanonicalUUID(s[4:])
	return err == nil && uuid == s[4:]
}

// buffer is an empty buffer for a body. What is given to send or json must be appended to it, once.
func (x *exchange) buffer() []byte {
	if x.pooled == nil {
		x.pooled, _ = x.api.buffers.Get().(*[]byte)
	}
	return (*x.pooled)[:0]
}

// maxPooled is the largest buffer that is kept for other requests, in bytes.
const maxPooled = 1 << 20

// snapshot is the state as of now.
func (x *exchange) snapshot() (*ledger.Snapshot, error) { return x.api.ledger.Snapshot(x.r.Context()) }

// update runs a transaction.
func (x *exchange) update(fn func(*ledger.Tx) error) error {
	_, err := x.api.ledger.Update(x.r.Context(), fn)
	return err
}

// json answers with a body, which goes on with more. modified is when what it shows changed last; the zero time is now.
func (x *exchange) json(status int, body []byte, modified time.Time, more ...[]byte) error {
	h := x.w.Header()
	h["Content-Type"] = headerJSON
	x.cacheHeaders(modified)
	x.send(status, body, more...)
	return nil
}

// cacheHeaders sets what answers carry from 1.15 on.
func (x *exchange) cacheHeaders(modified time.Time) {
	if !x.v.Has(wire.CacheHeaders) {
		return
	}
	if modified.IsZero() {
		modified = x.api.now()
	}
	h := x.w.Header()
	h["Last-Modified"] = []string{modified.UTC().Format(http.TimeFormat)}
	h["Cache-Control"] = headerNoCache
}

// noContent answers 204.
func (x *exchange) noContent() error {
	x.send(http.StatusNoContent, nil)
	return nil
}

// location sets the Location header to a path of this server. It is a whole URL, as Placement's is.
func (x *exchange) location(path string) {
	scheme := "http://"
	if x.r.TLS != nil {
		scheme = "https://"
	}
	x.w.Header()["Location"] = []string{scheme + x.r.Host + path}
}

// send writes the answer: status, the headers that all answers have, and the body, which goes on with more; then it is not one
// of buffer.
func (x *exchange) send(status int, body []byte, more ...[]byte) {
	h := x.w.Header()
	if x.negotiated {
		h[wire.HeaderVersion] = headerVersions[x.v]
		if vary := h["Vary"]; vary == nil {
			h["Vary"] = headerVary
		} else {
			h["Vary"] = append(slices.Clone(headerVary), vary...)
		}
	}
	size := len(body)
	for _, part := range more {
		size += len(part)
	}
	if status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.Itoa(size)}
	}
	x.status, x.size = status, size
	x.w.WriteHeader(status)
	if size > 0 && x.r.Method != http.MethodHead {
		// An error here is that the client is gone; nobody is left to tell.
		_, _ = x.w.Write(body)
		x.writeParts(more)
	}
	if len(more) == 0 { // with more, body is not of buffer
		x.keepBuffer(body)
	}
}

// writeParts writes what a body goes on with, a piece of some 64 KiB at a time: that stays in the processor's cache, where a
// buffer for all of it would go through memory once more, and be made and collected for each large answer.
func (x *exchange) writeParts(parts [][]byte) {
	const atOnce = 64 << 10
	if len(parts) == 0 {
		return
	}
	b := x.buffer()
	for _, part := range parts {
		if b = append(b, part...); len(b) >= atOnce {
			if _, err := x.w.Write(b); err != nil {
				return // the client is gone
			}
			b = b[:0]
		}
	}
	_, _ = x.w.Write(b)
	x.keepBuffer(b)
}

// keepBuffer keeps what came from buffer, for other requests.
func (x *exchange) keepBuffer(b []byte) {
	if x.pooled != nil && cap(b) > cap(*x.pooled) && cap(b) <= maxPooled {
		*x.pooled = b
	}
}

// fail answers with an error, in the form that the client accepts: JSON, or else HTML or plain text.
func (x *exchange) fail(err error) {
	if x.status != 0 {
		return
	}
	f := failureOf(err)
	x.cause, x.code, x.hint = f.cause, f.code, f.hint
	var bug *ledger.PanicError
	if errors.As(f.cause, &bug) {
		x.logBug(bug.Value, bug.Stack)
	}
	item := wire.ErrorItem{Status: f.status, Title: http.StatusText(f.status), Detail: f.detail, RequestID: x.id}
	switch {
	case x.negotiated && x.v.Has(wire.ErrorCodes):
		item.Code = f.code
	case !x.negotiated && f.status == http.StatusNotAcceptable:
		item.MinVersion, item.MaxVersion = wire.MinVersion.String(), wire.MaxVersion.String()
	}
	h := x.w.Header()
	if f.allow != "" {
		h.Set("Allow", f.allow)
	}
	if f.challenge != "" {
		h.Set("Www-Authenticate", f.challenge)
	}
	if f.retry {
		h.Set("Retry-After", "1")
	}
	var body []byte
	switch a := readAccept(x.r.Header.Get("Accept")); {
	case a.json > 0 && a.json >= a.html:
		h["Content-Type"] = headerJSON
		body = item.AppendJSON(x.buffer())
	case a.html > 0:
		h["Content-Type"] = headerHTML
		body = fmt.Appendf(x.buffer(), "<html>\n <head>\n  <title>%d %s</title>\n </head>\n <body>\n  <h1>%[1]d %[2]s</h1>\n  %s\n </body>\n</html>\n",
			item.Status, item.Title, html.EscapeString(item.Detail))
	default:
		h["Content-Type"] = headerText
		body = fmt.Appendf(x.buffer(), "%d %s\n\n%s\n", item.Status, item.Title, item.Detail)
	}
	x.send(f.status, body)
}

// finish ends the exchange: a panic becomes a 500, and the request a line in the log.
func (x *exchange) finish() {
	if x.held > 0 {
		x.release(x.held)
	}
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler { //nolint:errorlint // It is panicked with as it is, never wrapped.
			panic(p)
		}
		x.logBug(p, debug.Stack())
		x.fail(&failure{status: http.StatusInternalServerError, code: wire.CodeUndefined,
			detail: "The server ran into a bug. Its log says more, under the request id of this answer."})
	}
	if x.pooled != nil {
		x.api.buffers.Put(x.pooled)
		x.pooled = nil
	}
	x.observe()
	x.logLine()
}

// logBug writes what is needed to find the cause of a panic.
func (x *exchange) logBug(panicked any, stack []byte) {
	x.api.log.Error().Str("request_id", x.id).Str("method", shortened(x.r.Method)).Str("path", shortened(x.r.URL.Path)).
		Str("panic", fmt.Sprint(panicked)).Bytes("stack", stack).
		Msg("A request ran into a bug in the server and was answered with 500; other requests are not touched. Please report it with this stack.")
}

// maxLoggedQuery is how long a query may be that is logged as a whole, so that it can be asked again, in bytes: one for allocation
// candidates names traits and aggregates by the hundred. That of who is not known is shortened to less.
const maxLoggedQuery = 8 << 10

// logLine writes the line that every request gets: Info, Warn where a hint says how the operator can allow what was refused, or
// Error with its cause where the server is to blame.
func (x *exchange) logLine() {
	var line *zerolog.Event
	switch {
	case x.status >= http.StatusInternalServerError:
		line = x.api.log.Error().AnErr("cause", x.cause)
	case x.quiet:
		line = x.api.log.Debug()
	case x.hint != "":
		line = x.api.log.Warn().Str("hint", x.hint)
	default:
		line = x.api.log.Info()
	}
	if !line.Enabled() {
		return
	}
	line = line.Str("request_id", x.id).Str("remote", x.r.RemoteAddr).Str("method", shortened(x.r.Method)).
		Str("path", shortened(x.r.URL.Path)).Int("status", x.status).Int("bytes", x.size).
		Dur("duration", x.api.now().Sub(x.started))
	if query := x.r.URL.RawQuery; query != "" {
		if x.who.User == "" || len(query) > maxLoggedQuery {
			query = shortened(query)
		}
		line = line.Str("query", query)
	}
	if x.negotiated {
		line = line.Str("microversion", x.v.String())
	}
	if x.who.User != "" {
		line = line.Str("user", shortened(x.who.User)).Str("project", shortened(x.who.Project))
	}
	if x.globalID != "" {
		line = line.Str("global_request_id", x.globalID)
	}
	line.Msg("request")
}
