// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(dbservers.Tests{M: m}, goleak.Cleanup(allCompared))
}

// fakeCell is a cell in the process: it answers the reads of servers from a list, or fails in some
// way.
type fakeCell struct {
	mu      sync.Mutex
	servers []cellwire.Server
	actions []cellwire.Action // of each server
	// migrations are answered to each query that names none, and asked has the last one.
	migrations []cellwire.Migration
	asked      cellwire.MigrationQuery
	// fail answers instead, if it is not nil; n counts the requests from 1.
	fail     func(r *http.Request, n int) (*http.Response, error)
	requests int
}

// The ways in which a cell fails.
var (
	refused = func(*http.Request, int) (*http.Response, error) { return nil, errors.New("connection refused") }
	hung    = func(r *http.Request, _ int) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	rubbish  = func(*http.Request, int) (*http.Response, error) { return answer(200, "<html>hello</html>"), nil }
	halfBody = func(*http.Request, int) (*http.Response, error) {
		return answer(200, `{"rows":[{"server":{"uuid":"`), nil
	}
	brokenCell = func(*http.Request, int) (*http.Response, error) {
		return answer(500, `{"code":"internal","message":"SQL"}`), nil
	}
	full = func(*http.Request, int) (*http.Response, error) {
		return answer(503, `{"code":"unavailable","message":"disk full"}`), nil
	}
)

// waysToBeDown take no time. What refuses each question, or knows none of the calls, is no cell
// that can be used.
var waysToBeDown = map[string]func(*http.Request, int) (*http.Response, error){
	"refused": refused, "500": brokenCell, "503": full, "rubbish": rubbish, "half a body": halfBody,
	"400": func(*http.Request, int) (*http.Response, error) {
		return answer(400, `{"code":"bad_request","message":"no"}`), nil
	},
	"no such call": func(*http.Request, int) (*http.Response, error) {
		return answer(404, `{"code":"no_call","message":"no"}`), nil
	},
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body))}
}

// RoundTrip answers a request to the cell.
func (c *fakeCell) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.requests++
	n, fail, servers := c.requests, c.fail, slices.Clone(c.servers)
	c.mu.Unlock()
	if fail != nil {
		if response, err := fail(r, n); response != nil || err != nil {
			return response, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet {
		for _, s := range servers {
			switch {
			case strings.HasSuffix(r.URL.Path, "/"+s.UUID):
				return answerJSON(s)
			case strings.HasSuffix(r.URL.Path, "/"+s.UUID+"/actions"):
				return answerJSON(
					cellwire.ActionsAnswer{Actions: append([]cellwire.Action{}, c.actions...), Deleted: s.Deleted})
			}
		}
		return answer(404, `{"code":"not_found","message":"no such server"}`), nil
	}
	if r.URL.Path == "/v1/migrations/query" {
		return c.queryMigrations(r)
	}
	if r.URL.Path == "/v1/servers/hosts/query" {
		return c.queryHosts(r, servers)
	}
	for i, s := range servers {
		if rest, is := strings.CutPrefix(r.URL.Path, "/v1/servers/"+s.UUID); is {
			return c.change(r, rest, &c.servers[i])
		}
	}
	var q cellwire.ServerQuery
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	return answerJSON(queried(servers, &q))
}

// queryHosts answers with a server on the hosts that are asked for.
func (c *fakeCell) queryHosts(r *http.Request, servers []cellwire.Server) (*http.Response, error) {
	var q cellwire.HostsRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	found := []cellwire.ServerHosts{}
	for _, s := range servers {
		all := cellwire.HostsOf(s.Host, c.migrations)
		if len(found) == 0 && slices.ContainsFunc(all, func(host string) bool { return slices.Contains(q.On, host) }) {
			found = append(found, cellwire.ServerHosts{UUID: s.UUID, Hosts: all})
		}
	}
	return answerJSON(cellwire.HostsAnswer{Servers: found})
}

// change does what is asked of one server.
func (c *fakeCell) change(r *http.Request, call string, s *cellwire.Server) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	switch r.Method + call {
	case "PATCH":
		var patch cellwire.ServerPatch
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			return nil, err
		}
		if err = patch.Check(s); err == nil {
			err = patch.Apply(s)
		}
	case "POST/reset":
		var request cellwire.ResetRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			return nil, err
		}
		if err = request.Check(s); err == nil {
			s.VMState, s.TaskState = request.VMState, ""
		}
	case "POST/rebuild":
		var request cellwire.RebuildRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			return nil, err
		}
		if err = request.Check(s); err == nil {
			err = request.Apply(s)
		}
	case "POST/power":
		var request cellwire.PowerRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			return nil, err
		}
		if err = request.Action.Check(s); err == nil {
			s.TaskState = request.Action.Task()
		}
	default:
		return nil, fmt.Errorf("the cell of the tests has no %s %s", r.Method, call)
	}
	var refusal *cellwire.Error
	if errors.As(err, &refusal) {
		text, _ := json.Marshal(refusal)
		return answer(refusal.Status, string(text)), nil
	}
	return answerJSON(*s)
}

