// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Config configures an API. Store, Gatherer and Auth are required, and Scheduler and Quota for
// the calls that use them.
type Config struct {
	Store     apidb.Store
	Gatherer  *gather.Gatherer
	Scheduler Scheduler
	Quota     Quotas
	// Auth finds out who sends a request. Version documents are for everybody.
	Auth osapi.Authenticator
	// Policy decides who may do what; Nova's defaults when nil.
	Policy  *Policy
	Options Options
	// Audit receives who changed what; nil keeps nothing. The Store notes what it changed.
	Audit *auditlog.Log
	// Observer receives every answer; nil costs nothing.
	Observer osapi.Observer
	// Tracing makes spans of requests; nil is off.
	Tracing *tracing.Tracing
	// Now is the clock; time.Now when nil.
	Now    func() time.Time
	Logger zerolog.Logger
}

// Options are Nova's own options, those that this API has. The zero Options are Nova's defaults but
// for ListSkipsDownCells.
type Options struct {
	// MaxLimit is how many records a list has at most ([api]max_limit); 1000 when zero, and never
	// more than cellwire.MaxLimit.
	MaxLimit int
	// ListSkipsDownCells says that lists that cannot have minimal records leave out the servers of
	// cells that are down; otherwise they are refused with 500
	// ([api]list_records_by_skipping_down_cells).
	ListSkipsDownCells bool
	// PerProjectCells asks only the cells that a project has servers in, for lists of members
	// ([api]instance_list_per_project_cells).
	PerProjectCells bool
	// DefaultZone is the availability zone of hosts that say nothing else
	// (default_availability_zone); "nova" when "".
	DefaultZone string
	// InternalZone is a zone that members do not see in lists (internal_service_availability_zone);
	// "internal" when "".
	InternalZone string
	// ScheduleZone is the zone of servers that are asked for without one (default_schedule_zone);
	// "" is any.
	ScheduleZone string
	// Reclaim is how long softly deleted servers are kept (reclaim_instance_interval); with 0 each
	// delete is for good.
	Reclaim time.Duration
	// ConfirmAfter is after how long migrations are confirmed (resize_confirm_window); with 0 only
	// by clients.
	ConfirmAfter time.Duration
	// ConsoleURL is what the URLs of serial consoles begin with ([serial_console]base_url), as
	// https://consoles.example.org/serial-console; "" is that path of this API.
	ConsoleURL string
	// TokenTTL is how long such a URL can be used ([consoleauth]token_ttl); ten minutes when zero.
	TokenTTL time.Duration
	// MemberPrefixes are those of extra specs that the scheduler reads beside Nova's
	// ([scheduler.AggregateOptions]).
	MemberPrefixes []string
	// Endpoint is what links begin with ([api]compute_link_prefix), as https://compute.example.org;
	// "" takes scheme and host of the request.
	Endpoint string
}

func (o Options) withDefaults() Options {
	if o.MaxLimit <= 0 {
		o.MaxLimit = 1000
	}
	o.MaxLimit = min(o.MaxLimit, cellwire.MaxLimit)
	if o.TokenTTL <= 0 {
		o.TokenTTL = 10 * time.Minute
	}
	if o.DefaultZone == "" {
		o.DefaultZone = "nova"
	}
	if o.InternalZone == "" {
		o.InternalZone = "internal"
	}
	return o
}

// maxBody bounds the body of a request in bytes: the max_request_body_size of oslo.middleware.
const maxBody = 114688

// API serves the compute API. It is an http.Handler and safe for concurrent use.
type API struct {
	store     apidb.Store
	gatherer  *gather.Gatherer
	cells     cellReader
	scheduler Scheduler
	quota     Quotas
	policy    *Policy
	options   Options
	service   *osapi.Service
	audit     *auditlog.Log
	routes    *osapi.Routes[route]
	lost      *osapi.LogLimiter // by cell: see logLost
	unread    *osapi.LogLimiter // by flavor and extra spec: see logUnread
	consoles  *consoles
}

