// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// gallows is in front of Placement and a cell. It kills a command once before, and once after each
// request by which that would change something.
type gallows struct {
	mu   sync.Mutex
	cmd  *exec.Cmd
	seen []string
}

// stand is the server in front of an address.
func (g *gallows) stand(t *testing.T, to string) string {
	t.Helper()
	u := testproc.Try(url.Parse(to)).Or(t)
	transport := &http.Transport{}
	if socket := u.Path; u.Scheme == "unix" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
		u = &url.URL{Scheme: "http", Host: "cell"}
	}
	proxy := &httputil.ReverseProxy{Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = u.Host }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		if strings.HasSuffix(what, "/rename") { // which is also asked for nothing but why not
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if strings.Contains(string(body), `"check":true`) {
				what += " (check)"
			}
		}
		switch {
		case r.Method == http.MethodGet || strings.HasSuffix(r.URL.Path, "/query"):
			proxy.ServeHTTP(w, r)
		case g.kills("before " + what):
			panic(http.ErrAbortHandler)
		default:
			answer := httptest.NewRecorder()
			proxy.ServeHTTP(answer, r)
			if g.kills("after " + what) {
				panic(http.ErrAbortHandler)
			}
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return s.URL
}

// kills says whether the command was killed at a moment, which it is once.
func (g *gallows) kills(moment string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd == nil || slices.Contains(g.seen, moment) {
		return false
	}
	g.seen = append(g.seen, moment)
	_ = syscall.Kill(g.cmd.Process.Pid, syscall.SIGKILL)
	return true
}

// try runs the command, and says whether it was killed.
func (g *gallows) try(cmd *exec.Cmd) (out string, killed bool, err error) {
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	g.mu.Lock()
	if err := cmd.Start(); err != nil {
		g.mu.Unlock()
		return "", false, err
	}
	g.cmd = cmd
	g.mu.Unlock()
	err = cmd.Wait()
	g.mu.Lock()
	g.cmd = nil
	g.mu.Unlock()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return text.String(), status.Signaled(), err
}

// registers starts the agent of a host, and stops it when it has registered the host with its cell
// or is refused.
func registers(t *testing.T, agent *world.Agent) {
	t.Helper()
	mark := agent.Again(t)
	_, found := agent.Until(t, "that it registered, or why not", mark, func(line string) bool {
		return strings.Contains(line, "Registered this host with the cell.")
	})
	if found {
		agent.Stop(t)
	} else if code := agent.Exit(t); code != 3 {
		t.Errorf("the agent with the former name ended with %d", code)
	}
}

// deleteSecond deletes the service that an agent with the former name has made since the cell
// renamed the host, as rename-host then asks for.
func deleteSecond(t *testing.T, cell *cellclient.Client, from, to string) {
	t.Helper()
	services := testproc.Try(cell.Services(t.Context())).Or(t)
	at := func(host string) int {
		return slices.IndexFunc(services, func(s cellwire.Service) bool { return s.Host == host })
	}
	if at(from) < 0 || at(to) < 0 {
		t.Fatalf("the cell does not have both %s and %s: %+v", from, to, services)
	}
	testproc.Check(t, cell.DeleteService(t.Context(), services[at(from)].UUID))
}

