// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Shared header values. They are never changed.
var (
	headerJSON    = []string{wire.MediaType}
	headerText    = []string{"text/plain; charset=utf-8"}
	headerVary    = []string{wire.VaryVersion}
	headerNoCache = []string{wire.CacheControl}

	headerVersions = func() (headers [256][]string) {
		for v := range headers {
			headers[v] = []string{wire.Version(v).HeaderValue()}
		}
		return headers
	}()
)

// exchange is one request and its answer.
type exchange struct {
	osapi.Exchange
	api *API

	v          wire.Version
	negotiated bool // v is known

	// readable is the snapshot on which a read of a host was checked, for its handler; nil for all
	// other requests.
	readable *ledger.Snapshot
}

// negotiate finds the version of the answer. All answers after it have the version header.
func (x *exchange) negotiate() error {
	v, err := wire.RequestVersion(x.R.Header[wire.HeaderVersion], x.api.newest)
	if err != nil {
		return err
	}
	x.v, x.negotiated, x.Microversion = v, true, v.String()
	h := x.W.Header()
	h[wire.HeaderVersion] = headerVersions[v]
	if vary := h["Vary"]; vary == nil {
		h["Vary"] = headerVary
	} else {
		h["Vary"] = append(slices.Clone(headerVary), vary...)
	}
	return nil
}

// snapshot is the state as of now.
func (x *exchange) snapshot() (*ledger.Snapshot, error) { return x.api.ledger.Snapshot(x.R.Context()) }

// json answers with a body, followed by more. modified is the time of its last change; the zero
// time is now.
func (x *exchange) json(status int, body []byte, modified time.Time, more ...[]byte) error {
	if err := x.ReserveMemory(len(body)); err != nil { // what follows is in memory anyway
		return err
	}
	h := x.W.Header()
	h["Content-Type"] = headerJSON
	x.cacheHeaders(modified)
	x.Send(status, body, more...)
	return nil
}

// cacheHeaders sets the headers of answers from 1.15 on.
func (x *exchange) cacheHeaders(modified time.Time) {
	if !x.v.Has(wire.CacheHeaders) {
		return
	}
	if modified.IsZero() {
		modified = x.api.service.Now()
	}
	h := x.W.Header()
	h["Last-Modified"] = []string{modified.UTC().Format(http.TimeFormat)}
	h["Cache-Control"] = headerNoCache
}

// noContent answers 204.
func (x *exchange) noContent() error {
	x.Send(http.StatusNoContent, nil)
	return nil
}

// setLocation makes a path of this server the Location of the answer. It is a whole URL, as
// Placement's is.
func (x *exchange) setLocation(path string) {
	x.W.Header()["Location"] = []string{x.Base(x.api.options.Endpoint) + path}
}

// Encode writes an error in the form that the client accepts: JSON, or else HTML or plain text.
func (x *exchange) Encode(e *osapi.Error) (contentType string, body []byte) {
	item := wire.ErrorItem{Status: e.Status, Title: http.StatusText(e.Status), Detail: e.Message, RequestID: x.ID}
	switch {
	case x.negotiated && x.v.Has(wire.ErrorCodes):
		item.Code, item.NotAdmitted = wire.ErrorCode(e.Code), e.Names
	case !x.negotiated && e.Status == http.StatusNotAcceptable:
		item.MinVersion, item.MaxVersion = wire.MinVersion.String(), x.api.newest.String()
	}
	switch a := readAccept(x.R.Header.Get("Accept")); {
	case a.json > 0 && a.json >= a.html:
		return wire.MediaType, item.AppendJSON(x.Buffer())
	case a.html > 0:
		return "text/html; charset=utf-8",
			fmt.Appendf(x.Buffer(),
				"<html>\n <head>\n  <title>%d %s</title>\n </head>\n <body>\n  <h1>%[1]d %[2]s</h1>\n  %s\n "+
					"</body>\n</html>\n",
				item.Status, item.Title, html.EscapeString(item.Detail))
	}
	return headerText[0], fmt.Appendf(x.Buffer(), "%d %s\n\n%s\n", item.Status, item.Title, item.Detail)
}

// staleness logs when answers begin to be stale, and when they are current again.
type staleness struct {
	log      zerolog.Logger
	observer Observer
	now      atomic.Bool
}

// read is the state for an answer to a request that changes nothing. Without the database it may be
// stale, which a header of the answer says.
func (x *exchange) read() (*ledger.Snapshot, error) {
	if x.readable != nil {
		return x.readable, nil
	}
	s, age, err := x.api.ledger.Read(x.R.Context())
	if err != nil {
		return nil, err
	}
	stale := &x.api.stale
	if age == 0 {
		if stale.now.Load() && stale.now.CompareAndSwap(true, false) {
			stale.log.Info().Msg("The database answers again. Reads show its newest state.")
		}
		return s, nil
	}
	if stale.now.CompareAndSwap(false, true) {
		stale.log.Warn().
			Msg("The database cannot be asked for its version, so reads are answered from the state in memory, with " +
				"the header " + wire.HeaderStale +
				", until that is as old as [placement] stale_reads allows. Writes are refused. The log says why the " +
				"database cannot be used.")
	}
	if stale.observer != nil {
		stale.observer.ReadStale(age)
	}
	x.W.Header()[wire.HeaderStale] = []string{strconv.FormatInt(int64((age+time.Second-1)/time.Second), 10)}
	return s, nil
}

// extensions are the extensions that the client gets, which the answer's header lists: those that
// it requests, from wire.RequestedExtensions on, and those that the operator grants to all.
func (x *exchange) extensions() (e wire.ExtensionSet) {
	h := x.W.Header()
	if values := x.R.Header[wire.HeaderExtensions]; len(values) > 0 && x.v.Has(wire.RequestedExtensions) {
		e = wire.ReadExtensions(values)
		if vary := strings.ToLower(wire.HeaderExtensions); !slices.Contains(h["Vary"], vary) {
			h["Vary"] = append(h["Vary"], vary)
		}
	}
	if x.v.Has(wire.GranularGroups) {
		e |= x.api.granted
	}
	if e != 0 {
		h[wire.HeaderExtensions] = []string{e.String()}
	}
	return e
}
