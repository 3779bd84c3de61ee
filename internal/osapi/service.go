// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Limits bound the resources of one request and of all requests together. A zero is the default.
type Limits struct {
	// Body is the size of a request body in bytes; 413 beyond. 16 MiB by default.
	Body int64
	// Bodies is the total memory of the bodies of all requests in progress, in bytes; 503 beyond.
	// An eighth of the memory limit of the process by default (GOMEMLIMIT, or that of its unit), at
	// most 256 MiB, and at least two bodies. A decoded body is a few times as large, while it is
	// processed.
	Bodies int64
	// Answers is the total memory of large answers to GET requests that are being sent, in bytes;
	// 503 beyond, but for one that is alone. As much as for Bodies by default, and at least 32 MiB.
	Answers int64
	// BodyTime is how long a request body may take to arrive, counted from when it is asked for;
	// 408 beyond. 30 s by default.
	BodyTime time.Duration
	// Query is the size of a query string in bytes; 414 beyond. 64 KiB by default.
	Query int
	// InFlight is the number of requests processed at once; 503 beyond. 1,000 by default, no bound
	// if negative. A request that waits for its body does not count.
	InFlight int64
}

func (l Limits) withDefaults() Limits {
	if l.Body <= 0 {
		l.Body = 16 << 20
	}
	if l.Bodies <= 0 {
		l.Bodies = ofMemory(2*l.Body, 256<<20)
	}
	if l.Answers <= 0 {
		l.Answers = ofMemory(32<<20, 256<<20)
	}
	if l.BodyTime <= 0 {
		l.BodyTime = 30 * time.Second
	}
	if l.Query <= 0 {
		l.Query = 64 << 10
	}
	if l.InFlight == 0 {
		l.InFlight = 1000
	}
	return l
}

// ofMemory is an eighth of the memory limit of the process, within bounds.
func ofMemory(minBytes, maxBytes int64) int64 {
	return min(max(debug.SetMemoryLimit(-1)/8, minBytes), maxBytes)
}

// Options configure a [Service].
type Options struct {
	// Authenticator authenticates requests; see [Exchange.Authenticate].
	Authenticator Authenticator
	Limits        Limits
	// Observer receives every answer, for metrics; nil costs nothing.
	Observer Observer
	// RequestIDs are the headers of answers that carry the request id, beside [HeaderRequestID].
	RequestIDs []string
	// Tracing begins a span for each request of an authenticated client; nil is off.
	Tracing *tracing.Tracing
	// LogMessage is the message of the log line of each request. Without one requests are not
	// logged, for a service that logs failures itself.
	LogMessage string
	// Now is the clock; time.Now when nil.
	Now    func() time.Time
	Logger zerolog.Logger
}

// Service is the state that all requests to one HTTP API share. It is safe for concurrent use.
type Service struct {
	Options
	inFlight, bodies, answers atomic.Int64
	buffers                   sync.Pool
}

// NewService makes a Service.
func NewService(o Options) *Service {
	o.Limits = o.Limits.withDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{Options: o}
	s.buffers.New = func() any { b := make([]byte, 0, 4<<10); return &b }
	return s
}

// Load is the current load of a service.
type Load struct {
	// Requests is the number of requests in progress, of Limits.InFlight.
	Requests int64
	// BodyBytes is the memory of request bodies, of Limits.Bodies.
	BodyBytes int64
}

// Load returns the current load of the service.
func (s *Service) Load() Load {
	return Load{Requests: s.inFlight.Load(), BodyBytes: s.bodies.Load()}
}

// Handler is an API's handler of one exchange.
type Handler interface {
	// Handle answers the request, or returns an error.
	Handle() error
	// Explain maps any error of Handle to its answer; [ErrBug] is a panic of Handle.
	Explain(err error) *Error
	// Encode returns the media type and the body of an answer of Explain.
	Encode(e *Error) (contentType string, body []byte)
}

// ErrBug is the error of a request whose handler panicked.
var ErrBug = errors.New("the server hit a bug")

// Serve answers one request: it applies the limits, calls h, answers errors and panics, and logs
// the request. x is empty, and belongs to h.
func (s *Service) Serve(w http.ResponseWriter, r *http.Request, x *Exchange, h Handler) {
	x.begin(s, w, r)
	defer x.end(h)
	defer s.inFlight.Add(-1)
	n := s.inFlight.Add(1)
	switch {
	case s.tooMany(n):
		x.refuse(h, tooMany(n-1))
		return
	case len(r.URL.RawQuery) > s.Limits.Query:
		x.refuse(h, Errorf(http.StatusRequestURITooLong, "The query has %d bytes; this server reads at most %d.",
			len(r.URL.RawQuery), s.Limits.Query))
		return
	}
	if err := h.Handle(); err != nil {
		x.refuse(h, err)
	}
}

// ServeProbe is Serve without limits, for requests that must be answered at any load.
func (s *Service) ServeProbe(w http.ResponseWriter, r *http.Request, x *Exchange, h Handler) {
	x.begin(s, w, r)
	defer x.end(h)
	if err := h.Handle(); err != nil {
		x.refuse(h, err)
	}
}

// Refuse answers a request that does not reach a handler, with a status and the reason; see
// [Server].Refuse.
func (s *Service) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string, x *Exchange, h Handler) {
	x.begin(s, w, r)
	defer x.end(h)
	x.refuse(h, Errorf(status, "%s", reason))
}

func (s *Service) tooMany(n int64) bool { return s.Limits.InFlight > 0 && n > s.Limits.InFlight }

func tooMany(others int64) *Error {
	return Unavailable("The server has %d requests in progress already. Send the request again in a moment.", others)
}

// refuse answers with an error, unless the request is already answered.
func (x *Exchange) refuse(h Handler, err error) {
	if x.Status != 0 {
		return
	}
	e := h.Explain(err)
	x.err = e
	header := x.W.Header()
	if e.Allow != "" {
		header.Set("Allow", e.Allow)
	}
	if e.Challenge != "" {
		header.Set("Www-Authenticate", e.Challenge)
	}
	if e.Retry {
		header.Set("Retry-After", "1")
	}
	contentType, body := h.Encode(e)
	header["Content-Type"] = []string{contentType}
	x.Send(e.Status, body)
}

// end ends the exchange: it answers a panic with 500, and reports the answer to the observer and
// the log.
func (x *Exchange) end(h Handler) {
	if x.held > 0 {
		x.release(x.held)
	}
	if x.answer > 0 {
		defer x.service.answers.Add(-x.answer)
	}
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler { //nolint:errorlint // It is panicked with as it is, never wrapped.
			panic(p)
		}
		x.LogBug(p, debug.Stack())
		x.refuse(h, ErrBug)
	}
	if x.pooled != nil {
		x.service.buffers.Put(x.pooled)
		x.pooled = nil
	}
	ended := x.service.Now()
	took := ended.Sub(x.started)
	if x.service.Tracing != nil {
		x.endSpan(ended)
	}
	x.observe(took)
	x.log(took)
}
