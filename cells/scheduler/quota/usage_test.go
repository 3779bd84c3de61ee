// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

// apiTemplate is an API database without anything in it.
var apiTemplate = dbservers.NewTemplate(func(dsn string) (*apidb.DB, error) {
	return apidb.Open(ctx, dsn, apidb.Options{})
})

// transport answers a request.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// quotaFlavor is a flavor of 2 cores and 512 MiB.
var quotaFlavor = cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 2, MemoryMB: 512}}

// quotaWorld is an API database, cells that say what a project uses, and a Placement that does.
type quotaWorld struct {
	t        *testing.T
	database string
	store    *apidb.DB
	cells    []apidb.Cell
	uses     map[string]*cellwire.Usage // by name of the cell; nil: it is down
	deleting map[string]int             // by name of the cell: servers of uses that are being deleted
	user     string                     // whose servers are made
	of       map[string]int             // servers of uses, by "user in cell"
	usages   atomic.Pointer[url.Values] // what Placement was asked last
	refuses  bool                       // what is down answers that the question is wrong
	placed   string                     // what Placement answers; "": it is down
	asked    atomic.Int64               // requests to cells
	log      bytes.Buffer
	gatherer *gather.Gatherer
	next     int
}

func newQuotaWorld(t *testing.T) *quotaWorld {
	t.Helper()
	w := &quotaWorld{t: t, database: apiTemplate.Fresh(t),
		uses: map[string]*cellwire.Usage{}, deleting: map[string]int{}, user: "u", of: map[string]int{}}
	var err error
	w.store, err = apidb.Open(ctx, w.database, apidb.Options{})
	w.must(err)
	t.Cleanup(func() { w.must(w.store.Close()) })
	for _, name := range []string{"cell0", "cell1", "cell2"} {
		c := apidb.Cell{Name: name, URL: "http://" + name}
		if name == "cell0" {
			c.UUID = apidb.Cell0UUID
		}
		c, err = w.store.CreateCell(ctx, c)
		w.must(err)
		w.cells = append(w.cells, c)
		w.uses[name] = &cellwire.Usage{}
	}
	w.gatherer = gather.New(gather.Options{Client: func(c apidb.Cell) (*cellclient.Client, error) {
		return cellclient.New(cellclient.Config{URL: c.URL, Transport: transport(w.answer)})
	}, Logger: zerolog.Nop()})
	return w
}

func (w *quotaWorld) answer(r *http.Request) (*http.Response, error) {
	var body any
	switch {
	case r.URL.Path == "/usages":
		if w.placed == "" {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		w.usages.Store(new(r.URL.Query()))
		return jsonReply(w.placed), nil
	case r.URL.Path == "/v1/survey" && r.URL.Query().Get("project_id") == "p" &&
		r.URL.Query().Get("only") == cellwire.OnlyUsage:
		w.asked.Add(1)
		use := w.uses[r.URL.Host]
		if use == nil && w.refuses {
			refusal := jsonReply(`{"code":"bad_request","message":"no"}`)
			refusal.StatusCode = http.StatusBadRequest
			return refusal, nil
		}
		if use == nil {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		body = cellwire.Discovery{Usage: *use, Services: []cellwire.Service{}, Nodes: []cellwire.ComputeNode{}}
	case r.URL.Path == "/v1/servers/query":
		w.asked.Add(1)
		var query cellwire.ServerQuery
		err := json.NewDecoder(r.Body).Decode(&query)
		there := w.deleting[r.URL.Host]
		switch {
		case err != nil || query.ProjectID != "p" || query.Deleted != cellwire.DeletedNone ||
			query.UserID == "" && len(query.TaskStates) == 0:
			w.t.Errorf("%s: %+v, %v", r.URL, query, err)
		case w.uses[r.URL.Host] == nil:
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		case len(query.TaskStates) == 0:
			there = w.of[query.UserID+" in "+r.URL.Host]
		case !slices.Equal(query.TaskStates, []string{cellwire.TaskDeleting, cellwire.TaskSoftDeleting}):
			w.t.Errorf("unexpected query of a cell: %+v", query)
		}
		first := 0 // a page has two servers at most
		if len(query.After) == 1 {
			_, _ = fmt.Sscan(query.After[0].(string), &first)
			first++
		}
		page := cellwire.ServerPage{Rows: []cellwire.Row{}}
		for i := first; i < min(there, first+2); i++ {
			page.Rows = append(page.Rows,
				cellwire.Row{Key: cellwire.Key{strconv.Itoa(i)},
					Server: cellwire.Server{UUID: strconv.Itoa(i), Flavor: quotaFlavor}})
		}
		page.More = there > first+2
		body = page
	default:
		w.t.Errorf("%s %s", r.Method, r.URL)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return jsonReply(string(text)), nil
}

func jsonReply(body string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body))}
}

