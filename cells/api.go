// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// ErrConfig is wrapped by all errors about a configuration that cannot work.
var ErrConfig = errors.New("invalid configuration of cells")

// How long a request may take to arrive, an answer to be made and sent beside the time that its
// handler may wait for others, and requests under way may take to end when the service stops.
const (
	requestTimeout = 60 * time.Second
	answerTimeout  = 150 * time.Second
	stopGrace      = 5 * time.Second
)

// APIDatabase is the name of the API database in a state directory.
const APIDatabase = "compute_api.db"

// sharedPoll is how often build requests that other processes took are looked for.
const sharedPoll = time.Second

// cellCalls is how often at most a request of the compute API waits for cells, one time after the
// other.
const cellCalls = 4

// APIConfig configures a compute API. Database, Auth, CellClient and Placement are required.
type APIConfig struct {
	// Database is the file of the API database, or the DSN of its servers: see [apidb.Open].
	Database string
	// Upgrade runs schema steps that the database lacks, instead of refusing it: for a process that
	// is alone on it.
	Upgrade bool
	// Auth authenticates requests. Open says that it accepts any client: such an API serves on
	// loopback only.
	Auth osapi.Authenticator
	Open bool
	TLS  osapi.TLSFiles
	// Certificates are the files of those that the process shows to cells and Placement; a metric
	// has when they expire. "" is left out.
	Certificates []string
	// Denied are the hosts that the enrolment service refuses and publishes, beside those that were
	// evicted; none when nil.
	Denied *pki.DenyFile
	// Connections bounds the connections of all servers of the process, which share it; nil: the
	// service has one of its own.
	Connections *osapi.Connections
	// PolicyFile has rules that override Nova's defaults; "": no file.
	PolicyFile string
	Options    compute.Options

	// CellClient makes the client of a cell. CellTimeout is how long a cell may take for a request,
	// CellPingInterval how often it is pinged (0: never, and each request waits for a cell that
	// hangs), and CellDownTime how long after its last answer one is down.
	CellClient                                  func(apidb.Cell) (*cellclient.Client, error)
	CellTimeout, CellPingInterval, CellDownTime time.Duration
	Placement                                   placementclient.Config

	// Quotas are the limits of projects that have none of their own.
	Quotas                  apidb.QuotaSet
	CountUsageFromPlacement bool
	RecheckQuota            bool
	MaxPlacementResults     int // 0: the scheduler's default
	MaxAttempts             int // 0: 1
	Aggregates              placementcalls.AggregateOptions
	// Aliases are names for PCI devices in flavors.
	Aliases       extraspecs.Aliases
	DiscoverHosts time.Duration // 0: never
	// DiscoverPatterns are shell patterns of the names of hosts that need no enrolment.
	DiscoverPatterns []string

	// Audit receives who changed what. The API does not close it. None when nil.
	Audit *auditlog.Log
	// Tracing makes spans of requests and of what is done for them. The API does not close it. Off
	// when nil.
	Tracing *tracing.Tracing
	Logger  zerolog.Logger
	// Progress, if set, is called now and then while NewAPI upgrades the database.
	Progress func()
}

// API is the process of the compute API. Make one with NewAPI, and Close it.
type API struct {
	store     *apidb.DB
	audited   apidb.Store // the same, and its changes are recorded
	gatherer  *gather.Gatherer
	scheduler *scheduler.Scheduler
	handler   *compute.API
	metrics   *apiMetrics
	ready     readiness
	tls       *tls.Config
	cfg       APIConfig
}

