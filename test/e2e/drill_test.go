// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// drillHost is a hypervisor of the drill: an agent with the fake driver, and guests.
type drillHost struct {
	site  *site
	agent *process
	name  string
	root  string // uuid of its provider
}

// guest is the uuid of a guest of a host.
func (h *drillHost) guest(n int) string {
	return fmt.Sprintf("b0000000-0000-4000-8000-%s%010x", h.name[2:], n)
}

// Sizes of a host and of its guests, which do not fill it: a scheduler claims the rest.
const (
	drillGuests                         = 3
	drillVCPUs, drillMemory, drillVGPUs = 16, 16384, 4
	guestVCPUs, guestMemory, guestVGPUs = 2, 1024, 1
)

// run starts an agent of a release, whose driver has a layout version.
func (h *drillHost) run(of *testproc.Binaries, url string, layout int) {
	t := h.site.t
	t.Helper()
	check(t, os.WriteFile(h.site.config, fmt.Appendf(nil, `
[agent]
host = %[1]q
state_dir = %[2]q
runtime_dir = %[3]q
[placement_client]
url = %[4]q
[tracker]
update_resources_interval = "1s"
[plugins]
dir = %[5]q
[log]
format = "json"
level = "debug"
[drivers.fake.config]
shape_version = %[6]d
guests = { %[7]q = "gpu_0", %[8]q = "gpu_0", %[9]q = "gpu_1" }
nodes = [{name = %[1]q, inventories = {VCPU = {total = %[10]d}, MEMORY_MB = {total = %[11]d}, VGPU = {total = %[12]d}}}]
`, h.name, filepath.Join(h.site.dir, "state"), filepath.Join(h.site.dir, "run"), url, of.Dir(), layout,
		h.guest(0), h.guest(1), h.guest(2), drillVCPUs, drillMemory, drillVGPUs), 0o600))
	h.agent = launch(t, h.name, of.Command("compute-agent", "run", "--config", h.site.config))
	h.agent.awaitAny(passDone)
}

// upgrade ends the agent and starts that of another release.
func (h *drillHost) upgrade(of *testproc.Binaries, url string, layout int) {
	h.site.t.Helper()
	h.quiet()
	h.agent.stop()
	h.run(of, url, layout)
}

// quiet says that the agent has reported without an error, and what has Placement's answer.
func (h *drillHost) quiet() {
	h.site.t.Helper()
	for _, line := range h.agent.Lines() {
		if strings.Contains(line, `"level":"error"`) || strings.Contains(line, "placement-unreachable") {
			h.site.t.Errorf("the agent of %s: %s", h.name, line)
		}
	}
}

// drill is a small site whose parts are upgraded one after the other while it is used.
type drill struct {
	t     *testing.T
	b     *balancer
	url   string
	hosts []*drillHost
	asks  *writer // without rounds: its own requests
	looks atomic.Int64
	made  atomic.Int64 // claims
}

// summary is the whole tree of a host as one answer shows it.
type summary struct {
	Capacity, Used map[string]int
	Places         map[string]int // how many providers have a class
}

// look asks for a host's tree, all of it at one moment.
func (d *drill) look(ctx context.Context, h *drillHost) (summary, error) {
	var body struct {
		Summaries map[string]struct {
			Resources map[string]struct{ Capacity, Used int }
		} `json:"provider_summaries"`
	}
	s := summary{Capacity: map[string]int{}, Used: map[string]int{}, Places: map[string]int{}}
	if err := d.asks.ask(ctx, http.MethodGet, "/allocation_candidates?resources=VCPU:1&in_tree="+
		h.root, nil, &body); err != nil {
		return s, err
	}
	for _, provider := range body.Summaries {
		for class, r := range provider.Resources {
			s.Capacity[class] += r.Capacity
			s.Used[class] += r.Used
			s.Places[class]++
		}
	}
	return s, nil
}

