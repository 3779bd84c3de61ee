// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/tracing"
)

// HeaderRequestID has the id of a request: in answers the service's, in requests the client's.
const HeaderRequestID = "X-Openstack-Request-Id"

// Exchange is one request and its answer. APIs embed it in a type of their own.
type Exchange struct {
	W http.ResponseWriter
	R *http.Request
	// ID is the id of the request.
	ID string
	// Caller is the sender of the request, after Authenticate.
	Caller Principal
	// Route is the pattern of the path; "" for an unknown path.
	Route string
	// Microversion is the client's, for the log; "" if it is not known.
	Microversion string
	// Routine: a success within a second is logged at the debug level only.
	Routine bool
	// Status is the status that was sent; 0: none yet.
	Status int
	// OnAnswer, if set, is called with the status before the answer is sent.
	OnAnswer func(status int)

	service  *Service
	started  time.Time
	err      *Error
	pooled   *[]byte // what Buffer appends to
	held     int64   // bytes reserved for the body of the request
	answer   int64   // bytes reserved for the answer
	received int     // bytes of it read
	sent     int     // bytes of body sent
	span     tracing.Span
}

func (x *Exchange) begin(s *Service, w http.ResponseWriter, r *http.Request) {
	x.W, x.R, x.service, x.ID, x.started = w, r, s, newRequestID(), s.Now()
	h, id := w.Header(), []string{x.ID}
	h[HeaderRequestID] = id
	for _, name := range s.RequestIDs {
		h[name] = id
	}
}

// newRequestID makes an id as OpenStack's services do: "req-" and a random UUID. It is not a
// secret.
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