func (w *quotaWorld) must(err error) {
	w.t.Helper()
	testproc.Check(w.t, err)
}

// service has limits for instances, cores and ram.
func (w *quotaWorld) service(instances, cores, ram int64, change ...func(*quota.Options)) *quota.Quotas {
	w.t.Helper()
	client, err := placementcalls.New(
		placementclient.Config{Endpoint: func(context.Context) (string, error) { return "http://placement", nil },
			Transport: transport(w.answer)})
	w.must(err)
	o := quota.Options{
		Store: w.store, Gatherer: w.gatherer, Placement: client, Logger: zerolog.New(&w.log),
		Defaults: apidb.QuotaSet{quota.Instances: instances, quota.Cores: cores,
			quota.RAM: ram, "key_pairs": 100},
	}
	for _, f := range change {
		f(&o)
	}
	return testproc.Try(quota.New(o)).Or(w.t)
}

// asks writes servers of project p that were asked for, and places them in a cell, unless cell < 0.
// Built says that the build is over.
func (w *quotaWorld) asks(n, cell int, built bool) (uuids []string) {
	w.t.Helper()
	for range n {
		w.next++
		uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", w.next)
		w.must(w.store.CreateServers(ctx, []apidb.RequestSpec{{
			Server: cellwire.Server{UUID: uuid, ProjectID: "p", UserID: w.user, Flavor: quotaFlavor},
		}}, nil))
		if cell >= 0 {
			w.must(w.store.Place(ctx, uuid, w.cells[cell].UUID))
		}
		if built {
			w.must(w.store.FinishBuild(ctx, uuid))
		}
		uuids = append(uuids, uuid)
	}
	return uuids
}

// has puts servers into a cell, which counts them.
func (w *quotaWorld) has(n, cell int) []string {
	w.t.Helper()
	uuids := w.asks(n, cell, true)
	addTo(w.uses[w.cells[cell].Name], int64(n))
	w.of[w.user+" in "+w.cells[cell].Name] += n
	return uuids
}

func addTo(use *cellwire.Usage, n int64) {
	use.Instances += n
	use.Cores += n * quotaFlavor.VCPUs
	use.RAM += n * quotaFlavor.MemoryMB
}

func usageOf(n int64) cellwire.Usage {
	return cellwire.Usage{Instances: n, Cores: n * quotaFlavor.VCPUs, RAM: n * quotaFlavor.MemoryMB}
}

// TestUsage: it is the same whatever is down.
func TestUsage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, down := range map[string][]string{"all up": nil, "cell1": {"cell1"}, "cell1 refuses": {"cell1"},
		"cell0": {"cell0"}, "all": {"cell0", "cell1", "cell2"}} {
		t.Run(name, func(t *testing.T) {
			w := newQuotaWorld(t)
			w.refuses = strings.HasSuffix(name, "refuses")
			w.has(1, 0)
			w.has(3, 1)
			w.has(2, 2)
			w.must(w.store.SetQueued(ctx, map[string]bool{w.asks(1, 1, true)[0]: true})) // deleted
			w.asks(2, -1, false)                                                         // placed nowhere yet
			w.asks(1, 1, false)                                                          // placed, and hidden
			for _, cell := range down {
				w.uses[cell] = nil
			}
			got, out, err := w.service(-1, -1, -1).Usage(ctx, "p", "")
			w.must(err)
			if d := cmp.Diff(usageOf(9), got); d != "" || len(out) != len(down) {
				t.Errorf("down are %v (-want +got)\n%s", out, d)
			}
			testproc.Equal(t, w.asked.Load(), 3, "%d requests to 3 cells")
		})
	}
}

