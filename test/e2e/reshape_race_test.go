// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var raceRounds = flag.Int("race-rounds", 9, "how many reshapes run against a scheduler")

const nodeUUID = "11111111-0000-0000-0000-000000000000"

// TestReshapeAgainstScheduler reshapes a node back and forth while a scheduler claims and frees
// what moves, as fast as it can. After each reshape every consumer holds what the scheduler
// received: nothing was lost, nothing doubled.
func TestReshapeAgainstScheduler(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	service, err := placement.NewDirect(t.Context(), placement.Config{StateDir: t.TempDir(), Logger: zerolog.Nop()})
	check(t, err)
	defer func() { check(t, service.Close()) }()
	state := t.TempDir()
	startInProcess(t, service, state, "flat", nil)
	seed := testproc.Seed(t)
	schedulers := make([]*claimingClient, 4)
	for i := range schedulers {
		schedulers[i] = newScheduler(t, service, i, rand.New(rand.NewPCG(seed, uint64(i))))
	}
	layouts := []string{"vgpu-children", "numa", "flat"}
	dice := rand.New(rand.NewPCG(seed, 99))
	conflicts := 0
	for round := range *raceRounds {
		// Some of it before the agent looks at what is allocated, and the rest from then on: that
		// is what it races.
		var early, late atomic.Int64
		early.Store(dice.Int64N(75))
		late.Store(dice.Int64N(75))
		gathering, acted := make(chan struct{}), make(chan struct{})
		open, act := sync.OnceFunc(func() { close(gathering) }), sync.OnceFunc(func() { close(acted) })
		waits := dice.IntN(2) == 0 // whether the agent is slower than another client
		var running sync.WaitGroup
		for _, s := range schedulers {
			running.Go(func() {
				s.actOut(&early)
				<-gathering
				if late.Add(-1) >= 0 && s.broken == nil {
					s.act()
				}
				act()
				s.actOut(&late)
			})
		}
		conflicts += startInProcess(t, service, state, layouts[round%len(layouts)], func() {
			open()
			if waits {
				<-acted
			}
		}) - 1
		open()
		running.Wait()
		checkInventory(t, schedulers[0], layouts[round%len(layouts)])
		used := map[string]int64{}
		for _, s := range schedulers {
			if s.broken == nil {
				s.compare(used)
			}
			testproc.Checkf(t, s.broken, "round %d, to %s", round, layouts[round%len(layouts)])
		}
		checkUsage(t, schedulers[0], used)
	}
	claims, frees, refused := 0, 0, 0
	for _, s := range schedulers {
		claims, frees, refused = claims+s.claims, frees+s.frees, refused+s.refused
	}
	t.Logf("%d reshapes, restarted %d times; %d claims, %d frees, %d refused",
		*raceRounds, conflicts, claims, frees, refused)
	if claims == 0 || frees == 0 {
		t.Error("the scheduler never had its way")
	}
}

// startInProcess is a start of the agent without its process, until Placement has the layout. It
// returns the number of attempts. gathered, if set, is called whenever the agent has read the
// allocations.
func startInProcess(t *testing.T, service http.RoundTripper, state, layout string, gathered func()) int {
	t.Helper()
	driver := fake.New()
	check(t, driver.Configure(t.Context(), json.RawMessage(`{"layout": "`+layout+`", "nodes": [{"name": "cn1", "inventories":
		{"VCPU": {"total": 8}, "VGPU": {"total": 8}, "DISK_GB": {"total": 10}}}]}`), plugins.HostInfo{Name: "cn1"}))
	reshapes := journal.New(state)
	testproc.Try(reshapes.Load()).Or(t)
	client, err := reportclient.New(
		reportclient.Config{Config: placementclient.Config{URL: "http://placement", Transport: service,
			Logger: zerolog.Nop()}, ReshapeLog: reshapes})
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watched := &watchedClient{Client: client, done: stop, gathered: gathered}
	tracker := resourcetracker.New(resourcetracker.Config{
		Name: "fake", Driver: inProcess{driver}, Placement: watched, Identity: nodeUUID, Journal: reshapes,
		Records: ownership.Open(state), Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
		Timings: resourcetracker.Timings{Interval: time.Hour, PassDeadline: time.Minute, BackoffMin: time.Millisecond,
			BackoffMax: time.Millisecond},
		Rand: func() float64 { return 0 },
	})
	testproc.Checkf(t, tracker.Run(ctx), "to %s", layout)
	return watched.tries
}

