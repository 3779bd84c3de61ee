// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/wire"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 4 << 20

// call is one call of the protocol.
type call struct {
	method, path string // of http.ServeMux
	need         right
	// do answers: a value to be written as JSON, or nil for 204.
	do func(r *http.Request) (any, error)
}

// routed knows all calls.
func (c *Cell) routed() *http.ServeMux {
	mux := http.NewServeMux()
	for _, one := range c.calls() {
		mux.HandleFunc(one.method+" "+one.path, func(w http.ResponseWriter, r *http.Request) {
			if o, is := w.(*observed); is {
				o.call = &one
			}
			c.serve(w, r, one)
		})
	}
	return mux
}

// outcome is a response of the mux's own that is not sent: only its status and header are of interest.
type outcome struct {
	header http.Header
	status int
}

func (o *outcome) Header() http.Header         { return o.header }
func (o *outcome) WriteHeader(status int)      { o.status = status }
func (o *outcome) Write(p []byte) (int, error) { return len(p), nil }

var noPath = &wire.Error{Status: http.StatusNotFound, Code: wire.CodeNoCall, Message: "There is no such call."}

// ServeHTTP answers a request.
func (c *Cell) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	w := &observed{ResponseWriter: answer}
	defer c.observe(w, c.config.Now())
	defer func() {
		if p := recover(); p != nil {
			c.config.Logger.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Str("method", r.Method).Str("path", r.URL.Path).
				Msg("A request was not finished because of a mistake in this program. The cell goes on; please report this with what is above.")
			c.refuse(w, r, &wire.Error{Status: http.StatusInternalServerError, Code: wire.CodeInternal, Message: "The cell made a mistake; its log says more."})
		}
	}()
	// The mux would redirect to what it thinks was meant.
	if !strings.HasPrefix(r.URL.Path, "/") || path.Clean(r.URL.Path) != r.URL.Path {
		c.refuse(w, r, noPath)
		return
	}
	if own, pattern := c.routes.Handler(r); pattern == "" {
		o := outcome{header: http.Header{}}
		if own.ServeHTTP(&o, r); o.status != http.StatusMethodNotAllowed {
			c.refuse(w, r, noPath)
			return
		}
		allow := o.header.Get("Allow")
		w.Header().Set("Allow", allow)
		c.refuse(w, r, &wire.Error{Status: o.status, Code: wire.CodeBadRequest, Message: fmt.Sprintf("The method %.32q is not for this path, but %s.", r.Method, allow)})
		return
	}
	c.routes.ServeHTTP(w, r)
}

// Refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (c *Cell) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	c.refuse(w, r, &wire.Error{Status: status, Code: wire.CodeBadRequest, Message: reason})
}

