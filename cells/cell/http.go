// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 4 << 20

// call is one call of the protocol.
type call struct {
	method, path string // of osapi.Routes
	need         permission
	// do answers: a value to be written as JSON, or nil for 204.
	do func(x *exchange) (any, error)
}

// routed knows all calls.
func (c *Cell) routed() *osapi.Routes[call] {
	routes := osapi.NewRoutes[call](true)
	for _, one := range c.calls() {
		routes.Add(one.method, one.path, one)
	}
	return routes
}

// exchange is one request and its answer.
type exchange struct {
	osapi.Exchange
	cell *Cell
	call *call
	who  caller
}

// requestContext ends when the client goes away. It has the term and the origin of the request.
func (x *exchange) requestContext() context.Context { return x.R.Context() }

// readTerm puts the term of the request into its context.
func (x *exchange) readTerm() error {
	term := int64(0)
	if text := x.R.Header.Get(cellwire.HeaderTerm); text != "" {
		var err error
		if term, err = strconv.ParseInt(text, 10, 64); err != nil || term < 1 || term > maxTerm {
			return badRequest("The header %s is %.64q, not a whole number from 1 to %d.",
				cellwire.HeaderTerm, text, int64(maxTerm))
		}
	}
	if cellwire.TermOf(x.requestContext()) != term { // a client in the same process may have left its own there
		x.R = x.R.WithContext(cellwire.WithTerm(x.requestContext(), term))
	}
	return nil
}

// readOrigin puts the origin of the request into its context.
func (x *exchange) readOrigin() error {
	origin, err := cellwire.ParseOrigin(x.R.Header.Get(cellwire.HeaderOrigin))
	if err != nil {
		return err
	}
	origin.Traceparent = cmp.Or(tracing.Traceparent(x.requestContext()), origin.Traceparent)
	if cellwire.OriginOf(x.requestContext()) != origin {
		x.R = x.R.WithContext(cellwire.WithOrigin(x.requestContext(), origin))
	}
	return nil
}

// maxTerm bounds terms: there is always a higher one.
const maxTerm = 1 << 60

// ServeHTTP answers a request.
func (c *Cell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{cell: c}
	c.service.Serve(w, r, &x.Exchange, x)
}

// Refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (c *Cell) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	x := &exchange{cell: c}
	c.service.Refuse(w, r, status, reason, &x.Exchange, x)
}

// Handle finds the call, and who may make it, and makes it.
func (x *exchange) Handle() error {
	found := x.cell.routes.Find(x.R)
	switch {
	// most often a URL that was meant for another service
	case found.Err != nil && found.Err.Status == http.StatusNotFound:
		return osapi.NotFound(
			"This is a cell of compute-agent, which has no %s. Only the compute API and agents use its URL; "+
				"other clients use those of the compute API and of Placement.", osapi.Shortened(x.R.URL.Path))
	case found.Err != nil:
		return found.Err
	}
	x.Route = found.Path
	var err error
	x.call = found.Route
	if x.who, err = x.cell.authorize(x.R, found.Route.need); err != nil {
		return x.reject(found.Route, x.who, err)
	}
	if found.Route.need == hostAgentOnly {
		if err := x.limit(); err != nil {
			return err
		}
	}
	if err := x.cell.checkCell(x.R); err != nil {
		return err
	}
	if len(x.R.Header[tracing.HeaderTraceparent]) > 0 { // pings, polls and reports begin no traces
		x.Trace(true) // its clients are services and hosts
	}
	if found.Route.need == computeAPIOnly {
		if err := errors.Join(x.readTerm(), x.readOrigin()); err != nil {
			return err
		}
	}
	if err := x.cell.Check(x.requestContext()); err != nil {
		return err
	}
	trail, err := x.audit(found.Route)
	if err != nil {
		return err
	}
	answer, err := found.Route.do(x)
	trail.Failed(err)
	trail.Write(x.requestContext())
	if err == nil && found.Route.changes() && cellwire.OriginOf(x.requestContext()).RequestID != "" {
		x.logger().Info().Str("method", x.R.Method).
			Str("path", x.R.URL.Path).Msg("Carried out a change for the compute API.")
	}
	if errors.Is(err, errAnswered) {
		return nil
	}
	if err != nil {
		if errors.Is(err, celldb.ErrDamaged) {
			x.cell.damaged.CompareAndSwap(nil, &err)
		}
		return err
	}
	return x.SendJSON(answer)
}

// logger is the logger for lines about the request: with its id, and that of the client's request
// to the compute API that it serves.
func (x *exchange) logger() *zerolog.Logger {
	log := x.cell.config.Logger.With().Str("request_id", x.ID)
	if id := cellwire.OriginOf(x.requestContext()).RequestID; id != "" {
		log = log.Str("global_request_id", id)
	}
	of := log.Logger()
	return &of
}

