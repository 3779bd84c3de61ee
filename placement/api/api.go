// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Ledger is the part of *transactor.Ledger that the API uses.
type Ledger interface {
	Snapshot(ctx context.Context) (*ledger.Snapshot, error)
	Read(ctx context.Context) (*ledger.Snapshot, time.Duration, error)
	Update(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error)
}

// Config configures an API. Only the Ledger and the Authenticator are required.
type Config struct {
	Ledger        Ledger
	Authenticator osapi.Authenticator
	Policy        Policy
	CORS          CORS
	Options       Options
	Limits        osapi.Limits
	Logger        zerolog.Logger
	// Problem is the reason why writes fail now, for /readyz; nil if it is not known.
	Problem func() error
	// Stopping says that the server is about to stop, for /readyz; nil if it is not known.
	Stopping func() bool
	// Audit receives what every write changed; nil keeps nothing.
	Audit *auditlog.Log
	// Tracing makes spans of requests; nil is off.
	Tracing *tracing.Tracing
	// Observer receives every answer; nil costs nothing.
	Observer Observer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Options are Placement's own options, those of its [placement] section that this API has.
type Options struct {
	// IncompleteProjectID and IncompleteUserID own consumers that are written without owners, which
	// is possible before 1.8. The default is IncompleteID.
	IncompleteProjectID, IncompleteUserID string
	// MaxCandidates bounds the allocation candidates of one request (max_allocation_candidates),
	// whatever its limit. Below 1, only the server's own bound applies.
	MaxCandidates int
	// DepthFirst returns all candidates of one root provider before those of the next
	// (allocation_candidates_generation_strategy depth-first). Otherwise the roots alternate.
	DepthFirst bool
	// Endpoint is what the URLs in Location headers begin with, for a server behind a proxy. Empty
	// means scheme and host of the request.
	Endpoint string
	// Extensions are granted to all clients from microversion 1.25 on, requested or not. The names
	// are those of the header Placement-Extensions, see wire.Extensions. Unknown names have no
	// effect.
	Extensions []string
	// HostCapacityFactor bounds how much of each resource class a host reports: that many times
	// what it reported within HostAdmissionWindow after it came, or what an operator has stated.
	// Below 1, nothing does.
	HostCapacityFactor  int
	HostAdmissionWindow time.Duration
	// HostClassRenames are resource classes of hosts that have another name now, each as "OLD=NEW":
	// a reshape of a host may give what a consumer has of one the other name, and the amounts of
	// both count as those of one. Others have no effect.
	HostClassRenames []string
	// Randomize returns candidates in random order, and selects them at random if there are more
	// than requested (randomize_allocation_candidates).
	Randomize bool
}

// IncompleteID is Placement's default owner of consumers that are written without owners.
const IncompleteID = "00000000-0000-0000-0000-000000000000"

// API serves the Placement API. It is an http.Handler and safe for concurrent use.
type API struct {
	service  *osapi.Service
	routes   *osapi.Routes[endpoint]
	ledger   Ledger
	policy   Policy
	cors     CORS
	options  Options
	observer Observer
	audit    *auditlog.Log
	problem  func() error
	stopping func() bool
	answers  candidateAnswers
	rotated  rotations
	granted  wire.ExtensionSet // to all clients
	newest   wire.Version
	stale    staleness
	hosts    *hostpolicy.Policy
}

// New makes an API. It panics without a ledger or an authenticator.
func New(cfg Config) *API {
	if cfg.Ledger == nil || cfg.Authenticator == nil {
		panic("api.New: a ledger and an authenticator are required")
	}
	a := &API{
		service: osapi.NewService(osapi.Options{
			Authenticator: cfg.Authenticator, Limits: cfg.Limits, Observer: cfg.Observer, LogMessage: "request",
			Now: cfg.Now, Tracing: cfg.Tracing, Logger: cfg.Logger,
		}),
		routes:   newRoutes(),
		ledger:   cfg.Ledger,
		policy:   cfg.Policy,
		cors:     cfg.CORS,
		options:  cfg.Options,
		observer: cfg.Observer,
		audit:    cfg.Audit,
		problem:  cfg.Problem,
		stale:    staleness{log: cfg.Logger, observer: cfg.Observer},
		stopping: cfg.Stopping,
		newest:   wire.MaxVersion,
	}
	if a.stopping == nil {
		a.stopping = func() bool { return false }
	}
	if a.problem == nil {
		a.problem = func() error { return nil }
	}
	if a.options.IncompleteProjectID == "" {
		a.options.IncompleteProjectID = IncompleteID
	}
	if a.options.IncompleteUserID == "" {
		a.options.IncompleteUserID = IncompleteID
	}
	a.hosts = hostpolicy.New(a.hostDeps())
	a.rotated.seed = maphash.MakeSeed()
	a.granted = wire.ReadExtensions(a.options.Extensions)
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" { // a caller within the process may request the root like this
		root := *r.URL
		root.Path = "/"
		r = r.WithContext(r.Context())
		r.URL = &root
	}
	x := &exchange{api: a}
	switch r.URL.Path {
	case "/healthz", "/readyz":
		a.service.ServeProbe(w, r, &x.Exchange, probe{x})
	default:
		a.service.Serve(w, r, &x.Exchange, x)
	}
}