// requestIDForm is the form of the ids of other services, which are logged so that a request can be
// followed through all services.
var requestIDForm = regexp.MustCompile(`^req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// GlobalRequestID is the id that the client gave a request: that of the request which it serves
// with this one; "" for none.
func GlobalRequestID(r *http.Request) string {
	if id := r.Header.Get(HeaderRequestID); requestIDForm.MatchString(id) {
		return id
	}
	return ""
}

// Base returns what URLs of this service begin with: the endpoint that is configured, or else
// scheme and host as the client's request has them. It does not end with a slash.
func (x *Exchange) Base(endpoint string) string {
	switch {
	case endpoint != "":
		return strings.TrimSuffix(endpoint, "/")
	case x.R.TLS != nil:
		return "https://" + x.R.Host
	}
	return "http://" + x.R.Host
}

// Received is how many bytes of the body of the request were read.
func (x *Exchange) Received() int { return x.received }

// Buffer returns an empty buffer for the body of Send. It is used once.
func (x *Exchange) Buffer() []byte {
	if x.pooled == nil {
		x.pooled, _ = x.service.buffers.Get().(*[]byte)
	}
	return (*x.pooled)[:0]
}

// maxPooled is the largest buffer that is reused, in bytes.
const maxPooled = 1 << 20

// Send writes the answer: a status, and a body followed by more. With more, body must not be from
// Buffer.
func (x *Exchange) Send(status int, body []byte, more ...[]byte) {
	if x.OnAnswer != nil {
		x.OnAnswer(status)
	}
	size := len(body)
	for _, part := range more {
		size += len(part)
	}
	if status != http.StatusNoContent {
		x.W.Header()["Content-Length"] = []string{strconv.Itoa(size)}
	}
	x.Status, x.sent = status, size
	x.W.WriteHeader(status)
	if size > 0 && x.R.Method != http.MethodHead {
		// An error means that the client has closed the connection.
		_, _ = x.W.Write(body)
		x.writeParts(more)
	}
	if len(more) == 0 {
		x.keepBuffer(body)
	}
}

// MediaJSON is the media type of JSON.
const MediaJSON = "application/json"

// SendJSON writes the answer of a success that no cache keeps: a value as JSON, or 204 for nil.
func (x *Exchange) SendJSON(answer any) error {
	header := x.W.Header()
	header.Set("Cache-Control", "no-store")
	if answer == nil {
		x.Send(http.StatusNoContent, nil)
		return nil
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if err := x.ReserveMemory(len(body)); err != nil {
		return err
	}
	header.Set("Content-Type", MediaJSON)
	x.Send(http.StatusOK, body)
	return nil
}

// largeAnswer is the size from which answers count for Limits.Answers, in bytes.
const largeAnswer = 256 << 10

// ReserveMemory accounts for the memory of an answer until it is sent: clients that read slowly, or
// not at all, keep it there. It refuses the request (503) if the answers of others take up all that
// there is for them. A write has taken effect, and is answered in any case.
func (x *Exchange) ReserveMemory(size int) error {
	if size < largeAnswer || x.R.Method != http.MethodGet {
		return nil
	}
	n := int64(size)
	if all := x.service.answers.Add(n); all > x.service.Limits.Answers && all > n {
		x.service.answers.Add(-n)
		return Unavailable(
			"The answers that are being sent take up all the memory that this server has for them. Send the request " +
				"again in a moment, or ask for less at once.")
	}
	x.answer = n
	return nil
}

// EncodeJSON is [Handler].Encode for errors of which no cache keeps the answer. v must be one that
// JSON can have.
func (x *Exchange) EncodeJSON(v any) (contentType string, body []byte) {
	x.W.Header().Set("Cache-Control", "no-store")
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return MediaJSON, body
}

// writeParts writes the rest of a body in pieces of some 256 KiB, which stay in the processor's
// cache and need no buffer for the whole body. Large parts are written as they are.
func (x *Exchange) writeParts(parts [][]byte) {
	const atOnce, large = 256 << 10, 32 << 10
	if len(parts) == 0 {
		return
	}
	b := x.Buffer()
	for _, part := range parts {
		if len(part) >= large {
			_, err := x.W.Write(b)
			if err == nil {
				_, err = x.W.Write(part)
			}
			if err != nil {
				return // the client has closed the connection
			}
			b = b[:0]
			continue
		}
		if b = append(b, part...); len(b) >= atOnce {
			if _, err := x.W.Write(b); err != nil {
				return // the client has closed the connection
			}
			b = b[:0]
		}
	}
	_, _ = x.W.Write(b)
	x.keepBuffer(b)
}

// keepBuffer keeps the memory of Buffer for other requests.
func (x *Exchange) keepBuffer(b []byte) {
	if x.pooled != nil && cap(b) > cap(*x.pooled) && cap(b) <= maxPooled {
		*x.pooled = b
	}
}

// LogBug logs a panic with its stack.
func (x *Exchange) LogBug(panicked any, stack []byte) {
	x.service.Logger.Error().Str("request_id", x.ID).
		Str("method", Shortened(x.R.Method)).Str("path", Shortened(x.R.URL.Path)).
		Str("panic", fmt.Sprint(panicked)).Bytes("stack", stack).
		Msg("The handler of a request panicked, and the request was answered with 500. Other requests are not " +
			"affected. Please report this bug with the stack.")
}

// maxLoggedQuery is the longest query that is logged as a whole, in bytes: one for allocation
// candidates can have hundreds of traits and aggregates. Those of unauthenticated clients are
// shortened more.
const maxLoggedQuery = 8 << 10

// slow is the duration from which a routine request is logged at the info level.
const slow = time.Second

// log writes the log line of the request: Info; Debug for a routine success; Warn for a refusal
// with a hint for the operator; Error with the cause for a 5xx.
func (x *Exchange) log(took time.Duration) {
	var line *zerolog.Event
	log := &x.service.Logger
	switch {
	case x.service.LogMessage == "":
		return
	case x.Status >= http.StatusInternalServerError:
		line = log.Error()
		if x.err != nil {
			line = line.AnErr("cause", x.err.Cause)
		}
	case x.Routine && x.Status < http.StatusBadRequest && took <= slow:
		line = log.Debug()
	case x.err != nil && x.err.Hint != "":
		line = log.Warn().Str("hint", x.err.Hint)
	default:
		line = log.Info()
	}
	if !line.Enabled() {
		return
	}
	line = line.Str("request_id", x.ID).Str("remote", x.R.RemoteAddr).Str("method", Shortened(x.R.Method)).
		Str("path", Shortened(x.R.URL.Path)).Int("status", x.Status).Int("bytes", x.sent).Dur("duration", took)
	if query := x.R.URL.RawQuery; query != "" {
		if x.Caller.User == "" || len(query) > maxLoggedQuery {
			query = Shortened(query)
		}
		line = line.Str("query", query)
	}
	if x.Microversion != "" {
		line = line.Str("microversion", Shortened(x.Microversion))
	}
	if x.Caller.User != "" {
		line = line.Str("user", Shortened(x.Caller.User)).Str("project", Shortened(x.Caller.Project))
	}
	if x.Caller.Host != nil {
		line = line.Str("host", Shortened(x.Caller.Host.Name))
	}
	if id := GlobalRequestID(x.R); id != "" {
		line = line.Str("global_request_id", id)
	}
	line.Msg(x.service.LogMessage)
}

// ClientAddress is where a request comes from, without the port.
func ClientAddress(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return Shortened(r.RemoteAddr) // a unix socket has none
}

// Observer gets what a service does, for metrics. Its method is called in the goroutine of the
// request, by many at the same time, and must not block.
type Observer interface {
	// Answered is called once for each request, after its answer was written.
	Answered(Answer)
}

// Answer is one request that was answered. Route, Method and Code are out of small fixed sets,
// whatever clients send.
type Answer struct {
	// Route is the path as the API describes it, such as "/resource_providers/{uuid}"; "" for a
	// path that the API does not have, or a request that was refused before its path was read.
	Route string
	// Method is the HTTP method, OtherMethod for one that HTTP does not define.
	Method string
	Status int
	// Code is the error code of a failure, also where the client's microversion does not show it;
	// "" for a success.
	Code     string
	Duration time.Duration
	// Received and Sent are the sizes of the bodies, as far as they were read and written, in
	// bytes.
	Received, Sent int
}

// OtherMethod is what an Answer gives in place of methods that HTTP does not define.
const OtherMethod = "other"

func (x *Exchange) observe(took time.Duration) {
	if x.service.Observer == nil {
		return
	}
	a := Answer{Route: x.Route, Method: knownMethod(x.R.Method), Status: x.Status, Duration: took,
		Received: x.received, Sent: x.sent}
	if x.err != nil {
		a.Code = x.err.Code
	}
	x.service.Observer.Answered(a)
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return OtherMethod
}

// Trace begins the span of the request, which is then in its context; Authenticate calls it.
// Clients that are not authenticated have none. Trusted is as [tracing.Arrival] has it.
func (x *Exchange) Trace(trusted bool) {
	if x.service.Tracing == nil {
		return
	}
	ctx, span := x.service.Tracing.Server(x.R.Context(), tracing.Arrival{
		Header: x.R.Header, Began: x.started, RequestID: x.ID, GlobalRequestID: GlobalRequestID(x.R), Trusted: trusted,
	})
	x.span, x.R = span, x.R.WithContext(ctx)
}

// Traced reports whether the request has a span that is recorded.
func (x *Exchange) Traced() bool { return x.span.Recorded() }

// endSpan ends the span of the request after its answer.
func (x *Exchange) endSpan(ended time.Time) {
	if x.span.Recorded() {
		x.span.Set(tracing.KeyProjectID, Shortened(x.Caller.Project))
		if x.Caller.Host != nil {
			x.span.Set(tracing.KeyHost, Shortened(x.Caller.Host.Name))
		}
	}
	code := ""
	if x.err != nil {
		code = x.err.Code
	}
	x.span.EndAnswer(knownMethod(x.R.Method), x.Route, x.Status, code, ended)
}
