// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// The headers that carry the id of a request. X-Openstack-Request-Id is that of all services, the other Nova's own.
const (
	headerRequestID        = "X-Openstack-Request-Id"
	headerComputeRequestID = "X-Compute-Request-Id"
)

// requestIDForm is that of ids that other services send, so that a request can be followed through all of them.
var requestIDForm = regexp.MustCompile(`^req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// exchange is one request and its answer.
type exchange struct {
	w   http.ResponseWriter
	r   *http.Request
	api *API

	id      string
	started time.Time
	who     osapi.Principal
	version Version
	echo    string // the microversion that the answer shows, "" for none

	route       *route
	params      []string
	pathProject string // the project in the path, "" for none

	status int // sent; 0: nothing yet
	size   int
	cause  error // behind a refusal, for the log
}

func newExchange(a *API, w http.ResponseWriter, r *http.Request) *exchange {
	return &exchange{w: w, r: r, api: a, id: newRequestID(), started: a.now()}
}

// newRequestID makes an id as OpenStack's services do: "req-" and a random UUID. It identifies and protects nothing.
func newRequestID() string {
	hi, lo := rand.Uint64(), rand.Uint64()
	hi = hi&^0xf000 | 0x4000
	lo = lo&^(3<<62) | 1<<63
	return fmt.Sprintf("req-%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&0xffffffffffff)
}

// ctx ends when the client goes away.
func (x *exchange) ctx() context.Context { return x.r.Context() }

// query are the parameters of the request; what cannot be read is refused. A semicolon is a character like others, as in Nova.
func (x *exchange) query() (url.Values, error) {
	values, err := url.ParseQuery(strings.ReplaceAll(x.r.URL.RawQuery, ";", "%3B"))
	if err != nil {
		return nil, badRequest("The query of the request cannot be read: %s.", shortened(err.Error()))
	}
	return values, nil
}

// body is what the client sent: at most maxBody bytes, within bodyTime.
func (x *exchange) body() ([]byte, error) {
	if x.r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	// Not every ResponseWriter has deadlines; those of tests need none.
	control := http.NewResponseController(x.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	data, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge()
	case err != nil:
		return nil, badRequest("The body of the request did not arrive: %s.", shortened(err.Error()))
	}
	x.r = x.r.WithContext(x.api.gatherer.Came(x.ctx())) // what the client took for its body is not what the cells are to make up for
	return data, nil
}

func tooLarge() error {
	return newFault(http.StatusRequestEntityTooLarge, "Request is too large. Larger than max_request_body_size (%d).", maxBody)
}

// json answers with a value as JSON.
func (x *exchange) json(status int, body any) error {
	data, err := encode(body)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.send(status, data)
	return nil
}

// empty answers without a body: 204, or 202 as some actions do.
func (x *exchange) empty(status int) error {
	x.send(status, nil)
	return nil
}

// header are those of the answer, to be set before it.
func (x *exchange) header() http.Header { return x.w.Header() }

func (x *exchange) send(status int, body []byte) {
	h := x.w.Header()
	h.Set(headerRequestID, x.id)
	h.Set(headerComputeRequestID, x.id)
	if x.echo != "" {
		h.Set(headerVersion, serviceType+" "+x.echo)
		h.Set(headerVersionLegacy, x.echo)
		h.Add("Vary", headerVersion)
		h.Add("Vary", headerVersionLegacy)
	}
	if status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	x.status, x.size = status, len(body)
	x.w.WriteHeader(status)
	if len(body) > 0 && x.r.Method != http.MethodHead {
		_, _ = x.w.Write(body) // An error here is that the client is gone; nobody is left to tell.
	}
}

// finish ends the exchange: what panicked is answered with 500, and the log gets its line.
func (x *exchange) finish() {
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler { //nolint:errorlint // It is panicked with as it is, never wrapped.
			panic(p)
		}
		x.api.log.Error().Str("request_id", x.id).Str("method", shortened(x.r.Method)).Str("path", shortened(x.r.URL.Path)).
			Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).
			Msg("A request ran into a bug in the compute API and was answered with 500; other requests are not touched. Please report it with this stack.")
		if x.status == 0 {
			x.refuse(fmt.Errorf("panic: %v", p))
		}
	}
	x.observe()
	x.logLine()
}

// maxLoggedQuery is how long a query may be that is logged as a whole, so that it can be asked again, in bytes. That of who is not known is
// shortened to less.
const maxLoggedQuery = 8 << 10

// logLine writes the line that every request gets: Info, or Error with its cause where the service is to blame, or Debug if it is ordinary.
func (x *exchange) logLine() {
	var line *zerolog.Event
	took := x.api.now().Sub(x.started)
	switch {
	case x.status >= http.StatusInternalServerError:
		line = x.api.log.Error().AnErr("cause", x.cause)
	case x.ordinary(took):
		line = x.api.log.Debug()
	default:
		line = x.api.log.Info()
	}
	if !line.Enabled() {
		return
	}
	line = line.Str("request_id", x.id).Str("remote", x.r.RemoteAddr).Str("method", shortened(x.r.Method)).
		Str("path", shortened(x.r.URL.Path)).Int("status", x.status).Int("bytes", x.size).Dur("duration", took)
	if query := x.r.URL.RawQuery; query != "" {
		if x.who.User == "" || len(query) > maxLoggedQuery {
			query = shortened(query)
		}
		line = line.Str("query", query)
	}
	if id := x.r.Header.Get(headerRequestID); requestIDForm.MatchString(id) {
		line = line.Str("global_request_id", id)
	}
	if x.echo != "" {
		line = line.Str("microversion", shortened(x.echo))
	}
	if x.who.User != "" {
		line = line.Str("user", shortened(x.who.User)).Str("project", shortened(x.who.Project))
	}
	line.Msg("compute API request")
}

// shortened is what a client sent, cut off for a log or an error.
func shortened(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