// Refuse answers a request that does not reach ServeHTTP, with a status and the reason.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	x := &exchange{api: a}
	a.service.Refuse(w, r, status, reason, &x.Exchange, x)
}

// Handle runs the checks that all routes share, and then those of the route.
func (x *exchange) Handle() error {
	if cors := &x.api.cors; cors.enabled() {
		if x.R.Method == http.MethodOptions {
			cors.preflight(x.W.Header(), x.R)
			x.Send(http.StatusOK, nil)
			return nil
		}
		cors.allow(x.W.Header(), x.R)
	}
	if err := x.authenticate(); err != nil {
		return err
	}
	found := x.api.routes.Find(x.R)
	x.Route = found.Path
	if found.Err != nil {
		return found.Err
	}
	return x.serve(found.Route, found.Allow)
}

// authenticate finds out who sends the request, and negotiates its version. GET / needs no
// authentication.
func (x *exchange) authenticate() error {
	if x.R.URL.Path != "/" {
		if err := x.Authenticate(); err != nil {
			return err
		}
		x.api.hosts.CompareAgents(&x.Exchange, func() bool {
			return x.api.policy.Allows(UpdateProvider, &x.Caller, "")
		})
	}
	err := x.negotiate()
	switch {
	case errors.Is(err, wire.ErrUnacceptableVersion):
		return osapi.Errorf(http.StatusNotAcceptable, "Invalid microversion: %s.", shortened(err.Error()))
	case err != nil:
		return badRequest("Invalid microversion: %s.", shortened(err.Error()))
	}
	if x.R.ContentLength > 0 && x.R.Header.Get("Content-Type") == "" {
		return badRequest("A content-type header required when content-length > 0 is missing; send application/json.")
	}
	return nil
}

// probe answers /healthz (the process serves) and /readyz (the state is loaded, the database can be
// read, and writes to it do not fail). Neither needs a token.
type probe struct{ *exchange }

// Handle answers.
func (p probe) Handle() error {
	p.Route = p.R.URL.Path
	if p.R.Method != http.MethodGet && p.R.Method != http.MethodHead {
		return osapi.NoMethod(p.R.Method, "GET, HEAD")
	}
	p.Routine = true
	if p.Route == "/readyz" {
		if p.api.stopping() {
			return osapi.Errorf(http.StatusServiceUnavailable,
				"The server is not ready: it is about to stop. Requests are still answered.")
		}
		if _, err := p.snapshot(); err != nil {
			return osapi.Errorf(http.StatusServiceUnavailable, "The server is not ready: its database cannot be read.").
				Because(err)
		}
		if err := p.api.problem(); err != nil {
			return osapi.Errorf(http.StatusServiceUnavailable,
				"The server is not ready: its database cannot be written to: %s. Reading is possible.",
				engine.Reason(err)).Because(err)
		}
		if err := p.api.audit.Refusal(); err != nil {
			return osapi.Errorf(
				http.StatusServiceUnavailable,
				"The server is not ready: its audit log cannot be written to, so that it refuses writes ([audit] "+
					"required). Reading is possible.",
			).Because(err)
		}
	}
	p.W.Header()["Content-Type"] = headerText
	p.Send(http.StatusOK, []byte("ok\n"))
	return nil
}

// Observer receives the events of the API, for metrics.
type Observer interface {
	osapi.Observer
	// Searched is called once for each search for allocation candidates, as Answered for each
	// request.
	Searched(Search)
	// ReadStale is called for each read that was answered from a state of an age.
	ReadStale(age time.Duration)
	// HostLimited is called for each write of a host that is refused with 429.
	HostLimited()
}

// Search is one search for allocation candidates.
type Search struct {
	// Candidates is how many were returned.
	Candidates int
	// Steps is the number of assignments that the search tried.
	Steps int
}

// Load returns the current load of the API.
func (a *API) Load() osapi.Load { return a.service.Load() }

// versionDocument is the body of GET /. It is the same in every version.
var versionDocument = func() []byte {
	b, err := json.Marshal(wire.VersionDocument())
	if err != nil {
		panic(err) // it has only strings
	}
	return b
}()

// showVersions is GET /, which needs no authentication.
func showVersions(x *exchange) error {
	return x.json(http.StatusOK, versionDocument, time.Time{})
}