// Check reports whether the cell can answer at all. Every request is refused while it cannot,
// whatever tables that one needs: a cell is up or down, and requests, probes and metrics say the
// same. A database that was found damaged is not used again by this process: that does not end by
// itself, and writing to it makes it worse.
func (c *Cell) Check(ctx context.Context) error {
	if damaged := c.damaged.Load(); damaged != nil {
		return *damaged
	}
	return c.config.Store.Check(ctx)
}

// checkCell refuses a request that is for another cell.
func (c *Cell) checkCell(r *http.Request) error {
	name := r.Header.Get(cellwire.HeaderCell)
	if name == "" || c.config.Name == "" || name == url.PathEscape(c.config.Name) {
		return nil
	}
	return &cellwire.Error{
		Status:  http.StatusMisdirectedRequest,
		Code:    cellwire.CodeAnotherCell,
		Message: fmt.Sprintf("this is the cell %q, and the request is for %.300q", c.config.Name, name),
	}
}

// Explain finds the answer that an error gets, and logs what the client does not get.
func (x *exchange) Explain(err error) *osapi.Error {
	var (
		e         *osapi.Error
		wireError *cellwire.Error
		large     *http.MaxBytesError
		log       = x.logger().With().Err(err).Str("method", x.R.Method).Str("path", x.R.URL.Path).Logger()
	)
	switch {
	case errors.As(err, &e):
		if e.Code == "" {
			e.Code = string(codeOf(e.Status))
		}
		return e
	case errors.As(err, &wireError):
		return refusal(wireError.Status, wireError.Code, wireError.Message)
	case errors.As(err, &large):
		return refusal(http.StatusRequestEntityTooLarge,
			cellwire.CodeTooLarge, fmt.Sprintf("The body has more than %d bytes.", large.Limit))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refusal(http.StatusServiceUnavailable,
			cellwire.CodeUnavailable, "The request was cancelled before it completed.")
	case errors.Is(err, celldb.ErrUnavailable):
		if x.cell.logLimiter.Allow("database " + err.Error()) {
			log.Error().
				Msg("The cell's database is unavailable. Requests are rejected with 503, and the compute API treats " +
					"the cell as down. Follow the error. " +
					"Logged at most once a minute per cause.")
		}
		return refusal(http.StatusServiceUnavailable, cellwire.CodeUnavailable, "The cell's database is unavailable.")
	case errors.Is(err, osapi.ErrBug):
		return refusal(http.StatusInternalServerError,
			cellwire.CodeInternal, "Internal error of the cell; see its log.")
	}
	log.Error().Msg("A request failed with an unexpected error. Nothing was written.")
	return refusal(http.StatusInternalServerError,
		cellwire.CodeInternal, "The request failed in the cell; see its log.")
}

func refusal(status int, code cellwire.Code, message string) *osapi.Error {
	return &osapi.Error{Status: status, Code: string(code), Message: message}
}

// codeOf is the code of an error that is of no call.
func codeOf(status int) cellwire.Code {
	switch status {
	case http.StatusNotFound:
		return cellwire.CodeNoCall
	case http.StatusUnauthorized:
		return cellwire.CodeUnauthorized
	case http.StatusServiceUnavailable:
		return cellwire.CodeUnavailable
	}
	return cellwire.CodeBadRequest
}

// reject is the error for a client that is unknown or not authorized.
func (x *exchange) reject(one *call, who caller, err error) error {
	var wireError *cellwire.Error
	var e *osapi.Error
	switch {
	case errors.As(err, &wireError):
		e = refusal(wireError.Status, wireError.Code, wireError.Message)
	case errors.Is(err, osapi.ErrUnauthenticated):
		e = osapi.Unauthorized(err)
	default:
		x.cell.config.Logger.Error().Err(err).Msg("Could not authenticate a request, so it was rejected.")
		return refusal(http.StatusServiceUnavailable,
			cellwire.CodeUnavailable, "The request cannot be authenticated now.")
	}
	x.cell.logRejected(x.R, one, who, e)
	return e
}

// Encode writes an error as the protocol has it.
func (x *exchange) Encode(e *osapi.Error) (contentType string, body []byte) {
	return x.EncodeJSON(cellwire.Error{Code: cellwire.Code(e.Code), Message: e.Message})
}

// decode reads the body of a request: one JSON value with no field that is not known.
func decode[T any](x *exchange) (value T, err error) {
	if content := x.R.Header.Get("Content-Type"); content != "" {
		if kind, _, err := mime.ParseMediaType(content); err != nil || kind != osapi.MediaJSON {
			return value, badRequest("The Content-Type of the body is %.64q, not application/json.", content)
		}
	}
	body, err := x.Body()
	if err != nil {
		return value, err
	}
	if err := jsonkit.Unmarshal(body, &value); err != nil {
		return value, badRequest("The body cannot be read: %.200s.", err.Error())
	}
	return value, nil
}

func badRequest(format string, args ...any) error {
	return &cellwire.Error{Status: http.StatusBadRequest,
		Code: cellwire.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}
