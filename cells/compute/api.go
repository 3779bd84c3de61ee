// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/admin"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/servers"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/compute/tenant"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
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
	Quota     tenant.Quotas
	// Auth finds out who sends a request. Version documents are for everybody.
	Auth osapi.Authenticator
	// Policy decides who may do what; [DefaultPolicy] when nil.
	Policy  *api.Policy
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
	// MemberPrefixes are the prefixes of extra specs that the scheduler reads beside Nova's
	// (AggregateOptions of cells/scheduler/placementcalls).
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

// Scheduler is what the API needs of a *scheduler.Scheduler.
type Scheduler interface {
	admin.Scheduler
	servers.Scheduler
}

// API serves the compute API. It is an http.Handler and safe for concurrent use.
type API struct {
	store     apidb.Store
	gatherer  *gather.Gatherer
	scheduler Scheduler
	quota     tenant.Quotas
	options   Options
	service   *api.Service
	audit     *auditlog.Log
	lost      *osapi.LogLimiter
	unread    *osapi.LogLimiter
	sessions  *servers.ConsoleSessions

	// The calls, by package: see setDeps.
	lists   serverview.Lists
	servers servers.Deps
	tenant  tenant.Deps
	admin   admin.Deps
}

// New makes an API. It panics when the store, the gatherer or the authenticator is missing.
func New(cfg Config) *API {
	if cfg.Store == nil || cfg.Gatherer == nil || cfg.Auth == nil {
		panic("compute.New: a store, a gatherer and an authenticator are required")
	}
	a := &API{
		store:     cfg.Store,
		gatherer:  cfg.Gatherer,
		scheduler: cfg.Scheduler,
		quota:     cfg.Quota,
		options:   cfg.Options.withDefaults(),
		audit:     cfg.Audit,
		sessions:  servers.NewConsoleSessions(),
	}
	now := func() time.Time { return a.service.Now() }
	a.lost = osapi.NewLogLimiter(time.Minute, now)
	a.unread = osapi.NewLogLimiter(time.Hour, now)
	a.setDeps()
	a.service = &api.Service{
		Service: osapi.NewService(osapi.Options{
			Authenticator: cfg.Auth, Limits: osapi.Limits{Body: maxBody}, Observer: cfg.Observer,
			RequestIDs: []string{api.HeaderComputeRequestID},
			LogMessage: "compute API request", Now: cfg.Now, Tracing: cfg.Tracing, Logger: cfg.Logger,
		}),
		Routes: api.NewRoutes(a.allRoutes()), Policy: cfg.Policy, Endpoint: a.options.Endpoint,
		Came: cfg.Gatherer.WithArrival,
	}
	if cfg.Policy == nil {
		a.service.Policy = DefaultPolicy()
	}
	return a
}

// setDeps says what the calls of each package may touch.
func (a *API) setDeps() {
	o := &a.options
	found := serverview.Servers{Store: a.store, Gatherer: a.gatherer, DefaultZone: o.DefaultZone}
	a.tenant = tenant.Deps{Store: a.store, Quota: a.quota,
		MaxLimit: o.MaxLimit, MemberPrefixes: o.MemberPrefixes, Unread: a.unread}
	a.admin = admin.Deps{
		Store: a.store, Gatherer: a.gatherer, Scheduler: a.scheduler,
		MaxLimit: o.MaxLimit, DefaultZone: o.DefaultZone, InternalZone: o.InternalZone,
	}
	a.lists = serverview.Lists{
		Store: a.store, Gatherer: a.gatherer, Servers: found,
		MaxLimit: o.MaxLimit, ListSkipsDownCells: o.ListSkipsDownCells, PerProjectCells: o.PerProjectCells,
	}
	a.servers = servers.Deps{
		Store: a.store, Gatherer: a.gatherer, Scheduler: a.scheduler, Servers: found,
		Tenant: &a.tenant, Hosts: &a.admin, Lost: a.lost,
		MaxLimit: o.MaxLimit, DefaultZone: o.DefaultZone, ScheduleZone: o.ScheduleZone, Reclaim: o.Reclaim,
		Consoles: a.sessions, ConsoleURL: o.ConsoleURL, TokenTTL: o.TokenTTL,
	}
}

// allRoutes are all calls of the API. Each package of calls has a list of its routes.
func (a *API) allRoutes() []api.Route {
	return slices.Concat(
		a.versionRoutes(),
		a.lists.Routes(),
		a.tenant.Routes(),
		a.admin.Routes(),
		a.servers.Routes(),
		[]api.Route{{Method: "POST", Path: "/v2.1/servers/{id}/action", Actions: a.servers.Actions()}},
	)
}

