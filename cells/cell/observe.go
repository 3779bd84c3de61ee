// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Observer gets what a cell does, for metrics.
type Observer interface {
	osapi.Observer
	// Reported is called once for each report of a host that was judged, taken or not, as Answered
	// for each request. The kind is one of package wire's, or UnknownKind.
	Reported(kind cellwire.ReportKind, taken bool)
	// NodeRefused is called for each node of a report that the cell does not take for its host.
	NodeRefused(why cellwire.NodeProblemCode)
	// Limited is called for each request of a host that is refused with 429.
	Limited()
}

// WorkRoute is the route of the requests that wait for work, whose duration says nothing about the
// cell.
const WorkRoute = "/v1/hosts/{host}/work"

// UnknownKind stands for all kinds of reports that package cellwire does not define.
const UnknownKind cellwire.ReportKind = "unknown"

// ReportKinds are the kinds of reports that there are.
func ReportKinds() []cellwire.ReportKind {
	return []cellwire.ReportKind{cellwire.ReportSpawned,
		cellwire.ReportFailed, cellwire.ReportPower, cellwire.ReportGone, cellwire.ReportSettled,
		cellwire.ReportDeparted, cellwire.ReportArrived, cellwire.ReportLeft}
}

// Waiting is how many requests of agents wait for work at the moment.
func (c *Cell) Waiting() int { return int(c.waiting.Load()) }

// Moment is now, as the cell judges by it whether hosts live.
func (c *Cell) Moment() celldb.Moment { return c.moment() }

// observeReports tells the observer of reports that were judged.
func (c *Cell) observeReports(reports []cellwire.Report, refused []string) {
	if c.config.Observer == nil {
		return
	}
	for i, why := range refused {
		c.config.Observer.Reported(knownKind(reports[i].Kind), why == "")
	}
}

func knownKind(kind cellwire.ReportKind) cellwire.ReportKind {
	for _, known := range ReportKinds() {
		if kind == known {
			return kind
		}
	}
	return UnknownKind
}
