// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/wire"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Config is what an API is made of. Store, Gatherer and Auth are required, and Boot and Quota for the calls that use them.
type Config struct {
	Store    apidb.Store
	Gatherer *gather.Gatherer
	Boot     Boots
	Quota    Quotas
	// Auth finds out who sends a request. Version documents are for everybody.
	Auth osapi.Authenticator
	// Policy decides who may do what; Nova's defaults when nil.
	Policy  *Policy
	Options Options
	// Observer is told of every answer; nil costs nothing.
	Observer Observer
	// Now is the clock; time.Now when nil.
	Now    func() time.Time
	Logger zerolog.Logger
}

// Options are Nova's own options, those that this API has. The zero Options are Nova's defaults but for ListSkipsDownCells.
type Options struct {
	// MaxLimit is how many records a list has at most ([api]max_limit); 1000 when zero, and never more than wire.MaxLimit.
	MaxLimit int
	// ListSkipsDownCells says that lists that cannot have minimal records leave out the servers of cells that are down; otherwise they are
	// refused with 500 ([api]list_records_by_skipping_down_cells).
	ListSkipsDownCells bool
	// PerProjectCells asks only the cells that a project has servers in, for lists of members ([api]instance_list_per_project_cells).
	PerProjectCells bool
	// DefaultZone is the availability zone of hosts that say nothing else (default_availability_zone); "nova" when "".
	DefaultZone string
	// Reclaim is how long softly deleted servers are kept (reclaim_instance_interval); with 0 each delete is for good.
	Reclaim time.Duration
	// Endpoint is what links begin with ([api]compute_link_prefix), as https://compute.example.org; "" takes scheme and host of the request.
	Endpoint string
}

func (o Options) withDefaults() Options {
	if o.MaxLimit <= 0 {
		o.MaxLimit = 1000
	}
	o.MaxLimit = min(o.MaxLimit, wire.MaxLimit)
	if o.DefaultZone == "" {
		o.DefaultZone = "nova"
	}
	return o
}

// Bounds of what one request may send, and of how many are worked on.
const (
	maxBody     = 114688 // bytes: the max_request_body_size of oslo.middleware
	maxQuery    = 64 << 10
	maxInFlight = 1000
	bodyTime    = 30 * time.Second
)

// API serves the compute API. It is an http.Handler and safe for concurrent use.
type API struct {
	store    apidb.Store
	gatherer *gather.Gatherer
	cells    cellReader
	boot     Boots
	quota    Quotas
	auth     osapi.Authenticator
	policy   *Policy
	options  Options
	observer Observer
	now      func() time.Time
	log      zerolog.Logger
	routes   *routeTree
	inFlight atomic.Int64
	lost     sparing // by cell: see sayLost
}

// New makes an API. It panics when the store, the gatherer or the authenticator is missing.
func New(cfg Config) *API {
	if cfg.Store == nil || cfg.Gatherer == nil || cfg.Auth == nil {
		panic("compute.New: a store, a gatherer and an authenticator are required")
	}
	a := &API{
		store:    cfg.Store,
		gatherer: cfg.Gatherer,
		cells:    gathered{cfg.Gatherer},
		boot:     cfg.Boot,
		quota:    cfg.Quota,
		auth:     cfg.Auth,
		policy:   cfg.Policy,
		options:  cfg.Options.withDefaults(),
		observer: cfg.Observer,
		now:      cfg.Now,
		log:      cfg.Logger,
		routes:   newRouteTree(allRoutes()),
	}
	if a.policy == nil {
		a.policy = DefaultPolicy()
	}
	if a.now == nil {
		a.now = time.Now
	}
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := newExchange(a, w, r.WithContext(a.gatherer.Came(r.Context())))
	defer x.finish()
	defer a.inFlight.Add(-1)
	if n := a.inFlight.Add(1); n > maxInFlight {
		x.refuse(unavailable("The server works on %d requests already. Send the request again in a moment.", n-1))
		return
	}
	if len(r.URL.RawQuery) > maxQuery {
		x.refuse(newFault(http.StatusRequestURITooLong, "The query has %d bytes; this server reads at most %d.", len(r.URL.RawQuery), maxQuery))
		return
	}
	if err := a.serve(x); err != nil {
		x.refuse(err)
	}
}

// Refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	x := newExchange(a, w, r)
	defer x.finish()
	x.refuse(newFault(status, "%s", reason))
}

// serve is the way of a request to its handler. The order of the checks is Nova's: who, route, microversion, project of the path.
func (a *API) serve(x *exchange) error {
	found := a.routes.find(x.r.Method, x.r.URL.Path)
	if found.route == nil || !found.route.open {
		if err := a.identify(x); err != nil {
			return err
		}
	}
	if found.route == nil {
		// The project in a path is one by its form, or because it is the caller's own.
		found = a.routes.findBelowProject(x.r.Method, x.r.URL.Path, x.who.Project)
	}
	switch {
	case len(found.allowed) > 0 && found.route == nil:
		return methodNotAllowed(x.r.Method, found.allowed)
	case found.route == nil:
		return newFault(http.StatusNotFound, "The resource could not be found.")
	}
	x.route, x.params, x.pathProject = found.route, found.params, found.project
	if !found.route.unversioned {
		if err := x.negotiate(); err != nil {
			return err
		}
	}
	if found.project != "" && found.project != x.who.Project {
		return badRequest("Malformed request URL: URL's project_id '%s' doesn't match Context's project_id '%s'", found.project, x.who.Project)
	}
	if since := found.route.since; since > 0 && !x.since(since) {
		return newFault(http.StatusNotFound, "The resource could not be found.")
	}
	if until := found.route.until; until > 0 && x.version > until {
		return newFault(http.StatusNotFound, "The resource could not be found.")
	}
	return found.route.handle(a, x)
}
