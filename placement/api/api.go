// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/dbfile"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Ledger is what the API needs of a *ledger.Ledger.
type Ledger interface {
	Snapshot(ctx context.Context) (*ledger.Snapshot, error)
	Update(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error)
}

// Config is what an API is made of. Only the Ledger and the Authenticator are required.
type Config struct {
	Ledger        Ledger
	Authenticator osapi.Authenticator
	Policy        Policy
	CORS          CORS
	Options       Options
	Limits        Limits
	Logger        zerolog.Logger
	// Problem is why writes fail now, for /readyz; nil when nothing can be known of that.
	Problem func() error
	// Observer is told of every answer; nil costs nothing.
	Observer Observer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Options are Placement's own options, those of its [placement] section that this API has.
type Options struct {
	// IncompleteProjectID and IncompleteUserID own the consumers that are written without owners, which was possible before
	// 1.8. They are IncompleteID when empty.
	IncompleteProjectID, IncompleteUserID string
	// MaxCandidates is how many allocation candidates are made for one request at most (max_allocation_candidates), whatever
	// limit the request has. Below one there is no bound but the server's own.
	MaxCandidates int
	// DepthFirst makes the candidates of one root provider after those of another (allocation_candidates_generation_strategy
	// depth-first), so that few roots may take up a whole answer that is cut off. Otherwise the roots take turns.
	DepthFirst bool
	// Extensions are granted to all clients from microversion 1.25 on, whether they ask for them or not. The names are those of
	// the header Placement-Extensions; ExtensionNames lists them. Others are without effect.
	Extensions []string
	// Randomize gives candidates in random order, and picks them at random where there are more than asked for
	// (randomize_allocation_candidates).
	Randomize bool
}

// IncompleteID is Placement's default for the owners of consumers that are written without any.
const IncompleteID = "00000000-0000-0000-0000-000000000000"

// Limits bound what one request and all of them together may take. A zero is the default.
type Limits struct {
	// Body is the size of a request body in bytes; 413 beyond. 16 MiB by default: a reshape of 1,000 consumers has 1.2 MB.
	Body int64
	// Bodies is the memory that the bodies of all requests under way may take together, in bytes; 503 beyond. 256 MiB by
	// default. What a body is decoded to is a few times as large, and there while it is worked on.
	Bodies int64
	// BodyTime is how long a request body may take to arrive, counted from when it is asked for; 408 beyond. 30 s by default.
	BodyTime time.Duration
	// Query is the size of a query string in bytes; 414 beyond. 64 KiB by default.
	Query int
	// InFlight is how many requests are worked on at once; 503 beyond. 1,000 by default. A request whose body is awaited is not
	// worked on.
	InFlight int64
}

func (l Limits) withDefaults() Limits {
	if l.Body <= 0 {
		l.Body = 16 << 20
	}
	if l.Bodies <= 0 {
		l.Bodies = 256 << 20
	}
	if l.BodyTime <= 0 {
		l.BodyTime = 30 * time.Second
	}
	if l.Query <= 0 {
		l.Query = 64 << 10
	}
	if l.InFlight <= 0 {
		l.InFlight = 1000
	}
	return l
}

// API serves the Placement API. It is an http.Handler and safe for concurrent use.
type API struct {
	ledger   Ledger
	auth     osapi.Authenticator
	policy   Policy
	cors     CORS
	options  Options
	limits   Limits
	log      zerolog.Logger
	now      func() time.Time
	mux      *http.ServeMux
	observer Observer
	problem  func() error
	inFlight atomic.Int64
	bodies   atomic.Int64 // bytes reserved for request bodies
	buffers  sync.Pool
	answers  candidateAnswers
	rotated  rotations
	granted  extensions // to all clients
}

// New makes an API. It panics when the ledger or the authenticator is missing.
func New(cfg Config) *API {
	if cfg.Ledger == nil || cfg.Authenticator == nil {
		panic("api.New: a ledger and an authenticator are required")
	}
	a := &API{
		ledger:   cfg.Ledger,
		auth:     cfg.Authenticator,
		policy:   cfg.Policy,
		cors:     cfg.CORS,
		options:  cfg.Options,
		limits:   cfg.Limits.withDefaults(),
		log:      cfg.Logger,
		observer: cfg.Observer,
		problem:  cfg.Problem,
		now:      cfg.Now,
	}
	if a.problem == nil {
		a.problem = func() error { return nil }
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.options.IncompleteProjectID == "" {
		a.options.IncompleteProjectID = IncompleteID
	}
	if a.options.IncompleteUserID == "" {
		a.options.IncompleteUserID = IncompleteID
	}
	a.rotated.seed = maphash.MakeSeed()
	a.granted = readExtensions(a.options.Extensions)
	a.buffers.New = func() any { b := make([]byte, 0, 4<<10); return &b }
	a.mux = newMux(a, routes)
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" { // A caller within the process may ask for the root like this.
		root := *r.URL
		root.Path = "/"
		r = r.WithContext(r.Context())
		r.URL = &root
	}
	x := a.newExchange(w, r)
	defer x.finish()
	switch r.URL.Path {
	case "/healthz", "/readyz":
		x.route = r.URL.Path
		a.health(r.Context(), x)
		return
	}
	defer a.inFlight.Add(-1)
	if n := a.inFlight.Add(1); n > a.limits.InFlight {
		x.fail(tooMany(n - 1))
		return
	}
	if len(r.URL.RawQuery) > a.limits.Query {
		x.fail(fail(http.StatusRequestURITooLong, wire.CodeUndefined, "The query has %d bytes; this server reads at most %d.", len(r.URL.RawQuery), a.limits.Query))
		return
	}
	if a.cors.enabled() {
		if r.Method == http.MethodOptions {
			a.cors.preflight(w.Header(), r)
			x.send(http.StatusOK, nil)
			return
		}
		a.cors.allow(w.Header(), r)
	}
	if err := a.admit(x); err != nil {
		x.fail(err)
		return
	}
	if !clean(r.URL.Path) {
		x.fail(noRoute())
		return
	}
	a.mux.ServeHTTP(x, r)
}

// Refuse answers a request that ServeHTTP does not get, with a status and the reason.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	x := a.newExchange(w, r)
	defer x.finish()
	x.fail(fail(status, wire.CodeUndefined, "%s", reason))
}