// complete says what is wrong with what a look showed: inventory withdrawn or counted twice, an
// allocation of a guest lost.
func (s summary) complete() error {
	if diff := cmp.Diff(map[string]int{"VCPU": drillVCPUs, "MEMORY_MB": drillMemory, "VGPU": drillVGPUs},
		s.Capacity); diff != "" {
		return fmt.Errorf("the capacity of the tree differs (- want, + got):\n%s", diff)
	}
	if s.Used["VCPU"] < drillGuests*guestVCPUs || s.Used["MEMORY_MB"] != drillGuests*guestMemory ||
		s.Used["VGPU"] != drillGuests*guestVGPUs {
		return fmt.Errorf("in use are %v, less or more than the guests have", s.Used)
	}
	return nil
}

// watch looks at all hosts, and claims and frees a processor on each, until the context ends.
func (d *drill) watch(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		h := d.hosts[n%len(d.hosts)]
		s, err := d.look(ctx, h)
		if err == nil {
			err = s.complete()
		}
		if err == nil {
			err = d.claim(ctx, h, fmt.Sprintf("d0000000-0000-4000-8000-%012x", n))
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("host %s, look %d: %w", h.name, n, err)
		}
		d.looks.Add(1)
	}
	return nil
}

// claim takes a processor of a host and gives it back. A conflict with the agent is repeated, as a
// scheduler does.
func (d *drill) claim(ctx context.Context, h *drillHost, consumer string) error {
	body := map[string]any{
		"consumer_generation": nil, "project_id": "p", "user_id": "u",
		"allocations": map[string]any{h.root: map[string]any{"resources": map[string]int{"VCPU": 1}}},
	}
	for {
		err := d.asks.ask(ctx, http.MethodPut, "/allocations/"+consumer, body, nil)
		if err != nil && strings.Contains(err.Error(), "placement.concurrent_update") {
			continue
		}
		if err != nil {
			return err
		}
		d.made.Add(1)
		return d.asks.ask(ctx, http.MethodDelete, "/allocations/"+consumer, nil, nil)
	}
}

// guests compares the allocations of all guests with what they began with, wherever in the tree
// they are, and says what else holds something.
func (d *drill) guests(when string) {
	d.t.Helper()
	for _, h := range d.hosts {
		for n := range drillGuests {
			var body struct {
				Allocations map[string]struct{ Resources map[string]int }
			}
			check(d.t, d.asks.ask(d.t.Context(), http.MethodGet, "/allocations/"+h.guest(n), nil, &body))
			sum := map[string]int{}
			for _, a := range body.Allocations {
				for class, amount := range a.Resources {
					sum[class] += amount
				}
			}
			if diff := cmp.Diff(map[string]int{"VCPU": guestVCPUs, "MEMORY_MB": guestMemory, "VGPU": guestVGPUs},
				sum); diff != "" {
				d.t.Errorf("%s: guest %d of %s (- want, + got):\n%s", when, n, h.name, diff)
			}
		}
	}
}

// TestDatabasesUpgradeDrill is the drill of docs/upgrading.md: three servers on one database and
// twenty agents of the release before this one are upgraded one after the other, under load, with a
// host that goes first and back, and with drivers whose new release reshapes the tree. At no moment
// is inventory withdrawn or an allocation of a guest lost, and no request fails that a client which
// repeats what is answered with 503 notices.
func TestDatabasesUpgradeDrill(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	check(t, binaries.Build())
	older := binaries.Previous(t)
	for engine, fresh := range map[string]func(testing.TB) string{"mariadb": dbservers.MariaDB,
		"postgresql": dbservers.PostgreSQL} {
		t.Run(engine, func(t *testing.T) { practise(t, older, dbservers.WithPasswordFile(t, fresh(t))) })
	}
}

