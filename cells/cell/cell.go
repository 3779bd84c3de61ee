// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Config configures a cell.
type Config struct {
	// Name is the cell's: requests that are for another one, and hosts whose certificates are, are
	// refused. "" takes them all.
	Name  string
	Store celldb.Store
	Auth  Auth
	// Denied is the deny list of hosts; nil: none.
	Denied *pki.DenyFile
	// ReportInterval is the interval of heartbeats; 10 s when zero.
	ReportInterval time.Duration
	// ServiceDownTime is how long after its last heartbeat a host counts as up; 60 s when zero. It
	// must be longer than ReportInterval.
	ServiceDownTime time.Duration
	// MaxWait bounds how long an agent may wait for work in one request; 60 s when zero.
	MaxWait time.Duration
	// MaxWaiting bounds how many requests wait for the work of one host; 8 when zero.
	MaxWaiting int
	// StreamWait bounds how long a request for a stream waits for a host that asks another process
	// of the cell for work, or none; 3 s when zero.
	StreamWait time.Duration
	// RecheckInterval is how often the sender of a request that waits, or of a stream, is checked
	// again: its certificate expires, and its host may be put on the deny list. 5 s when zero.
	RecheckInterval time.Duration
	// Version is this program's, for GET /v1/cell.
	Version string
	// Audit receives who changed what; nil keeps nothing.
	Audit *auditlog.Log
	// Observer receives every answer and report; nil costs nothing.
	Observer Observer
	// Tracing makes spans of requests; nil is off.
	Tracing *tracing.Tracing
	// Now is the clock; time.Now when nil.
	Now    func() time.Time
	Logger zerolog.Logger
}

// Cell is the service: an http.Handler. It has no goroutines of its own; requests that wait end
// with their contexts. See [Cell.WatchChanges] where several processes have the database.
type Cell struct {
	config     Config
	service    *osapi.Service
	routes     *osapi.Routes[call]
	broadcasts broadcasts
	streams    *streams
	// logLimiter limits the log lines about refusals.
	logLimiter *osapi.LogLimiter
	// noCellLimiter limits, by host, the log lines about certificates that name no cell.
	noCellLimiter *osapi.LogLimiter
	limits        *hostLimits
	problems      loggedProblems

	waiting atomic.Int64          // requests in work
	damaged atomic.Pointer[error] // of the database; nil: none was found
}

// New makes a cell. It does not close the store.
func New(c Config) (*Cell, error) {
	if c.Store == nil || c.Auth.identify == nil {
		return nil, errors.New("a cell needs a store and an authentication method")
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"report_interval", &c.ReportInterval, 10 * time.Second},
		{"service_down_time", &c.ServiceDownTime, time.Minute},
		{"MaxWait", &c.MaxWait, time.Minute},
		{"StreamWait", &c.StreamWait, 3 * time.Second},
		{"RecheckInterval", &c.RecheckInterval, 5 * time.Second},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("%s must not be negative: it is %v", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if c.ServiceDownTime <= c.ReportInterval {
		return nil, errors.New(
			"service_down_time must be longer than report_interval, or hosts count as down between two reports")
	}
	if c.MaxWaiting <= 0 {
		c.MaxWaiting = 8
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	cell := &Cell{
		config: c, streams: newStreams(), limits: newHostLimits(c.Now),
		logLimiter: osapi.NewLogLimiter(time.Minute, c.Now), noCellLimiter: osapi.NewLogLimiter(24*time.Hour, c.Now),
	}
	// Requests that wait for work are bounded by the host.
	cell.service = osapi.NewService(osapi.Options{
		Limits:   osapi.Limits{Body: maxBody, InFlight: -1},
		Observer: c.Observer, Now: c.Now, Tracing: c.Tracing, Logger: c.Logger,
	})
	cell.routes = cell.routed()
	return cell, nil
}

// moment is now.
func (c *Cell) moment() celldb.Moment {
	return celldb.Moment{Now: serverstate.TruncateTime(c.config.Now()), DownTime: c.config.ServiceDownTime}
}

// notifyHost wakes the host of a server after a change of it. After an unexpected error the outcome
// is unknown, so all hosts are woken.
func (c *Cell) notifyHost(host string, err error) {
	var refusal *cellwire.Error
	switch {
	case err == nil && host != "":
		c.broadcasts.notify(host)
	case err != nil && !errors.As(err, &refusal):
		c.broadcasts.notifyAll()
	}
}

// waitForWork waits until the host has new work, at most for the requested time.
func (c *Cell) waitForWork(
	x *exchange, host string, after int64, epoch string, wait time.Duration,
) (cellwire.Work, error) {
	ctx := x.requestContext()
	recheck := time.NewTicker(c.config.RecheckInterval)
	defer recheck.Stop()
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	for last := wait <= 0; ; {
		// Before looking, or a change between looking and waiting would be missed.
		notified, stop := c.broadcasts.subscribe(host, c.config.MaxWaiting)
		if notified == nil {
			return cellwire.Work{}, &cellwire.Error{
				Status: http.StatusServiceUnavailable,
				Code:   cellwire.CodeUnavailable,
				Message: "Too many requests already poll for the work of this host. Does more than one agent " +
					"use its name?",
			}
		}
		work, changed, err := c.config.Store.Work(ctx, host, after, epoch, c.moment())
		if err == nil {
			if _, added := c.streams.offersTo(host, false); added || changed || last {
				stop()
				work.Streams, _ = c.streams.offersTo(host, true)
				return work, nil
			}
		}
		if err != nil {
			stop()
			return work, err
		}
		ends := c.streams.beginPoll(host, c.config.Now)
		c.waiting.Add(1)
		for waits := true; waits && err == nil; {
			waits = false
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-over:
				last = true
			case <-notified:
				err = x.recheckAccess() // what is new may be a secret
			case <-recheck.C:
				waits, err = true, x.recheckAccess()
			}
		}
		c.waiting.Add(-1)
		ends()
		stop()
		if err != nil {
			return cellwire.Work{}, err
		}
	}
}

// Observer gets what a cell does, for metrics.
type Observer interface {
	osapi.Observer
	// Reported is called once for each report of a host that was checked; taken says that it was
	// applied. The kind is one of package cellwire, or UnknownKind.
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

// Moment returns the time by the cell's clock, and how long a host counts as up after a heartbeat.
func (c *Cell) Moment() celldb.Moment { return c.moment() }

// observeReports passes checked reports to the observer.
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
