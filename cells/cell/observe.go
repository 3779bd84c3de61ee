// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// Observer is told of what a cell does, for metrics. Its methods are called in the goroutine of the request, at the same time by many, and must
// not block.
type Observer interface {
	// Answered is called once for each request, after its answer was written.
	Answered(Answer)
	// Reported is called once for each report of a host that was judged, taken or not. The kind is one of package wire's, or UnknownKind.
	Reported(kind wire.ReportKind, taken bool)
}

// Answer is one request that was answered. Route, Method and Status are out of small fixed sets, whatever clients send.
type Answer struct {
	// Route is the path as the protocol has it, such as "/v1/servers/{uuid}"; "" for a path that is none of its.
	Route string
	// Method is the call's; "" without a route.
	Method   string
	Status   int
	Duration time.Duration
}

// WorkRoute is the route of the requests that wait for work, whose duration says nothing about the cell.
const WorkRoute = "/v1/hosts/{host}/work"

// UnknownKind stands for all kinds of reports that are none of package wire's.
const UnknownKind wire.ReportKind = "unknown"

// ReportKinds are the kinds of reports that there are.
func ReportKinds() []wire.ReportKind {
	return []wire.ReportKind{wire.ReportSpawned, wire.ReportFailed, wire.ReportPower, wire.ReportGone, wire.ReportSettled}
}

// Waiting is how many requests of agents wait for work at the moment.
func (c *Cell) Waiting() int { return int(c.waiting.Load()) }

// Moment is now, as the cell judges by it whether hosts live.
func (c *Cell) Moment() celldb.Moment { return c.moment() }

// observed is an answer whose status is remembered, and the call that it is of.
type observed struct {
	http.ResponseWriter
	status int
	call   *call
}

// WriteHeader begins the answer.
func (o *observed) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
	o.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// beneath is the server's own writer, which closes the connection of a body that is too long.
func beneath(w http.ResponseWriter) http.ResponseWriter {
	if o, is := w.(*observed); is {
		return o.ResponseWriter
	}
	return w
}

// observe tells the observer of a request that began at a time.
func (c *Cell) observe(o *observed, began time.Time) {
	if c.config.Observer == nil {
		return
	}
	answer := Answer{Status: o.status, Duration: c.config.Now().Sub(began)}
	if o.call != nil {
		answer.Route, answer.Method = o.call.path, o.call.method
	}
	c.config.Observer.Answered(answer)
}

// observeReports tells the observer of reports that were judged.
func (c *Cell) observeReports(reports []wire.Report, refused []string) {
	if c.config.Observer == nil {
		return
	}
	for i, why := range refused {
		c.config.Observer.Reported(knownKind(reports[i].Kind), why == "")
	}
}

func knownKind(kind wire.ReportKind) wire.ReportKind {
	for _, known := range ReportKinds() {
		if kind == known {
			return kind
		}
	}
	return UnknownKind
}