func practise(t *testing.T, older *testproc.Binaries, database string) {
	config := filepath.Join(t.TempDir(), "placement.toml")
	check(t, os.WriteFile(config, []byte("[server]\nshutdown_delay = \"3s\"\nmax_connections_per_address = 10000\n"),
		0o600))
	serve := func(of *testproc.Binaries, s *fleetServer) {
		t.Helper()
		cmd := of.Command("compute-agent", "placement", "serve", "--config", config, "--database", database,
			"--listen", s.address, "--runtime-dir", filepath.Join(testproc.SocketDir(t), "run"))
		s.process = &process{Process: testproc.Start(t, "placement", cmd, `"message":"request"`), t: t}
		s.KilledBy(t)
		s.await(0, "Serving the Placement API.")
	}
	d := &drill{t: t, b: &balancer{transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(d.b.transport.CloseIdleConnections)
	d.asks = &writer{handler: d.b}
	for range 3 {
		s := &fleetServer{address: testproc.FreeAddress(t)}
		serve(older, s)
		d.b.servers = append(d.b.servers, s)
	}
	front := httptest.NewServer(d.b)
	t.Cleanup(front.Close)
	d.url = front.URL
	l := d.b.load(t)
	l.progress("the servers of before")

	var starting sync.WaitGroup
	for i := range 20 {
		h := &drillHost{site: newSite(t, d.url), name: fmt.Sprintf("cn%02d", i)}
		d.hosts = append(d.hosts, h)
		starting.Go(func() { h.run(older, d.url, 1) })
	}
	starting.Wait()
	for _, h := range d.hosts {
		var list struct {
			Providers []struct{ UUID string } `json:"resource_providers"`
		}
		check(t, d.asks.ask(t.Context(), http.MethodGet, "/resource_providers?name="+h.name, nil, &list))
		h.root = list.Providers[0].UUID
		for n := range drillGuests {
			check(t, d.asks.ask(t.Context(), http.MethodPut, "/allocations/"+h.guest(n), map[string]any{
				"consumer_generation": nil, "project_id": "p", "user_id": "u",
				"allocations": map[string]any{h.root: map[string]any{"resources": map[string]int{"VCPU": guestVCPUs,
					"MEMORY_MB": guestMemory, "VGPU": guestVGPUs}}},
			}, nil))
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- d.watch(ctx) }()
	// step goes on when the load does and all guests have what they had.
	step := func(format string, args ...any) {
		t.Helper()
		what := fmt.Sprintf(format, args...)
		seen := d.looks.Load()
		l.progress(what)
		testproc.Eventually(t, 2*patience, what+": each host is looked at", func() error {
			select {
			case err := <-watched:
				t.Fatalf("%s: %v", what, err)
			default:
			}
			if d.looks.Load() < seen+int64(len(d.hosts)) {
				return errors.New("not yet")
			}
			return nil
		})
		d.guests(what)
		t.Log(what)
	}
	step("all is of the release before")

	first := d.hosts[0]
	first.upgrade(binaries, d.url, 1)
	step("a newer agent with older servers")
	first.upgrade(older, d.url, 1)
	step("the host goes back")
	first.upgrade(binaries, d.url, 1)
	step("the host goes forward again")
	replace := func(i int, of *testproc.Binaries) {
		t.Helper()
		s := d.b.servers[i]
		s.signal(syscall.SIGTERM)
		testproc.Equal(t, s.exit(), 0, "server %d ended with %d", i)
		serve(of, s)
	}
	replace(0, binaries)
	step("one newer server")
	replace(0, older)
	step("the server goes back")
	for i := range d.b.servers {
		replace(i, binaries)
		step("server %d is newer", i)
	}
	for batch := range slices.Chunk(d.hosts, 5) { // the operator's tool does a few at a time
		var upgrading sync.WaitGroup
		for _, h := range batch {
			upgrading.Go(func() { h.upgrade(binaries, d.url, 2) })
		}
		upgrading.Wait()
		step("the agents to %s are newer, and their trees reshaped", batch[len(batch)-1].name)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir(), "compute-agent"), "placement", "db",
		"upgrade", "--config", config, "--database", database).CombinedOutput()
	t.Logf("placement db upgrade: %s", out)
	check(t, err)
	step("the schema is upgraded")

	stop()
	check(t, <-watched)
	for _, h := range d.hosts {
		h.quiet()
		last := testproc.Try(d.look(t.Context(), h)).Or(t)
		testproc.Equal(t, last.Places["VGPU"], 2, "the tree of %s has VGPU in %d places: it was not reshaped", h.name)
		h.agent.stop()
	}
	l.finish()
	t.Logf("%d looks at a host's tree, %d claims by a scheduler", d.looks.Load(), d.made.Load())
	for _, s := range d.b.servers {
		s.stop()
	}
}