// watchedClient says when a pass has written everything.
type watchedClient struct {
	*reportclient.Client
	tries          int
	done, gathered func()
}

func (c *watchedClient) AllocationsForProviderTree(ctx context.Context, root string) (providertree.Allocations, error) {
	allocations, err := c.Client.AllocationsForProviderTree(ctx, root)
	if c.gathered != nil {
		c.gathered()
	}
	return allocations, err
}

func (c *watchedClient) Apply(ctx context.Context, root string, plan reportclient.Plan) error {
	c.tries++
	err := c.Client.Apply(ctx, root, plan)
	if err == nil {
		c.done()
	}
	return err
}

// inProcess is a driver as the tracker sees one through a plugin.
type inProcess struct{ *fake.Driver }

func (i inProcess) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, given providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	after, err := i.Driver.UpdateProviderTree(ctx, tree, node, given)
	return tree, after, err
}

// claimingClient is a scheduler that claims and frees for consumers of its own, and knows of each
// what it must hold.
type claimingClient struct {
	client    http.Client
	rand      *rand.Rand
	places    map[string][]string // where a class may be, in whichever layout
	consumers []string
	holds     map[string]int64 // of each class, by consumer

	claims, frees, refused int
	broken                 error
}

func newScheduler(t *testing.T, service http.RoundTripper, number int, dice *rand.Rand) *claimingClient {
	s := &claimingClient{client: http.Client{Transport: service}, rand: dice, holds: map[string]int64{},
		places: map[string][]string{}}
	for class, names := range map[string][]string{"VGPU": {"cn1_gpu_0", "cn1_gpu_1"},
		"VCPU": {"cn1_numa_0", "cn1_numa_1"}} {
		s.places[class] = []string{nodeUUID}
		for _, name := range names {
			uuid := testproc.Try(providertree.ChildUUID(nodeUUID, name)).Or(t)
			s.places[class] = append(s.places[class], uuid)
		}
	}
	for i := range 3 {
		s.consumers = append(s.consumers, fmt.Sprintf("%08d-0000-0000-0000-%012d", number, i))
	}
	return s
}

type allocation struct {
	Allocations map[string]resources `json:"allocations"`
	Project     string               `json:"project_id"`
	User        string               `json:"user_id"`
	Generation  *int64               `json:"consumer_generation"`
}

type resources struct {
	Resources map[string]int64 `json:"resources"`
}

// actOut acts until a shared budget is used up.
func (c *claimingClient) actOut(budget *atomic.Int64) {
	for budget.Add(-1) >= 0 && c.broken == nil {
		c.act()
	}
}

// act claims for a consumer that holds nothing, and frees what another holds or makes it more.
func (c *claimingClient) act() {
	consumer := c.consumers[c.rand.IntN(len(c.consumers))]
	holds := c.holds[consumer]
	switch {
	case holds == 0:
		body := allocation{Allocations: map[string]resources{}, Project: "p", User: "u"}
		for _, class := range []string{"VGPU", "VCPU"} {
			at := c.places[class][c.rand.IntN(len(c.places[class]))]
			if body.Allocations[at].Resources == nil {
				body.Allocations[at] = resources{map[string]int64{}}
			}
			body.Allocations[at].Resources[class] = 1
		}
		status := c.send(http.MethodPut, consumer, body, nil)
		c.note(status, func() { c.holds[consumer] = 1; c.claims++ })
	case c.rand.IntN(3) == 0 && holds < 3: // one more, wherever it is now
		var body allocation
		c.send(http.MethodGet, consumer, nil, &body)
		grown := map[string]bool{}
		for _, a := range body.Allocations {
			for class := range a.Resources {
				if !grown[class] {
					a.Resources[class]++
					grown[class] = true
				}
			}
		}
		status := c.send(http.MethodPut, consumer, body, nil)
		c.note(status, func() { c.holds[consumer]++; c.claims++ })
	default:
		status := c.send(http.MethodDelete, consumer, nil, nil)
		if status != http.StatusNoContent && status != http.StatusConflict {
			c.broken = errors.Join(c.broken,
				fmt.Errorf("%s holds %d, and freeing it is answered with %d", consumer, holds, status))
		}
		c.note(status, func() { delete(c.holds, consumer); c.frees++ })
	}
}