// admit finds out who sends the request and in which version it is to be answered.
func (a *API) admit(x *exchange) error {
	if x.r.URL.Path != "/" {
		who, err := a.auth.Authenticate(x.r)
		switch {
		case errors.Is(err, osapi.ErrUnauthenticated):
			f := fail(http.StatusUnauthorized, wire.CodeUndefined, "%s", err.Error())
			var u *osapi.Unauthenticated
			if errors.As(err, &u) {
				f.challenge = u.Challenge
			}
			return f
		case err != nil:
			f := fail(http.StatusServiceUnavailable, wire.CodeUndefined, "Who sent the request could not be found out now. Send it again in a moment.")
			f.retry, f.cause = true, err
			return f
		}
		x.who = who
	}
	v, err := wire.RequestVersion(x.r.Header[wire.HeaderVersion])
	switch {
	case errors.Is(err, wire.ErrUnacceptableVersion):
		return fail(http.StatusNotAcceptable, wire.CodeUndefined, "Invalid microversion: %s.", shortened(err.Error()))
	case err != nil:
		return badRequest("Invalid microversion: %s.", shortened(err.Error()))
	}
	x.v, x.negotiated = v, true
	if x.r.ContentLength > 0 && x.r.Header.Get("Content-Type") == "" {
		return badRequest("A content-type header required when content-length > 0 is missing; send application/json.")
	}
	return nil
}

func tooMany(others int64) *failure {
	f := fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The server works on %d requests already. Send the request again in a moment.", others)
	f.retry = true
	return f
}

func noRoute() *failure { return notFound("The resource could not be found.") }

// clean says whether a path is in the form that the routes are: with a slash first, and no empty, "." or ".." segments.
// Placement answers 404 to others, where http.ServeMux would redirect.
func clean(p string) bool {
	if p == "" || p[0] != '/' || strings.Contains(p, "//") {
		return false
	}
	return !strings.Contains(p, "/.") || path.Clean(p) == strings.TrimSuffix(p, "/")
}

// health answers /healthz, which says that the process serves, and /readyz, which says that it can answer: the state is
// loaded, the database can be read, and writes to it do not fail. Neither needs a token.
func (a *API) health(ctx context.Context, x *exchange) {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		f := fail(http.StatusMethodNotAllowed, wire.CodeUndefined, "The method %s is not allowed for this resource.", shortened(x.r.Method))
		f.allow = "GET, HEAD"
		x.fail(f)
		return
	}
	x.quiet = true
	if x.r.URL.Path == "/readyz" {
		if _, err := a.ledger.Snapshot(ctx); err != nil {
			f := fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The server is not ready: its database cannot be read.")
			f.cause = err
			x.quiet = false
			x.fail(f)
			return
		}
		if err := a.problem(); err != nil {
			f := fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The server is not ready: its database cannot be written to: %s. Reading is possible.", dbfile.Reason(err))
			f.cause = err
			x.quiet = false
			x.fail(f)
			return
		}
	}
	x.w.Header()["Content-Type"] = headerText
	x.send(http.StatusOK, []byte("ok\n"))
}