// Call is one call of the API, for documentation and tests.
type Call struct {
	Method string
	// Path has {name} for a segment.
	Path string
	// Open calls are for everybody, known or not.
	Open bool
}

// Calls are all calls of the API.
func Calls() []Call {
	var all []Call
	for _, r := range new(API).allRoutes() {
		all = append(all, Call{Method: r.Method, Path: r.Path, Open: r.Open})
	}
	return all
}

// rulesOfAll are the rules that the calls ask for.
func rulesOfAll() []api.Rule { return api.RulesOf(new(API).allRoutes()) }

// DefaultPolicy has Nova's new defaults: administrators, members of the project, readers of the
// project.
func DefaultPolicy() *api.Policy { return api.NewPolicy(rulesOfAll()) }

// OpenPolicy makes a Policy of the defaults and a file, in the format of oslo.policy's policy.yaml.
func OpenPolicy(path string, log zerolog.Logger) (*api.Policy, error) {
	return api.OpenPolicy(rulesOfAll(), path, log)
}

// incoming is a request on its way to its handler.
type incoming struct {
	api.Exchange
	api *API
}

func (a *API) incoming() *incoming { return &incoming{api.Exchange{Service: a.service}, a} }

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := a.incoming()
	a.service.Serve(w, r.WithContext(a.gatherer.WithArrival(r.Context())), &in.Exchange.Exchange, in)
}

// Refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	in := a.incoming()
	a.service.Refuse(w, r, status, reason, &in.Exchange.Exchange, in)
}

// CloseConsoles ends all consoles and waits for that. Call it when no request is answered any more.
func (a *API) CloseConsoles() { a.sessions.Close() }

// InFlight is how many requests are worked on at the moment.
func (a *API) InFlight() int64 { return a.service.Load().Requests }

// Handle is the way of a request to its handler.
func (in *incoming) Handle() error {
	x := &in.Exchange
	x.Routine = x.Reading()
	if x.R.URL.Path == servers.ConsolePath {
		return in.api.servers.ServeConsole(x)
	}
	if err := x.Resolve(); err != nil {
		return err
	}
	if !x.Reading() {
		x.R = x.R.WithContext(cellwire.WithOrigin(x.Context(), cellwire.Origin{
			RequestID: x.ID, UserID: x.Caller.User, ProjectID: x.Caller.Project,
			Traceparent: tracing.Traceparent(x.Context()),
		}))
	}
	if err := in.api.record(x); err != nil {
		return err
	}
	return x.Answer()
}

// Explain is how an error of any kind is answered.
func (in *incoming) Explain(err error) *osapi.Error {
	var f *osapi.Error
	var large *http.MaxBytesError
	var wrong *cellwire.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &large):
		return osapi.Errorf(http.StatusRequestEntityTooLarge,
			"Request is too large. Larger than max_request_body_size (%d).", large.Limit)
	case errors.As(err, &wrong) && wrong.Status == http.StatusBadRequest: // a query that no cell would take
		return osapi.BadRequest("%s", osapi.Shortened(wrong.Message))
	case errors.Is(err, apidb.ErrUnavailable):
		return osapi.Unavailable("The API database cannot be used now. Send the request again in a moment.").
			Because(err)
	case errors.Is(err, gather.ErrDown):
		return cellDown(err)
	case errors.Is(err, context.Canceled) && in.R.Context().Err() != nil:
		return osapi.Errorf(statusClientClosed, "The request was given up.").Because(err) // the client is gone
	case errors.Is(err, quota.ErrUsageUnknown):
		return osapi.Unavailable(
			"The Placement service cannot be used now, so the usage of the project is not known. Send the request " +
				"again later.").Because(err)
	}
	return osapi.Errorf(http.StatusInternalServerError,
		"Unexpected API Error. The log of the compute API says more, under the request id %s.", in.ID).Because(err)
}

// cellDown is the 500 for what cannot be done with a server because its cell is down. Nova's
// sentence for it is "Unexpected API Error"; its tests look for the name of the exception.
func cellDown(err error) *osapi.Error {
	return osapi.Errorf(http.StatusInternalServerError,
		"NovaException: The server's cell is not responding. Try again when it is back.").Because(err)
}

// statusClientClosed is in the log for requests whose client went away, as nginx has it.
const statusClientClosed = 499