// note records the outcome of a write. Lack of capacity, a missing inventory and a write of another
// client are no errors.
func (c *claimingClient) note(status int, then func()) {
	switch status {
	case http.StatusNoContent:
		then()
	case http.StatusConflict, http.StatusBadRequest:
		c.refused++
	default:
		c.broken = errors.Join(c.broken, fmt.Errorf("a write is answered with %d", status))
	}
}

// send makes a request about a consumer's allocations, and returns the status, or 0 if something is
// broken.
func (c *claimingClient) send(method, consumer string, body, answer any) int {
	var payload io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			c.broken = errors.Join(c.broken, err)
			return 0
		}
		payload = bytes.NewReader(b)
	}
	return c.request(method, "/allocations/"+consumer, payload, answer)
}

func (c *claimingClient) request(method, path string, payload io.Reader, answer any) int {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://placement"+path, payload)
	if err != nil {
		c.broken = errors.Join(c.broken, err)
		return 0
	}
	req.Header.Set("OpenStack-API-Version", "placement 1.37")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		c.broken = errors.Join(c.broken, err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if answer != nil {
		c.broken = errors.Join(c.broken, json.NewDecoder(resp.Body).Decode(answer))
	}
	return resp.StatusCode
}

// compare looks at each consumer, and adds what it holds to used.
func (c *claimingClient) compare(used map[string]int64) {
	for _, consumer := range c.consumers {
		var got allocation
		c.send(http.MethodGet, consumer, nil, &got)
		sums := map[string]int64{}
		for provider, a := range got.Allocations {
			for class, n := range a.Resources {
				sums[class] += n
				used[provider+" "+class] += n
			}
		}
		for class := range c.places {
			if sums[class] != c.holds[consumer] {
				c.broken = errors.Join(c.broken,
					fmt.Errorf("%s holds %d of %s, must hold %d", consumer, sums[class], class, c.holds[consumer]))
			}
		}
	}
}

// checkInventory: the node has the layout, and nothing is reported twice.
func checkInventory(t *testing.T, s *claimingClient, layout string) {
	t.Helper()
	var list struct {
		Providers []struct{ UUID, Name string } `json:"resource_providers"`
	}
	s.request(http.MethodGet, "/resource_providers?in_tree="+nodeUUID, http.NoBody, &list)
	got := providertree.ProviderResources{}
	for _, p := range list.Providers {
		var inventories struct{ Inventories map[string]inventory }
		s.request(http.MethodGet, "/resource_providers/"+p.UUID+"/inventories", http.NoBody, &inventories)
		got[p.Name] = map[string]int64{}
		for class, inv := range inventories.Inventories {
			got[p.Name][class] = inv.Total
		}
	}
	if diff := cmp.Diff(inventoryIn[layout], got); diff != "" {
		t.Fatalf("inventory in layout %s (-want +got):\n%s", layout, diff)
	}
}

// inventoryIn says where the inventory is in each layout.
var inventoryIn = map[string]providertree.ProviderResources{
	"flat":          {"cn1": {"VCPU": 8, "VGPU": 8, "DISK_GB": 10}},
	"vgpu-children": {"cn1": {"VCPU": 8, "DISK_GB": 10}, "cn1_gpu_0": {"VGPU": 4}, "cn1_gpu_1": {"VGPU": 4}},
	"numa": {"cn1": {"DISK_GB": 10}, "cn1_gpu_0": {"VGPU": 4}, "cn1_gpu_1": {"VGPU": 4},
		"cn1_numa_0": {"VCPU": 4}, "cn1_numa_1": {"VCPU": 4}},
}

// checkUsage compares what the providers count as used with what the consumers hold.
func checkUsage(t *testing.T, s *claimingClient, used map[string]int64) {
	t.Helper()
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	s.request(http.MethodGet, "/resource_providers?in_tree="+nodeUUID, http.NoBody, &list)
	for _, p := range list.Providers {
		var usages struct{ Usages map[string]int64 }
		s.request(http.MethodGet, "/resource_providers/"+p.UUID+"/usages", http.NoBody, &usages)
		for class, n := range usages.Usages {
			if n != used[p.UUID+" "+class] {
				t.Errorf("%d of %s in use on %s, consumers hold %d", n, class, p.UUID, used[p.UUID+" "+class])
			}
			delete(used, p.UUID+" "+class)
		}
	}
	if s.broken != nil || len(used) > 0 {
		t.Errorf("held where there is no inventory: %v %v", used, s.broken)
	}
}