// New makes an API. It panics when the store, the gatherer or the authenticator is missing.
func New(cfg Config) *API {
	if cfg.Store == nil || cfg.Gatherer == nil || cfg.Auth == nil {
		panic("compute.New: a store, a gatherer and an authenticator are required")
	}
	a := &API{
		store:     cfg.Store,
		gatherer:  cfg.Gatherer,
		cells:     gatherReader{cfg.Gatherer},
		scheduler: cfg.Scheduler,
		quota:     cfg.Quota,
		policy:    cfg.Policy,
		options:   cfg.Options.withDefaults(),
		audit:     cfg.Audit,
		service: osapi.NewService(osapi.Options{
			Authenticator: cfg.Auth, Limits: osapi.Limits{Body: maxBody}, Observer: cfg.Observer, RequestIDs: []string{headerComputeRequestID},
			LogMessage: "compute API request", Now: cfg.Now, Tracing: cfg.Tracing, Logger: cfg.Logger,
		}),
		routes:   newRoutes(allRoutes()),
		consoles: newConsoles(),
	}
	a.lost = osapi.NewLogLimiter(time.Minute, func() time.Time { return a.service.Now() })
	a.unread = osapi.NewLogLimiter(time.Hour, func() time.Time { return a.service.Now() })
	if a.policy == nil {
		a.policy = DefaultPolicy()
	}
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{api: a}
	a.service.Serve(w, r.WithContext(a.gatherer.Came(r.Context())), &x.Exchange, x)
}

// Refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	x := &exchange{api: a}
	a.service.Refuse(w, r, status, reason, &x.Exchange, x)
}

// InFlight is how many requests are worked on at the moment.
func (a *API) InFlight() int64 { return a.service.Load().Requests }

// novaOnly are the first parts of paths that Nova has, or had, and this service has not.
var novaOnly = []string{
	"extensions", "images", "os-agents", "os-cells", "os-floating-ips", "os-fixed-ips", "os-hosts", "os-networks", "os-security-groups",
	"os-server-external-events", "os-simple-tenant-usage", "os-snapshots", "os-tenant-networks", "os-volumes",
}

// absent is the error for an unknown path. It names what a client of Nova may have meant.
func absent(path string, err *osapi.Error) error {
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case err.Status != http.StatusNotFound || !slices.Contains(novaOnly, part):
		case part == "os-hosts":
			return osapi.NotFound("This service has no os-hosts: `openstack compute service list` and `openstack hypervisor list` show the hosts.")
		default:
			return osapi.NotFound("This service has no %s; docs/cells.md lists the calls that it has.", part)
		}
	}
	return err
}

// Handle is the way of a request to its handler. The order of the checks is Nova's: who, route,
// microversion, project of the path.
func (x *exchange) Handle() error {
	x.Routine = x.R.Method == http.MethodGet || x.R.Method == http.MethodHead
	if x.R.URL.Path == consolePath {
		return x.console()
	}
	found := x.find(x.R.URL.Path)
	if found.Route == nil || !found.Route.open {
		if err := x.identify(); err != nil {
			return err
		}
	}
	if found.Route == nil {
		// The project in a path is one by its form, or because it is the caller's own.
		if project, path, is := belowProject(x.R.URL.Path, x.Who.Project); is {
			x.pathProject, found = project, x.find(path)
		}
	}
	if found.Err != nil {
		return absent(x.R.URL.Path, found.Err)
	}
	if !x.Routine {
		x.R = x.R.WithContext(cellwire.WithOrigin(x.ctx(), cellwire.Origin{
			RequestID: x.ID, UserID: x.Who.User, ProjectID: x.Who.Project, Traceparent: tracing.Traceparent(x.ctx()),
		}))
	}
	route := found.Route
	x.route = route
	x.Route, x.Routine = route.path, x.Routine || route.open
	if !route.unversioned {
		if err := x.negotiate(); err != nil {
			return err
		}
	}
	switch {
	case x.pathProject != "" && x.pathProject != x.Who.Project:
		return badRequest("Malformed request URL: URL's project_id '%s' doesn't match Context's project_id '%s'", x.pathProject, x.Who.Project)
	case route.since > 0 && !x.since(route.since), route.until > 0 && x.version > route.until:
		return osapi.NoRoute()
	}
	if err := x.audit(); err != nil {
		return err
	}
	return route.handle(x.api, x)
}