// TestHostIsRenamedWithItsServers: a host with servers gets another name, by a command that is
// killed before and after each of its steps and run again. In between, the agent with the former
// name is started, against the rules. Servers, guests, allocations and providers are those of
// before, the agent with the new name goes on with them, what was stated of the host is stated of
// the new name, and nothing is found that does not fit together.
func TestHostIsRenamedWithItsServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := deploy(t, world.Plan{Cells: []string{"cell1"}})
	driver := func(name string) []string {
		return []string{
			"drivers.fake.config.instances = {}",
			fmt.Sprintf(
				"drivers.fake.config.nodes = [{name = %q, inventories = {VCPU = {total "+
					"= 16}, MEMORY_MB = {total = 16384}, DISK_GB = {total = 100}}, "+
					"children = [{name = \"gpu0\", inventories = {VGPU = {total = 4}}}]}]", name),
		}
	}
	agent := w.runAgent(w.AddBareAgent("cell1", "c1h1", driver("c1h1")...))
	other := w.runAgent(w.AddAgent("cell1", "c1h2"))
	web1 := w.Boot("p1", "web1", "c1h1")
	web2 := w.Boot("p1", "web2", "c1h1")
	w.Ask(world.Of("p1"), "2.69", "POST", "/servers/"+web2+"/action", world.Record{"os-stop": nil}).Is(t, 202)
	w.Settled("SHUTOFF", "web2")
	w.Ask(world.Admin, "2.69", "POST", "/os-aggregates", world.Record{"aggregate": world.Record{"name": "rack1"}}).
		Is(t, 200)
	w.Ask(world.Admin, "2.69", "POST",
		"/os-aggregates/1/action", world.Record{"add_host": world.Record{"host": "c1h1"}}).Is(t, 200)
	identities := func() (all []string) {
		t.Helper()
		for _, s := range w.Get(world.Admin, "2.69", "/os-services").List(t, "services") {
			all = append(all, fmt.Sprintf("service %v", s["id"]))
		}
		var tree struct {
			Providers []struct{ UUID string } `json:"resource_providers"`
		}
		w.AskPlacement("GET", "/resource_providers?in_tree="+agent.Node, nil, &tree)
		for _, p := range tree.Providers {
			all = append(all, "provider "+p.UUID)
		}
		for _, server := range []string{web1, web2} {
			all = append(all, fmt.Sprintf("%s holds of %v", server, w.Held(server)))
		}
		slices.Sort(all)
		return all
	}
	before, node := identities(), agent.Node
	rename := func(args ...string) (string, int) {
		return w.TryManage(append([]string{"rename-host", "c1h1"}, args...)...)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		if out, code := rename(args...); code != 3 || !strings.Contains(out, says) {
			t.Errorf("rename-host c1h1 %v ended with %d, want 3 and %q:\n%s", args, code, says, out)
		}
	}
	refused("servers (2): ", "rack9")
	refused("servers (2): ", "rack9", "--with-servers", "1")
	refused("agent of host c1h1 reports", "rack9", "--with-servers", "2")
	agent.Stop(t)
	refused("a host c1h2", "c1h2", "--with-servers", "2")
	refused("c1h1_b begins with the old one", "c1h1_b", "--with-servers", "2")
	w.Ask(world.Of("p1"), "2.69", "POST", "/servers/"+web1+"/action", world.Record{"os-stop": nil}).Is(t, 202)
	refused("server "+web1+" is powering-off", "rack9", "--with-servers", "2")
	agent.Again(t)
	w.Settled("SHUTOFF", "web1")
	w.Ask(world.Of("p1"), "2.69", "POST", "/servers/"+web1+"/action", world.Record{"os-start": nil}).Is(t, 202)
	w.Settled("ACTIVE", "web1")
	agent.Stop(t)
	guests := agent.Guests()
	w.Manage("admit-host", "c1h1", "--class", "VGPU=8", "--trait", "HW_GPU")

	g := &gallows{}
	w.Manage("update", "cell1", "--url", g.stand(t, w.Cells["cell1"].URL))
	w.API.Stop(t)
	w.ConfigureAPI(fmt.Sprintf("placement_client.url = %q", g.stand(t, w.PlacementURL)))
	cell := testproc.Try(cellclient.New(cellclient.Config{URL: w.Cells["cell1"].URL, Cell: "cell1"})).Or(t)
	defer cell.CloseIdle()
	var out string
	seconds := 0
	for killed := true; killed; {
		var err error
		out, killed, err = g.try(binaries.Command("compute-agent", "cells", "manage", "rename-host", "c1h1", "rack9",
			"--with-servers", "2", "--config", w.APIConfig))
		switch {
		case killed:
			registers(t, agent)
		case err != nil && strings.Contains(out, "cell cell1 has both c1h1 and rack9: an agent was started meanwhile"):
			deleteSecond(t, cell, "c1h1", "rack9")
			seconds++
			killed = true
		case err != nil:
			t.Fatalf("after %v: %v\n%s", g.seen, err, out)
		}
		if diff := cmp.Diff(guests, agent.Guests()); diff != "" {
			t.Fatalf("the guests changed after %v: %s", g.seen, diff)
		}
	}
	if n := len(g.seen); n != 10 { // of the cell's check, what is stated, two names and the cell
		t.Errorf("it was killed %d times: %v", n, g.seen)
	}
	testproc.Equal(t, seconds, 1, "the cell had both names %d times") // after the kill that followed its rename
	for _, part := range []string{"Renamed host c1h1 to rack9 in cell cell1, with its servers (2)", `host = "rack9"`,
		"compute-agent adopt --rename --yes"} {
		testproc.Contains(t, out, part, "rename-host does not print %q:\n%s", part)
	}
	w.ConfigureAPI()
	w.StartAPI()
	again, code := rename("rack9", "--with-servers", "2")
	testproc.Equal(t, code, 0, "the second time: %s", again)
	testproc.Equal(t, again, strings.TrimSuffix(out, "\n"), "what is printed the second time")

	if stated := w.Manage("admit-host", "rack9"); !testproc.ContainsAll(stated, []string{"VGPU", "8", "HW_GPU"}) {
		t.Errorf("of rack9 is stated: %s", stated)
	}

	t.Log("the agent goes on with the new name, after adopt --rename")
	renamed := w.AddBareAgent("cell1",
		"rack9", append(driver("rack9"), fmt.Sprintf("agent.state_dir = %q", agent.Dir))...)
	renamed.Dir = agent.Dir
	if said, code := w.Run("run", "--config", renamed.Config); code != 3 || !strings.Contains(said, "adopt --rename") {
		t.Errorf("an agent without adopt --rename: %d\n%s", code, said)
	}
	if said, code := w.Run("adopt", "--rename", "--yes", "--config", renamed.Config); code != 0 ||
		!strings.Contains(said, "note that this node was c1h1 before") {
		t.Fatalf("adopt --rename: %d\n%s", code, said)
	}
	w.runAgent(renamed)
	w.Discover()
	testproc.Equal(t, renamed.Node, node, "the node")
	if diff := cmp.Diff(before, identities()); diff != "" {
		t.Errorf("what has an identity of its own (-before +after):\n%s", diff)
	}
	for name, status := range map[string]string{"web1": "ACTIVE", "web2": "SHUTOFF"} {
		w.Settled(status, name)
		s := w.Show(world.Admin, "2.69", name).Server(t)
		testproc.Equal(t, fmt.Sprint(s["OS-EXT-SRV-ATTR:host"], s["OS-EXT-SRV-ATTR:hypervisor_hostname"]),
			"rack9rack9", "where %s is", name)
	}
	aggregate := w.Get(world.Admin, "2.69", "/os-aggregates/1")
	testproc.Contains(t, string(aggregate.Raw), `["rack9"]`, "the hosts of the aggregate: %s")
	w.Ask(world.Of("p1"), "2.69", "POST", "/servers/"+web2+"/action", world.Record{"os-start": nil}).Is(t, 202)
	w.Ask(world.Of("p1"), "2.69", "POST", "/servers/"+web1+"/action", world.Record{"os-stop": nil}).Is(t, 202)
	w.Settled("ACTIVE", "web2")
	w.Settled("SHUTOFF", "web1")
	w.Boot("p1", "web3", "rack9")
	testproc.Equal(t, len(renamed.Guests()), 3, "the guests")
	testproc.Equal(t, len(renamed.Spawned()), 1, "guests that were made")
	w.Eventually("all is well", func() error {
		if said, code := w.Run("status", "--config", renamed.Config); code != 0 ||
			!strings.Contains(said, "all is well") {
			return fmt.Errorf("status ended with %d:\n%s", code, said)
		}
		return nil
	})
	testproc.Contains(t, w.Manage("audit"), "Nothing was found that does not fit together.", "the audit: %s")
	for _, host := range []*world.Agent{renamed, other} {
		testproc.Equal(t, host.Count(0, `"level":"error"`), 0, "errors in the log of %s", host.Host)
	}

	t.Log("the former name is free when it is deleted")
	testproc.Contains(t, w.Manage("delete-host", "c1h1"), "The name c1h1 is free", "delete-host: %s")
	if said := w.Manage("list-hosts"); strings.Contains(said, "c1h1 ") {
		t.Errorf("list-hosts: %s", said)
	}
}