// NewAPI opens the API database and puts the compute API together. Nothing is asked of cells or
// Placement yet. Errors wrap [ErrConfig], or say what is wrong with the database.
func NewAPI(ctx context.Context, cfg APIConfig) (*API, error) {
	if cfg.Connections == nil {
		cfg.Connections = osapi.NewConnections(osapi.ConnectionLimits{})
	}
	a := &API{cfg: cfg, metrics: newAPIMetrics(nil)}
	a.ready.check = a.checkReady
	var err error
	if a.tls, err = cfg.TLS.Config(cfg.Logger, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	policy := compute.DefaultPolicy() //nolint:contextcheck // each request has its own
	if cfg.PolicyFile != "" {
		policy, err = compute.OpenPolicy(cfg.PolicyFile, cfg.Logger) //nolint:contextcheck // each request has its own
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if cfg.Tracing != nil {
		cfg.Placement.Observe = tracing.Outgoing
	}
	placement, err := placementcalls.New(cfg.Placement)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	open := apidb.Open
	if cfg.Upgrade {
		open = apidb.OpenAndUpgrade
	}
	if a.store, err = open(ctx, cfg.Database, apidb.Options{Logger: cfg.Logger, Progress: cfg.Progress}); err != nil {
		return nil, err
	}
	audit := cfg.Audit.ForService(AuditService)
	a.audited = AuditedStore(a.store, audit)
	if records := cfg.Audit.Collector(); records != nil {
		a.metrics.MustRegister(records)
	}
	a.metrics.WatchDenied(cfg.Denied)
	a.metrics.WatchCertificates(append([]string{cfg.TLS.CertFile}, cfg.Certificates...)...)
	a.gatherer = gather.New(gather.Options{
		Client: cfg.CellClient, Timeout: cfg.CellTimeout,
		PingInterval: cfg.CellPingInterval, DownTime: cfg.CellDownTime, Logger: cfg.Logger,
	})
	quotas, err := quota.New(quota.Options{
		Store: a.store, Gatherer: a.gatherer, Placement: placement, Defaults: cfg.Quotas,
		CountFromPlacement: cfg.CountUsageFromPlacement, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrConfig, err), a.store.Close())
	}
	lease := a.store.Scheduling(sqldb.LeaseOptions{Holder: sqldb.ThisProcess(), Logger: cfg.Logger})
	poll := time.Duration(0)
	if a.store.Shared() { // others may have taken a boot
		poll = sharedPoll
	}
	a.scheduler, err = scheduler.New(scheduler.Options{
		Lease: lease, Fenced: AuditedStore(a.store.Fenced(lease), cfg.Audit), PollInterval: poll,
		Store: a.audited, Gatherer: a.gatherer, Placement: placement, Quota: quotas,
		Zone: cfg.Options.DefaultZone, Reclaim: cfg.Options.Reclaim, ConfirmAfter: cfg.Options.ConfirmAfter,
		MaxCandidates: cfg.MaxPlacementResults, MaxAttempts: cfg.MaxAttempts,
		Aggregates: cfg.Aggregates, Aliases: cfg.Aliases,
		Grace:        2 * max(placement.Timeout(), cfg.CellTimeout),
		RecheckQuota: cfg.RecheckQuota, DiscoverInterval: cfg.DiscoverHosts,
		DiscoverPatterns: cfg.DiscoverPatterns, Observer: a.metrics,
		Tracing: cfg.Tracing, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrConfig, err), a.store.Close())
	}
	cfg.Options.MemberPrefixes = cfg.Aggregates.MemberPrefixes()
	a.handler = compute.New(compute.Config{ //nolint:contextcheck // each request has its own
		Store: a.audited, Gatherer: a.gatherer, Scheduler: a.scheduler, Quota: quotas, Auth: cfg.Auth, Policy: policy,
		Options: cfg.Options, Observer: a.metrics,
		Audit: audit, Tracing: cfg.Tracing, Logger: cfg.Logger,
	})
	a.metrics.Watch(apiMetricSources{
		Cells:      a.store.Cells,
		States:     a.gatherer.States,
		Databases:  a.store.CellDatabases,
		Pending:    a.store.CountPending,
		Writable:   func() bool { return a.store.Problem() == nil },
		InFlight:   a.handler.InFlight,
		Scheduling: a.scheduler.Scheduling,
	})
	return a, nil
}

// Store is the API database. Its changes are recorded in the audit log.
func (a *API) Store() apidb.Store { return a.audited }