// TestUsageOfAUser: what one user of a project has, whatever is down, while servers of the user and
// of another one are built.
func TestUsageOfAUser(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, down := range map[string]string{"all up": "", "cell1 down": "cell1"} {
		t.Run(name, func(t *testing.T) {
			w := newQuotaWorld(t)
			for user, n := range map[string]int{"u": 3, "v": 5} { // 3 are two pages
				w.user = user
				w.has(n, 1)
				w.has(1, 2)
				w.asks(n, -1, false) // placed nowhere yet
				w.asks(1, 1, false)  // placed, and hidden
			}
			if down != "" {
				w.uses[down] = nil
			}
			for user, want := range map[string]int64{"u": 3 + 1 + 3 + 1, "v": 5 + 1 + 5 + 1, "w": 0} {
				got, out, err := w.service(-1, -1, -1).Usage(ctx, "p", user)
				w.must(err)
				if d := cmp.Diff(usageOf(want), got); d != "" || (len(out) == 1) != (down != "") {
					t.Errorf("user %s, down are %v (-want +got)\n%s", user, out, d)
				}
			}
			w.placed = `{"usages":{"INSTANCE":{"VCPU":5,"MEMORY_MB":700,"consumer_count":2}}}`
			s := w.service(-1, -1, -1, func(o *quota.Options) { o.CountFromPlacement = true })
			w.user = "u"
			got, _, err := s.Usage(ctx, "p", "u")
			w.must(err)
			testproc.Same(t, cmp.Diff(cellwire.Usage{Instances: 8, Cores: 5, RAM: 700}, got))
			if asked := w.usages.Load(); asked == nil || asked.Get("user_id") != "u" || asked.Get("project_id") != "p" {
				t.Errorf("Placement is asked for %v", asked)
			}
		})
	}
}

// TestUsageOfAUserOfUnknownServers: servers whose mapping does not say whose they are count by what
// their cells say, also while others are built.
func TestUsageOfAUserOfUnknownServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	w.has(2, 1)
	for _, uuid := range w.has(3, 1) {
		w.withoutUser(uuid)
	}
	w.asks(1, -1, false)
	got, _, err := w.service(-1, -1, -1).Usage(ctx, "p", "u")
	w.must(err)
	testproc.Same(t, cmp.Diff(usageOf(6), got))
}

// TestUsageOfAUserThatCannotBe: Placement would refuse the question.
func TestUsageOfAUserThatCannotBe(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	s := w.service(-1, -1, -1, func(o *quota.Options) { o.CountFromPlacement = true })
	got, _, err := s.Usage(ctx, "p", strings.Repeat("u", 256))
	w.must(err)
	testproc.Equal(t, got, cellwire.Usage{}, "a user with too long a name uses %+v")
}

// TestUsageOfNoProject: a client without a project has no usage.
func TestUsageOfNoProject(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	w.has(1, 1)
	w.asks(2, -1, false)
	w.uses["cell2"] = nil
	got, _, err := w.service(-1, -1, -1).Usage(ctx, "", "")
	w.must(err)
	testproc.Equal(t, got, cellwire.Usage{}, "a project without servers uses %+v")
}

// TestUsageCountsAnInsertedServerOnce: a server that its cell counts already, and whose build
// request is not gone yet, counts once.
func TestUsageCountsAnInsertedServerOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	w.has(1, 1)
	w.asks(1, 2, false)
	*w.uses["cell2"] = usageOf(1)
	got, _, err := w.service(-1, -1, -1).Usage(ctx, "p", "")
	w.must(err)
	testproc.Same(t, cmp.Diff(usageOf(2), got))
}

