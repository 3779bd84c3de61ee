// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// tester is what the world needs of a test and of a property.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

var ctx = context.Background()

var check = testproc.Check

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// fault is how a link fails.
type fault int

const (
	up      fault = iota
	refused       // no process listens
	lost          // the request is carried out, and the answer is lost
	hangs         // the request never arrives, and there is no answer
	rubbish       // something else answers
	tooLong       // it is refused, because its query is too long
	late          // there is no answer, and the request arrives later
	denied        // it is refused, as if the credentials were not good for it
	raced         // it is refused, as if another write had come before it
)

// link is the way to a service, which can fail. It counts requests by method and path, with what
// varies replaced.
type link struct {
	mu     sync.Mutex
	to     http.Handler
	how    fault
	on     func(*http.Request) fault // for single requests; nil: as how says
	counts map[string]int
	queue  []*http.Request // those that arrive later
}

func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	how, on := l.how, l.on
	l.counts[route(r)]++
	l.mu.Unlock()
	if on != nil {
		if special := on(r); special != up {
			how = special
		}
	}
	switch how {
	case refused:
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case hangs:
		return nil, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	case tooLong:
		return &http.Response{
			StatusCode: http.StatusRequestHeaderFieldsTooLarge, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("too long")), Request: r,
		}, nil
	case denied:
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("denied")), Request: r}, nil
	case raced:
		body := `{"errors": [{"status": 409, "code": "placement.concurrent_update", "detail": "another write ` +
			`came before"}]}`
		return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	case rubbish:
		return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("<html>")), Request: r}, nil
	}
	served := r.Clone(context.WithoutCancel(r.Context()))
	served.Body = http.NoBody
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		served.Body = io.NopCloser(bytes.NewReader(body))
	}
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	if how == late {
		l.mu.Lock()
		l.queue = append(l.queue, served)
		l.mu.Unlock()
		return nil, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	}
	answer := httptest.NewRecorder()
	l.to.ServeHTTP(answer, served)
	if how == lost {
		return nil, io.ErrUnexpectedEOF
	}
	response := answer.Result()
	response.Request = r
	return response, nil
}

// deliver has arrive what was on its way.
func (l *link) deliver() {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, r := range queue {
		l.to.ServeHTTP(httptest.NewRecorder(), r)
	}
}

func (l *link) set(how fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.how, l.on = how, nil
}

func (l *link) when(on func(*http.Request) fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = on
}

// counted are the requests since the last time.
func (l *link) counted() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts
	l.counts = map[string]int{}
	return counts
}

func route(r *http.Request) string {
	parts := strings.Split(r.URL.Path, "/")
	for i, p := range parts {
		if len(p) == 36 {
			parts[i] = "{uuid}"
		}
	}
	return r.Method + " " + strings.Join(parts, "/")
}

// site is a cell with its hosts.
type site struct {
	cell     apidb.Cell
	database string
	link     *link
	store    *celldb.DB
	server   *cell.Cell
	agents   []*agent
}

// world is all of it: an API database, cells with agents, and a Placement. Its clock is manual.
type world struct {
	t        tester
	place    place
	database string // of the API
	store    *apidb.DB
	sites    []*site // cell0 first
	pl       *placement.Server
	asked    http.Handler // the Placement that is used: pl, or another one
	plink    *link
	log      *testproc.Buffer

	options   func(*scheduler.Options, *quota.Options)
	client    *placementcalls.Client
	gatherer  *gather.Gatherer
	quota     *quota.Quotas
	scheduler *scheduler.Scheduler

	mu  sync.Mutex
	now time.Time
}

// place makes databases of a template, and returns their DSNs.
type place func(name string, template *dbservers.Template) string