// EnrolmentObserver counts the answers of an enrolment service on the page of the API's metrics.
func (a *API) EnrolmentObserver() enrolment.Observer { return a.metrics }

// Audit is the log that records its changes; nil for none.
func (a *API) Audit() *auditlog.Log { return a.cfg.Audit }

// Database is the file of the API database, or the address of its servers without a password.
func (a *API) Database() string { return a.store.Path() }

// States are the cells as requests and pings found them.
func (a *API) States() []gather.CellState { return a.gatherer.States() }

// Serve answers requests on the listener, schedules and reconciles, until the context ends. It
// closes the listener in any case.
func (a *API) Serve(ctx context.Context, l net.Listener) error {
	if a.cfg.Open && !osapi.IsLoopbackAddr(l.Addr()) {
		return errors.Join(fmt.Errorf("%w: the noauth strategy serves on loopback addresses only, and %s is not one",
			ErrConfig, l.Addr()), l.Close())
	}
	// The scheduler stops after the HTTP server, whose handlers use it.
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.gatherer.Run(behind, a.store.Cells) })
	group.Go(func() error {
		a.scheduler.Run(behind)
		return nil
	})
	group.Go(func() error {
		defer stop()
		server := &osapi.Server{
			Handler: a.handler, TLS: a.tls, Connections: a.cfg.Connections,
			Refuse: a.handler.Refuse, Logger: a.cfg.Logger,
			ReadTimeout: requestTimeout, WriteTimeout: cellCalls*a.cfg.CellTimeout + answerTimeout, Grace: stopGrace,
		}
		defer a.handler.CloseConsoles()
		return server.Serve(ctx, l)
	})
	return group.Wait()
}

// Handler is the HTTP side.
func (a *API) Handler() http.Handler { return a.handler }

// Close closes the API database and the connections to cells. Stop serving first.
func (a *API) Close() error {
	a.gatherer.CloseIdle()
	return a.store.Close()
}

// DatabaseOf is the address of a DSN, or of the file in a state directory if there is no DSN; and
// the name to open it by, which may have a password.
func DatabaseOf(dsn, stateDir, name string) (address engine.Address, open string, err error) {
	if open = dsn; dsn == "" {
		open = filepath.Join(stateDir, name)
	} else if !strings.Contains(dsn, "://") {
		return address, "", fmt.Errorf(
			"%w: %q is not the address of a database: write sqlite:///PATH, mysql://USER@HOST/DATABASE or "+
				"postgres://USER@HOST/DATABASE", ErrConfig, dsn)
	}
	if address, err = engine.ParseAddress(open); err != nil {
		return address, "", fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return address, open, nil
}

// StatesPath is where the compute API answers on its admin socket how the cells are.
const StatesPath = "/cells"

// CellState is how a cell is, as a compute API has it.
type CellState struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	URL  string `json:"url"`
	Up   bool   `json:"up"`
	// Since is when it came up or went down, as far as the process has run, and Cause why it is
	// down.
	Since time.Time `json:"since"`
	Cause string    `json:"cause,omitempty"`
}

// serveStates answers how the cells are. Those that were not asked yet are asked before.
func (a *API) serveStates(w http.ResponseWriter, r *http.Request) {
	a.ready.current(r.Context())
	states := []CellState{}
	for _, s := range a.gatherer.States() {
		if s.State != 0 {
			states = append(states,
				CellState{s.Cell.Name, s.Cell.UUID, s.Cell.URL, s.State == gather.OK, s.Since, s.Cause})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(states) // a client that went away needs nothing
}

// AskStates asks a compute API, at its admin socket, how the cells are. One request.
func AskStates(ctx context.Context, socket string) (states []CellState, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://compute-api"+StatesPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := files.Client(socket).Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the compute API at %s for the cells: %w", socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the compute API at %s for the cells: it answers %s", socket, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&states); err != nil {
		return nil, fmt.Errorf("reading which cells the compute API at %s has: %w", socket, err)
	}
	return states, nil
}