// TestUsageCountsWhatIsBeingDeleted: a server that is being deleted counts until its cell says that
// it is deleted, as in Nova, also while others are built.
func TestUsageCountsWhatIsBeingDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		deleting, inserted, pending, want int64
		down                              string
	}{
		"nothing is built":                      {deleting: 3, want: 6},
		"others are built":                      {deleting: 3, pending: 2, want: 8},
		"one is inserted and has its request":   {deleting: 3, inserted: 1, want: 7},
		"both":                                  {deleting: 3, inserted: 1, pending: 1, want: 8},
		"nothing is deleted":                    {inserted: 1, pending: 1, want: 8},
		"a cell that is down has none of these": {deleting: 3, pending: 1, down: "cell2", want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := newQuotaWorld(t)
			for _, uuid := range w.has(6, 1)[:c.deleting] { // its cell said yes, and its host has it still
				w.must(w.store.SetQueued(ctx, map[string]bool{uuid: true}))
			}
			w.deleting["cell1"] = int(c.deleting)
			w.asks(int(c.pending), -1, false)
			w.asks(int(c.inserted), 1, false)
			addTo(w.uses["cell1"], c.inserted)
			if c.down != "" {
				w.uses[c.down] = nil
			}
			got, _, err := w.service(-1, -1, -1).Usage(ctx, "p", "")
			w.must(err)
			testproc.Same(t, cmp.Diff(usageOf(c.want), got))
		})
	}
}

// TestUsageFromPlacement: the four combinations of count_usage_from_placement and migrated
// mappings, as in Nova's test.
func TestUsageFromPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, fromPlacement := range []bool{true, false} {
		for _, migrated := range []bool{true, false} {
			t.Run(fmt.Sprintf("from Placement %v, migrated %v", fromPlacement, migrated), func(t *testing.T) {
				w := newQuotaWorld(t)
				w.has(2, 1)
				if !migrated {
					w.unmigrate(w.asks(1, 1, true)[0])
					*w.uses["cell1"] = usageOf(3)
				}
				w.placed =
					`{"usages":{"INSTANCE":{"VCPU":5,"PCPU":2,"MEMORY_MB":700,"DISK_GB":9,"consumer_count":2},` +
						`"MIGRATION":{"VCPU":1,"consumer_count":1}}}`
				s := w.service(-1, -1, -1, func(o *quota.Options) { o.CountFromPlacement = fromPlacement })
				want, requests, warned := usageOf(3), int64(6), fromPlacement
				switch {
				case fromPlacement && migrated:
					want, requests, warned = cellwire.Usage{Instances: 2, Cores: 8, RAM: 700}, 0, false
				case migrated:
					want, warned = usageOf(2), false
				case !fromPlacement:
					warned = false
				}
				for range 2 {
					got, _, err := s.Usage(ctx, "p", "")
					w.must(err)
					testproc.Same(t, cmp.Diff(want, got))
				}
				if n := w.asked.Load(); n != requests {
					t.Errorf("%d requests to cells, want %d", n, requests)
				}
				if n := strings.Count(w.log.String(), "online-data-migrations"); n != map[bool]int{true: 1}[warned] {
					t.Errorf("warned %d times: %s", n, &w.log)
				}
			})
		}
	}
}

// unmigrate makes a mapping one of before queued_for_delete.
func (w *quotaWorld) unmigrate(uuid string) {
	w.t.Helper()
	dbservers.Execute(w.t, w.database,
		"UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = '"+uuid+"'")
}

// withoutUser takes the user out of a mapping.
func (w *quotaWorld) withoutUser(uuid string) {
	w.t.Helper()
	dbservers.Execute(w.t, w.database, "UPDATE instance_mappings SET user_id = NULL WHERE instance_uuid = '"+uuid+"'")
}

// TestUsageWithoutPlacement: without Placement nothing can be counted from it.
func TestUsageWithoutPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	s := w.service(-1, -1, -1, func(o *quota.Options) { o.CountFromPlacement = true })
	if _, _, err := s.Usage(ctx, "p", ""); !errors.Is(err, placementclient.ErrUnavailable) {
		t.Errorf("Usage without Placement: got %v, want ErrUnavailable", err)
	}
}