// files has databases in files below a directory, each in one of its own.
func files(t tester, dir string) place {
	return func(name string, template *dbservers.Template) string {
		dsn := "sqlite://" + filepath.Join(dir, name, "database.db")
		if err := template.Copy(dsn); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
}

// databases has them on the engine of the test, but for that of Placement, which has suites of its
// own on each.
func databases(t *testing.T) place {
	t.Helper()
	return func(name string, template *dbservers.Template) string {
		if name == placementName {
			return files(t, dbservers.Memory(t))(name, template)
		}
		return template.Fresh(t)
	}
}

const placementName = "placement"

// newWorld makes a world with so many hosts in each cell, besides cell0. close must be called.
func newWorld(t tester, at place, hosts []int, options func(*scheduler.Options, *quota.Options)) *world {
	t.Helper()
	return newWorldOn(t, at, nil, hosts, options)
}

// newWorldOn makes a world on a Placement; nil is ours.
func newWorldOn(
	t tester, at place, other http.Handler, hosts []int, options func(*scheduler.Options, *quota.Options),
) *world {
	t.Helper()
	return newWorldAt(t, at, at("api", apiTemplate), other, hosts, options)
}

// newWorldAt makes a world with that API database.
func newWorldAt(
	t tester, at place, database string, other http.Handler, hosts []int,
	options func(*scheduler.Options, *quota.Options),
) *world {
	t.Helper()
	w := &world{t: t, place: at, database: database, now: start, options: options, log: &testproc.Buffer{}}
	var err error
	w.pl, err = newPlacement(at(placementName, placementTemplate))
	w.must(err)
	if w.asked = other; other == nil {
		w.asked = w.pl.Handler()
	}
	w.plink = &link{to: w.asked, counts: map[string]int{}}
	w.store, err = apidb.Open(ctx, database, apidb.Options{Now: w.clock})
	w.must(err)
	w.addCell(apidb.Cell{UUID: apidb.Cell0UUID, Name: "cell0"}, 0)
	for i, n := range hosts {
		w.addCell(apidb.Cell{Name: fmt.Sprintf("cell%d", i+1)}, n)
	}
	w.restart()
	w.discover()
	return w
}

func (w *world) addCell(c apidb.Cell, hosts int) {
	w.t.Helper()
	c.URL = "http://" + c.Name
	c = testproc.Try(w.store.CreateCell(ctx, c)).Or(w.t)
	s := &site{cell: c, database: w.place(c.Name, cellTemplate(c.Name)), link: &link{counts: map[string]int{}}}
	w.serve(s)
	w.sites = append(w.sites, s)
	for i := range hosts {
		s.agents = append(s.agents, newAgent(w, s, fmt.Sprintf("%s-host%d", c.Name, i+1)))
	}
}

// newPlacement starts ours.
func newPlacement(database string) (*placement.Server, error) {
	return placement.New(ctx, placement.Config{
		Database: database, Auth: placement.Auth{Strategy: placement.NoAuth}, Policy: api.Legacy, Logger: zerolog.Nop(),
	})
}

// Databases of worlds begin as copies of these. Cells have one for each name: databases of two
// cells differ.
var (
	placementTemplate = dbservers.NewTemplate(func(dsn string) (*placement.Server, error) {
		return newPlacement(dsn)
	})
	apiTemplate = dbservers.NewTemplate(func(dsn string) (*apidb.DB, error) {
		return apidb.Open(ctx, dsn, apidb.Options{})
	})
	cellTemplate = dbservers.NewTemplates(func(dsn, name string) (*celldb.DB, error) {
		return celldb.Open(ctx, dsn, name, celldb.Options{})
	})
)

// serve starts the process of a cell.
func (w *world) serve(s *site) {
	w.t.Helper()
	var err error
	s.store, err = celldb.Open(ctx, s.database, s.cell.Name, celldb.Options{})
	w.must(err)
	s.server, err = cell.New(cell.Config{Store: s.store, Auth: cell.NoAuth(), Now: w.clock, Logger: zerolog.Nop()})
	w.must(err)
	s.link.to = s.server
}

// restart throws away all that a process of the compute API remembers, and begins again.
func (w *world) restart() {
	w.t.Helper()
	var err error
	w.client, err = placementcalls.New(placementclient.Config{
		Endpoint:  w.endpoint,
		Authorize: asAdmin, Transport: w.plink,
	})
	w.must(err)
	w.gatherer = gather.New(gather.Options{Client: func(c apidb.Cell) (*cellclient.Client, error) {
		return cellclient.New(cellclient.Config{URL: c.URL, Transport: w.site(c.UUID).link})
	}, Now: w.clock, Logger: zerolog.Nop()})
	log := zerolog.New(w.log)
	qo := quota.Options{
		Store: w.store, Gatherer: w.gatherer, Placement: w.client, Logger: log,
		Defaults: apidb.QuotaSet{quota.Instances: -1, quota.Cores: -1, quota.RAM: -1},
	}
	bo := scheduler.Options{Store: w.store, Gatherer: w.gatherer, Placement: w.client, Now: w.clock,
		RecheckQuota: true, Logger: log}
	if w.options != nil {
		w.options(&bo, &qo)
	}
	w.quota, err = quota.New(qo)
	w.must(err)
	bo.Quota = w.quota
	w.scheduler, err = scheduler.New(bo)
	w.must(err)
}

func asAdmin(_ context.Context, h http.Header) error {
	h.Set("X-Auth-Token", "admin")
	return nil
}

func (w *world) close() {
	errs := []error{w.store.Close(), w.pl.Close()}
	for _, s := range w.sites {
		errs = append(errs, s.store.Close())
	}
	w.must(errors.Join(errs...))
}

func (w *world) must(err error) {
	w.t.Helper()
	testproc.Check(w.t, err)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass lets time pass. What was on its way arrives before: no request is on its way for as long as
// a minute.
func (w *world) pass(d time.Duration) {
	w.plink.deliver()
	for _, s := range w.sites {
		s.link.deliver()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) site(uuid string) *site {
	for _, s := range w.sites {
		if s.cell.UUID == uuid {
			return s
		}
	}
	w.t.Fatalf("there is no cell %s", uuid)
	return nil
}

// beat has all hosts show life.
func (w *world) beat() {
	for _, s := range w.sites {
		for _, a := range s.agents {
			a.beat()
		}
	}
}

func (w *world) discover() cellmappings.DiscoverReport {
	w.t.Helper()
	w.beat()
	cells := testproc.Try(w.store.Cells(ctx)).Or(w.t)
	return testproc.Try(cellmappings.Discover(ctx, w.store, w.gatherer, cells, cellmappings.DiscoverOptions{})).Or(w.t)
}

// ask sends a request to Placement past the link.
func (w *world) ask(method, path string, body, into any) {
	w.t.Helper()
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		w.must(err)
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(text))
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("OpenStack-API-Version", "placement 1.38")
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.asked.ServeHTTP(answer, r)
	if answer.Code >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
	if into != nil {
		w.must(json.Unmarshal(answer.Body.Bytes(), into))
	}
}

var small = cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "small", VCPUs: 1, MemoryMB: 512, RootGB: 1}}

