// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// recordings are exchanges with nova-api 26.2.2, in the order in which they were made: what was
// asked, by whom (admin if not said), in which microversion (2.69 if not said), and what the answer
// was.
//
//go:embed testdata
var recordings embed.FS

// call is one of them.
type call struct {
	Name, Version, Who, Request, Body string
	Status                            int
	Answer                            any
	// Host is what the host of a server did just before the call.
	Host *hostDid

	// before changes the call before it is made; nil: it is made as it is.
	before func(*call)
}

func recordedCalls(t testing.TB, file string) []call {
	t.Helper()
	data := testproc.Try(recordings.ReadFile("testdata/" + file)).Or(t)
	var calls []call
	testproc.Check(t, json.Unmarshal(data, &calls))
	for i := range calls {
		switch calls[i].Version {
		case "":
			calls[i].Version = "2.69"
		case "none":
			calls[i].Version = ""
		}
		if calls[i].Who == "" {
			calls[i].Who = administrator
		}
	}
	return calls
}

// hostDid is something that the host of a server did.
type hostDid struct{ Server, Does string }

// ours is what this API answers where it is not Nova's answer, and why.
type ours struct {
	why    string
	status int
	// says is the refusal, with its name; "" for an answer that is not a refusal, which is not
	// compared.
	says string
}

// replay asks what Nova was asked, in that order, and compares statuses and whole bodies. except
// are the answers that are not Nova's, by the names of calls; each has to be asked for. normal
// takes out of both bodies what is not to be compared.
func (c *cloud) replay(calls []call, except map[string]ours, normal func(name string, body any) any) {
	c.t.Helper()
	seen := map[string]bool{}
	for _, asked := range calls {
		c.t.Run(asked.Name, func(t *testing.T) {
			if asked.before != nil {
				asked.before(&asked)
			}
			method, path, _ := strings.Cut(asked.Request, " ")
			got := c.do(asked.Who, asked.Version, method, path, asked.Body)
			if e, is := except[asked.Name]; is {
				seen[asked.Name] = true
				if got.status != e.status || got.message() != e.says {
					t.Errorf("%s: %d %s, not %d %s", e.why, got.status, got.message(), e.status, e.says)
				}
				return
			}
			if got.status != asked.Status {
				t.Fatalf("%d %s, not Nova's %d %v", got.status, got.text, asked.Status, asked.Answer)
			}
			var body any
			if got.text != "" {
				body = got.body
			}
			testproc.Samef(t, gocmp.Diff(normal(asked.Name, asked.Answer), normal(asked.Name, body)), "(-Nova +ours)")
		})
	}
	for name, e := range except {
		if !seen[name] {
			c.t.Errorf("no call %s was asked", name)
		}
		documented(c.t, e.why)
	}
}

// documented fails for a difference from Nova that the reference does not have.
func documented(t testing.TB, why string) {
	t.Helper()
	if !slices.ContainsFunc(novaDifferences, func(d difference) bool { return d.why == why }) {
		t.Errorf("the reference does not have a difference from Nova: %s", why)
	}
}

// asIs compares all of a body.
func asIs(_ string, body any) any { return body }