func (c *Cell) serve(w http.ResponseWriter, r *http.Request, one call) {
	if who, err := c.config.Auth.admit(r, one.need, r.PathValue("host")); err != nil {
		c.turnAway(w, r, one, who, err)
		return
	}
	if err := c.meant(r); err != nil {
		c.refuse(w, r, err)
		return
	}
	if err := c.Check(r.Context()); err != nil {
		c.refuse(w, r, err)
		return
	}
	r.Body = http.MaxBytesReader(beneath(w), r.Body, maxBody)
	answer, err := one.do(r)
	if err != nil {
		if errors.Is(err, celldb.ErrDamaged) {
			c.damaged.CompareAndSwap(nil, &err)
		}
		c.refuse(w, r, err)
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.write(w, http.StatusOK, answer)
}

// Check reports whether the cell can answer at all. Every request is refused while it cannot, whatever tables that one needs: a cell is up or down, and
// requests, probes and metrics say the same. A database that was found damaged is not used again by this process: that does not end by itself, and
// writing to it makes it worse.
func (c *Cell) Check(ctx context.Context) error {
	if damaged := c.damaged.Load(); damaged != nil {
		return *damaged
	}
	return c.config.Store.Check(ctx)
}

// meant refuses a request that is for another cell.
func (c *Cell) meant(r *http.Request) error {
	name := r.Header.Get(wire.HeaderCell)
	if name == "" || c.config.Name == "" || name == url.PathEscape(c.config.Name) {
		return nil
	}
	return &wire.Error{Status: http.StatusMisdirectedRequest, Code: wire.CodeAnotherCell, Message: fmt.Sprintf("this is the cell %q, and the request is for %.300q", c.config.Name, name)}
}

// refuse answers with an error.
func (c *Cell) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *wire.Error
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		refusal = &wire.Error{Status: http.StatusServiceUnavailable, Code: wire.CodeUnavailable, Message: "The request was ended before it was done."}
	case errors.Is(err, celldb.ErrUnavailable):
		if c.refused.Allow("database " + err.Error()) {
			c.config.Logger.Error().Err(err).Str("method", r.Method).Str("path", r.URL.Path).
				Msg("The cell's database cannot be used. The request is refused, and the compute API takes the cell for down until it can. Do what the error says. " +
					"This is logged once a minute for each cause.")
		}
		refusal = &wire.Error{Status: http.StatusServiceUnavailable, Code: wire.CodeUnavailable, Message: "The cell's database cannot be used now."}
	default:
		c.config.Logger.Error().Err(err).Str("method", r.Method).Str("path", r.URL.Path).Msg("A request failed in a way that this program does not know. Look at the error; nothing was written.")
		refusal = &wire.Error{Status: http.StatusInternalServerError, Code: wire.CodeInternal, Message: "The cell could not do this; its log says more."}
	}
	c.write(w, refusal.Status, refusal)
}

// turnAway answers a request of somebody who is not known, or may not.
func (c *Cell) turnAway(w http.ResponseWriter, r *http.Request, one call, who caller, err error) {
	var refusal *wire.Error
	var unknown *osapi.Unauthenticated
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, osapi.ErrUnauthenticated):
		if errors.As(err, &unknown) && unknown.Challenge != "" {
			w.Header().Set("WWW-Authenticate", unknown.Challenge)
		}
		refusal = &wire.Error{Status: http.StatusUnauthorized, Code: wire.CodeUnauthorized, Message: err.Error()}
	default:
		c.config.Logger.Error().Err(err).Msg("Who sends a request could not be found out, so it was refused. Look at the error.")
		refusal = &wire.Error{Status: http.StatusServiceUnavailable, Code: wire.CodeUnavailable, Message: "Who sends the request could not be found out now."}
	}
	if refusal.Status < http.StatusInternalServerError {
		c.warn(r, one, who, refusal)
	}
	c.refuse(w, r, refusal)
}

// write writes an answer, whole before anything is sent.
func (c *Cell) write(w http.ResponseWriter, status int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		c.config.Logger.Error().Err(err).Msg("An answer could not be written as JSON, because of a mistake in this program.")
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal","message":"The answer could not be written."}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that went away needs nothing
}

// decode reads the body of a request: one JSON value with no field that is not known.
func decode[T any](r *http.Request) (value T, err error) {
	if content := r.Header.Get("Content-Type"); content != "" {
		if kind, _, err := mime.ParseMediaType(content); err != nil || kind != "application/json" {
			return value, badRequest("The body is said to be %.64q, not application/json.", content)
		}
	}
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return value, &wire.Error{Status: http.StatusRequestEntityTooLarge, Code: wire.CodeTooLarge, Message: fmt.Sprintf("The body has more than %d bytes.", maxBody)}
	case err != nil:
		return value, badRequest("The body could not be read: %v.", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return value, badRequest("The body cannot be read: %.200s.", err.Error())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return value, badRequest("There is something behind the JSON of the body.")
	}
	return value, nil
}

func badRequest(format string, args ...any) error {
	return &wire.Error{Status: http.StatusBadRequest, Code: wire.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}