// create asks for servers of project p.
func (w *world) create(change ...func(*scheduler.CreateRequest)) ([]apidb.RequestSpec, error) {
	var r scheduler.CreateRequest
	r.Server = cellwire.Server{ProjectID: "p", UserID: "u", Name: "vm", Flavor: small}
	for _, c := range change {
		c(&r)
	}
	return w.scheduler.Create(ctx, r)
}

// created asks for one server, which must work.
func (w *world) created(change ...func(*scheduler.CreateRequest)) string {
	w.t.Helper()
	servers := testproc.Try(w.create(change...)).Or(w.t)
	return servers[0].UUID
}

func (w *world) schedule() {
	w.t.Helper()
	w.must(w.scheduler.Schedule(ctx))
}

// scheduleLate schedules while Placement gets requests for allocations late: one is still on its
// way afterwards, and arrives with the function returned.
func (w *world) scheduleLate() (arrive func()) {
	w.t.Helper()
	w.plink.when(func(r *http.Request) fault {
		if r.Method == http.MethodPut {
			return late
		}
		return up
	})
	w.schedule()
	queue := w.plink.queue
	if len(queue) != 1 {
		w.t.Fatalf("%d requests are on their way", len(queue))
	}
	w.plink.queue = nil
	w.plink.set(up)
	return func() {
		w.plink.queue = queue
		w.plink.deliver()
	}
}

// row is the server in the cell that it is mapped to.
func (w *world) row(uuid string) cellwire.Server {
	w.t.Helper()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	if m.CellUUID == "" {
		w.t.Fatalf("server %s is placed nowhere", uuid)
	}
	row, err := gather.One(ctx, w.gatherer, w.site(m.CellUUID).cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Server(ctx, uuid) })
	w.must(err)
	return row
}

// delete deletes a server as the compute API does.
func (w *world) delete(uuid string, soft bool) error {
	m, err := w.store.Mapping(ctx, uuid)
	if err != nil {
		return err
	}
	return w.scheduler.Delete(ctx, m, soft)
}

func (w *world) endpoint(context.Context) (string, error) { return "http://placement", nil }

func (w *world) logged() string { return w.log.String() }