// do sends any request.
func (c *cloud) do(who, version, method, path, body string) reply {
	c.t.Helper()
	r := httptest.NewRequest(method, "http://compute"+path, strings.NewReader(body))
	if caller, is := callers[who]; is {
		r.Header.Set("X-Auth-Token", caller[0])
		r.Header.Set("X-Roles", caller[1])
	}
	if version != "" {
		r.Header.Set("OpenStack-API-Version", "compute "+version)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.send(r)
}

// fakeScheduler notes what it is asked for, and does it, or fails as told.
type fakeScheduler struct {
	asked    []scheduler.CreateRequest
	deleted  []string
	restored []string
	mirrored []string
	moved    []string
	// seeded are servers with new user data, and userDataHost where they have to be.
	seeded       []string
	userDataHost string
	// capacities are those of compute nodes, by uuid.
	capacities map[string]placementcalls.Capacity
	// room is how many servers the quota lets through at most; 0 is any number.
	room int64
	err  error
}

func (f *fakeScheduler) Create(_ context.Context, r scheduler.CreateRequest) ([]apidb.RequestSpec, error) {
	f.asked = append(f.asked, r)
	if f.err != nil {
		return nil, f.err
	}
	if f.room > 0 && r.Min > f.room {
		return nil, &quota.ExceededError{Resources: []string{"instances"},
			Requested: []string{fmt.Sprint(r.Min)}, Used: []string{"10"}, Allowed: []string{fmt.Sprint(10 + f.room)}}
	}
	made := make([]apidb.RequestSpec, r.Max)
	for i := range made {
		made[i] = r.RequestSpec
		made[i].UUID = uuid(100*len(f.asked) + i)
	}
	return made, nil
}

func (f *fakeScheduler) Delete(_ context.Context, m apidb.Mapping, soft bool) error {
	if f.err == nil {
		f.deleted = append(f.deleted, fmt.Sprintf("%s soft=%t", m.InstanceUUID, soft))
	}
	return f.err
}

func (f *fakeScheduler) Restore(_ context.Context, m apidb.Mapping) (cellwire.Server, error) {
	if f.err == nil {
		f.restored = append(f.restored, m.InstanceUUID)
	}
	return cellwire.Server{}, f.err
}

func (f *fakeScheduler) Migrate(_ context.Context, m apidb.Mapping, kind cellwire.MigrationType, host string) error {
	if f.err == nil {
		f.moved = append(f.moved, fmt.Sprintf("%s %s to %q", kind, m.InstanceUUID, host))
	}
	return f.err
}

func (f *fakeScheduler) Abort(_ context.Context, m apidb.Mapping, id int64) error {
	if f.err == nil {
		f.moved = append(f.moved, fmt.Sprintf("%s aborts %d", m.InstanceUUID, id))
	}
	return f.err
}

func (f *fakeScheduler) Decide(_ context.Context, m apidb.Mapping, stays bool) error {
	if f.err == nil {
		f.moved = append(f.moved, fmt.Sprintf("%s stays: %t", m.InstanceUUID, stays))
	}
	return f.err
}

func (f *fakeScheduler) UserDataHost(_ context.Context, cell apidb.Cell, uuid string) (string, error) {
	f.seeded = append(f.seeded, uuid+" in "+cell.UUID)
	return f.userDataHost, f.err
}

func (f *fakeScheduler) MirrorHost(_ context.Context, host string) {
	f.mirrored = append(f.mirrored, host)
}

func (f *fakeScheduler) Capacities(_ context.Context, roots []string) ([]placementcalls.Capacity, error) {
	found := make([]placementcalls.Capacity, len(roots))
	for i, root := range roots {
		found[i] = f.capacities[root]
	}
	return found, f.err
}

// fakeQuotas has the limits of the API database over some defaults, and a usage for each project.
type fakeQuotas struct {
	store    apidb.Store
	defaults apidb.QuotaSet
	usage    map[string]cellwire.Usage // by project, or by project and user
	err      error
}

func (q *fakeQuotas) Limits(ctx context.Context, project string) (apidb.QuotaSet, error) {
	set, err := q.store.Quotas(ctx, project)
	limits := q.Defaults()
	for name, n := range set {
		limits[name] = n
	}
	return limits, err
}

func (q *fakeQuotas) Usage(_ context.Context, project, user string) (cellwire.Usage, []apidb.Cell, error) {
	return q.usage[strings.TrimSpace(project+" "+user)], nil, q.err
}

func (q *fakeQuotas) Defaults() apidb.QuotaSet {
	limits := apidb.QuotaSet{}
	for name, n := range q.defaults {
		limits[name] = n
	}
	return limits
}

// withCalls gives a cloud what the calls beside the reads of servers need.
func (c *cloud) withCalls() (*fakeScheduler, *fakeQuotas) {
	c.t.Helper()
	boots, quotas := &fakeScheduler{},
		&fakeQuotas{store: c.store, defaults: apidb.QuotaSet{"instances": 10, "cores": 20, "ram": 51200},
			usage: map[string]cellwire.Usage{}}
	c.api.scheduler, c.api.quota = boots, quotas
	c.api.setDeps()
	return boots, quotas
}

// fakeServices are the services of a cell.
type fakeServices struct {
	mu       sync.Mutex
	services []cellwire.Service
	// gone is a service that goes between the look at it and its change.
	gone string
	// refusal is the code with which a deletion is refused; "": it is not.
	refusal cellwire.Code
}

// servicesOf lets a cell have services; their hosts are mapped to it.
func (c *cloud) servicesOf(cell int, services ...cellwire.Service) *fakeServices {
	c.t.Helper()
	all := &fakeServices{services: services}
	for _, s := range services {
		testproc.Check(c.t, c.store.MapNodes(context.Background(),
			[]apidb.Node{{UUID: "node-" + s.Host, Name: s.Host, Host: s.Host, CellUUID: cellUUID(cell)}}))
	}
	c.cell(cell).fail = all.answer
	return all
}

// inZone makes an aggregate that puts hosts into a zone.
func (c *cloud) inZone(zone string, hosts ...string) apidb.Aggregate {
	c.t.Helper()
	a, err := c.store.CreateAggregate(context.Background(), "zone "+zone, map[string]string{apidb.ZoneKey: zone})
	if err == nil {
		a, err = c.store.ChangeAggregate(context.Background(), a.ID,
			func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
				a.Hosts = hosts
				return nil
			})
	}
	testproc.Check(c.t, err)
	return a
}

// answer answers requests about services, and no others.
func (f *fakeServices) answer(r *http.Request, _ int) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uuid, one := strings.CutPrefix(r.URL.Path, "/v1/services/")
	switch {
	case r.URL.Path == "/v1/services":
		return answerJSON(map[string]any{"services": f.services})
	case !one:
		return nil, nil
	}
	at := slices.IndexFunc(f.services, func(s cellwire.Service) bool { return s.UUID == uuid && uuid != f.gone })
	if at < 0 {
		return answer(404, `{"code":"not_found","message":"no such service"}`), nil
	}
	if r.Method == http.MethodDelete {
		if f.refusal != "" {
			return answer(409, `{"code":"`+string(f.refusal)+`","message":"no"}`), nil
		}
		f.services = slices.Delete(f.services, at, at+1)
		return answer(204, ""), nil
	}
	var patch cellwire.ServicePatch
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, err
	}
	s := &f.services[at]
	if patch.Disabled != nil {
		s.Disabled = *patch.Disabled
	}
	if patch.DisabledReason != nil {
		s.DisabledReason = *patch.DisabledReason
	}
	if patch.ForcedDown != nil {
		s.ForcedDown = *patch.ForcedDown
	}
	return answerJSON(*s)
}