func answerJSON(v any) (*http.Response, error) {
	text, err := json.Marshal(v)
	return answer(200, string(text)), err
}

// queried is the page of servers that a query asks for.
func queried(servers []cellwire.Server, q *cellwire.ServerQuery) cellwire.ServerPage {
	matches, err := serverview.Matcher(q)
	if err != nil {
		panic(err)
	}
	var rows []cellwire.Row
	for _, s := range servers {
		gone, soft := s.Deleted, s.VMState == cellwire.VMSoftDeleted
		switch {
		case s.Hidden, !matches(&s):
		case q.Deleted == cellwire.DeletedNone && (gone || soft && !q.SoftDeleted):
		case q.Deleted == cellwire.DeletedOnly && !gone && !soft:
		default:
			rows = append(rows, cellwire.Row{Server: s, Key: keyFor(&s, q.Sort)})
		}
	}
	before := func(a, b cellwire.Key) int {
		for i := range a {
			order := 0
			switch v := a[i].(type) {
			case int64:
				order = cmp.Compare(v, b[i].(int64))
			case string:
				order = strings.Compare(v, b[i].(string))
			}
			if i < len(q.Sort) && q.Sort[i].Desc {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return 0
	}
	slices.SortFunc(rows, func(a, b cellwire.Row) int { return before(a.Key, b.Key) })
	if q.After != nil {
		rows = slices.DeleteFunc(rows, func(r cellwire.Row) bool { return before(r.Key, q.After) <= 0 })
	}
	page := cellwire.ServerPage{Rows: rows[:min(len(rows), q.Limit)], More: len(rows) > q.Limit}
	for i := range page.Rows {
		if s := &page.Rows[i].Server; q.Brief {
			*s = cellwire.Server{ID: s.ID, UUID: s.UUID, Name: s.Name}
		}
	}
	if page.Rows == nil {
		page.Rows = []cellwire.Row{}
	}
	return page
}

func keyFor(s *cellwire.Server, order []cellwire.SortKey) cellwire.Key {
	var key cellwire.Key
	for _, k := range order {
		switch k.Key {
		case "created_at":
			key = append(key, s.CreatedAt.UnixMicro())
		case "display_name":
			key = append(key, s.Name)
		case "host":
			key = append(key, s.Host)
		case "vm_state":
			key = append(key, s.VMState)
		default:
			panic("the cell of the tests does not sort by " + k.Key)
		}
	}
	return append(key, s.UUID)
}

// cloud is an API with an API database in a file and cells in the process: cell0, cell1, cell2.
type cloud struct {
	t       *testing.T
	api     *API
	store   *apidb.DB
	path    string
	cells   map[string]*fakeCell
	clock   time.Time
	logged  bytes.Buffer
	options Options
	policy  *api.Policy
}

// start is the time of the first server; each one after it is a minute younger.
var start = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

const cellTimeout = time.Minute

// apiTemplate is what API databases begin as.
var apiTemplate = dbservers.NewTemplate(func(dsn string) (*apidb.DB, error) {
	return apidb.Open(context.Background(), dsn, apidb.Options{})
})

func newCloud(t *testing.T, options Options) *cloud {
	t.Helper()
	c := &cloud{t: t, cells: map[string]*fakeCell{}, clock: start, options: options, path: apiTemplate.Fresh(t)}
	var err error
	if c.store, err = apidb.Open(t.Context(), c.path,
		apidb.Options{Now: func() time.Time { return c.clock }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { testproc.NoError(t, c.store.Close()) })
	for i := range 3 {
		uuid := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
		name := fmt.Sprintf("cell%d", i)
		c.cells[uuid] = &fakeCell{}
		testproc.Try(c.store.CreateCell(context.Background(),
			apidb.Cell{UUID: uuid, Name: name, URL: "http://" + name})).Or(t)
	}
	gatherer := gather.New(gather.Options{Timeout: cellTimeout, Logger: zerolog.Nop(),
		Client: func(cell apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(cellclient.Config{URL: cell.URL, Transport: c.cells[cell.UUID]})
		}})
	c.api = New(Config{Store: c.store, Gatherer: gatherer, Auth: osapi.NoAuth{}, Policy: c.policy, Options: options,
		Logger: zerolog.New(zerolog.SyncWriter(&c.logged))})
	return c
}

// cellUUID is that of cell0, cell1 or cell2.
func cellUUID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

func (c *cloud) cell(n int) *fakeCell { return c.cells[cellUUID(n)] }

// nowhere is the cell of servers that are not placed.
const nowhere = -1

// has makes a server: mapping and specification in the API database, the row in its cell. With
// nowhere it stays a build request.
func (c *cloud) has(cell int, s cellwire.Server) cellwire.Server {
	c.t.Helper()
	ctx := context.Background()
	if s.ProjectID == "" {
		s.ProjectID = "p1"
	}
	if s.UserID == "" {
		s.UserID = "u-" + s.ProjectID
	}
	if s.VMState == "" {
		s.VMState = cellwire.VMActive
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = c.clock
		c.clock = c.clock.Add(time.Minute)
	}
	clock := c.clock
	c.clock = s.CreatedAt
	check := func(err error) {
		c.t.Helper()
		testproc.Checkf(c.t, err, "server %s", s.Name)
	}
	check(c.store.CreateServers(ctx, []apidb.RequestSpec{{Server: s}}, nil))
	if cell != nowhere {
		check(c.store.Place(ctx, s.UUID, cellUUID(cell)))
		check(c.store.FinishBuild(ctx, s.UUID))
		c.cell(cell).servers = append(c.cell(cell).servers, s)
	}
	c.clock = clock
	return s
}

// uuid numbers servers.
func uuid(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n) }

// The users of the requests.
const (
	administrator = "admin"
	member        = "member"
	member2       = "member2"
	member3       = "member3"
	reader        = "reader"
	admin3        = "admin of p3"
	manager       = "manager"
)

var callers = map[string][2]string{
	administrator: {"u-p1:p1", "admin"}, member: {"u-p1:p1", "member"}, reader: {"u-p1:p1", "reader"},
	member2: {"u-p2:p2", "member"}, member3: {"u-p3:p3", "member"},
	admin3: {"u-p3:p3", "admin"}, manager: {"u-p1:p1", "manager"}, "operator": {"root:ops", "admin"},
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// ask asks the API. version is "2.69" or another one; "" sends none.
func (c *cloud) ask(who, version, path string) reply {
	c.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://compute"+path, nil)
	if caller, is := callers[who]; is {
		r.Header.Set("X-Auth-Token", caller[0])
		r.Header.Set("X-Roles", caller[1])
	}
	if version != "" {
		r.Header.Set("OpenStack-API-Version", "compute "+version)
	}
	return c.send(r)
}

func (c *cloud) send(r *http.Request) reply {
	c.t.Helper()
	w := httptest.NewRecorder()
	sent := rereadable(c.t, r)
	c.api.ServeHTTP(w, r)
	compare(c.t, r, sent, w)
	got := reply{status: w.Code, header: w.Header(), text: w.Body.String()}
	if got.text != "" {
		if err := json.Unmarshal(w.Body.Bytes(), &got.body); err != nil {
			c.t.Fatalf("%s %s: the answer is no JSON: %v\n%s", r.Method, r.URL, err, got.text)
		}
	}
	return got
}

// rereadable is the body of a request, which can be read again.
func rereadable(t testing.TB, r *http.Request) []byte {
	t.Helper()
	if r.Body == nil {
		return nil
	}
	body := testproc.Try(io.ReadAll(r.Body)).Or(t)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// names are the servers of a list, in its order: names, or the number of those that are unknown.
func (r reply) names() []string {
	names := []string{}
	servers, _ := r.body["servers"].([]any)
	for _, s := range servers {
		record := s.(map[string]any)
		if name, is := record["name"].(string); is {
			names = append(names, name)
			continue
		}
		id := record["id"].(string)
		var n int
		if _, err := fmt.Sscanf(id[:8], "%x", &n); err != nil {
			panic(err)
		}
		names = append(names, fmt.Sprintf("%v:%d", record["status"], n))
	}
	return names
}

// message is what a refusal says, with its name.
func (r reply) message() string {
	for name, f := range r.body {
		if fields, is := f.(map[string]any); is && r.status >= 400 {
			return fmt.Sprintf("%s: %v", name, fields["message"])
		}
	}
	return ""
}

// server is one with a number, a name, and what all servers have.
func server(n int, name string) cellwire.Server {
	return cellwire.Server{
		UUID: uuid(n), Name: name, Host: "h1", Node: "h1",
		HostUp: true, ID: int64(n), ImageRef: "70a599e0-31e7-49b7-b260-868f441e862b",
		Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1}},
	}
}
