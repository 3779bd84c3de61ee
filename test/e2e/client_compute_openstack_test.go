// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// listed is a row of "openstack server list".
type listed struct {
	ID     string `json:"ID"`
	Name   string `json:"Name"`
	Status string `json:"Status"`
}

func byID(a, b listed) int { return strings.Compare(a.ID, b.ID) }

// TestOpenstackCompute: the command line with both cells up, and then with one of them killed.
func TestOpenstackCompute(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t)
	one, two, three := c.boot("one", "host1"), c.boot("two", "host2"), c.boot("three", "host2")
	o := newOpenstack(t, c.osc()...)
	list := func(words ...string) []listed {
		t.Helper()
		var rows []listed
		o.do(&rows, append([]string{"server", "list"}, words...)...)
		slices.SortFunc(rows, byID)
		return rows
	}
	same := func(what string, got, want []listed) {
		t.Helper()
		slices.SortFunc(want, byID)
		testproc.Samef(t, cmp.Diff(want, got), "%s", what)
	}
	all := []listed{{one, "one", "ACTIVE"}, {two, "two", "ACTIVE"}, {three, "three", "ACTIVE"}}

	// All is up.
	same("server list", list(), all) // with the look-ups of flavors and, which fail, of images
	var shown struct {
		Name, Status string
		Flavor       any    `json:"flavor"`
		Project      string `json:"project_id"`
		Host         string `json:"OS-EXT-SRV-ATTR:host"`
	}
	o.do(&shown, "server", "show", one)
	if shown.Name != "one" || shown.Status != "ACTIVE" || !strings.Contains(fmt.Sprint(shown.Flavor), "m1.tiny") ||
		shown.Project != project || shown.Host != "host1" {
		t.Errorf("server show: %+v", shown)
	}
	type computeService struct{ Binary, Host, Zone, Status, State string }
	var services []computeService
	o.do(&services, "compute", "service", "list")
	if diff := cmp.Diff([]computeService{{"nova-compute", "host1", "nova", "enabled", "up"},
		{"nova-compute", "host2", "nova", "enabled", "up"}}, services); diff != "" {
		t.Errorf("compute service list (-want +got):\n%s", diff)
	}
	var flavor struct {
		Name                 string
		RAM, VCPUs, Disk     int
		OSFlavorAccessPublic bool `json:"os-flavor-access:is_public"`
	}
	o.do(&flavor, "flavor", "show", "m1.tiny") // by name: there is a list within
	if flavor.Name != "m1.tiny" || flavor.RAM != 512 ||
		flavor.VCPUs != 1 || flavor.Disk != 1 || !flavor.OSFlavorAccessPublic {
		t.Errorf("flavor show: %+v", flavor)
	}
	c.quota(t)
	c.keyPairs(t, o)
	type hypervisor struct {
		Name  string `json:"Hypervisor Hostname"`
		Type  string `json:"Hypervisor Type"`
		IP    string `json:"Host IP"`
		State string
	}
	var hypervisors []hypervisor
	o.do(&hypervisors, "hypervisor", "list")
	testproc.Samef(t, cmp.Diff([]hypervisor{{"host1", "QEMU", "192.0.2.7", "up"}, {"host2", "QEMU", "192.0.2.7", "up"}},
		hypervisors), "hypervisor list")
	var node struct {
		VCPUs   int `json:"vcpus"`
		Used    int `json:"vcpus_used"`
		Servers int `json:"running_vms"`
	}
	if o.do(&node, "hypervisor", "show", "host2"); node.VCPUs != 100 || node.Used != 2 || node.Servers != 2 {
		t.Errorf("hypervisor show: %+v", node)
	}

	for lines, want := range map[string]string{"5": "guest " + one + " boots\nlogin:", "1": "login:"} {
		if s := o.run("console", "log", "show", "--lines", lines, one); s.Code != 0 ||
			strings.TrimSpace(s.all()) != want {
			t.Errorf("console log show: %+v", s)
		}
	}
	var console struct {
		Protocol string `json:"protocol"`
		Type     string `json:"type"`
		URL      string `json:"url"`
	}
	o.do(&console, "console", "url", "show", "--serial", one)
	page, err := http.Get(console.URL)
	if err != nil || page.Body.Close() != nil || page.StatusCode != http.StatusOK ||
		console.Protocol != "serial" || console.Type != "serial" {
		t.Errorf("console url show: %+v, %v", console, err)
	}
	c.life(t, o, one)

	// A server that is booted from no image. Names of images cannot be looked up here, so that the
	// column for them is empty.
	const noImage = "no-image"
	o.do(nil, "server", "create", "--flavor", "m1.tiny", "--image", "", "--network", "none", "--availability-zone",
		"nova:host2", "--wait", "empty")
	var empty struct {
		ID    string `json:"id"`
		Image any    `json:"image"`
	}
	if o.do(&empty, "server", "show", "empty"); empty.Image != noImage {
		t.Errorf("server show: the image is %v", empty.Image)
	}
	for _, words := range [][]string{{}, {"-n"}, {"--long"}} {
		var rows []map[string]any
		o.do(&rows, append([]string{"server", "list", "--name", "empty"}, words...)...)
		shown := map[string]any{}
		for _, row := range rows {
			for _, column := range []string{"Image", "Image Name", "Image ID"} {
				if value, has := row[column]; has {
					shown[column] = value
				}
			}
		}
		want := map[string]any{"Image": ""}
		switch {
		case slices.Contains(words, "-n"):
			want = map[string]any{"Image": noImage}
		case slices.Contains(words, "--long"):
			want = map[string]any{"Image Name": "", "Image ID": noImage}
		}
		if diff := cmp.Diff(want, shown); diff != "" || len(rows) != 1 {
			t.Errorf("server list %v has %d rows (-want +got):\n%s", words, len(rows), diff)
		}
	}
	o.do(nil, "server", "delete", "--wait", empty.ID)

	// A cell is killed.
	c.kill("cell1")
	down := []listed{{one, "", "UNKNOWN"}, {two, "two", "ACTIVE"}, {three, "three", "ACTIVE"}}
	same("server list -n with cell1 down", list("-n"), down)
	same("server list --all-projects with cell1 down", list("-n", "--all-projects"), down)
	if rows := list("-n", "--limit", "1"); len(rows) != 1 || rows[0].Status != "ACTIVE" {
		t.Errorf("a page has only servers of cells that are up: %v", rows)
	}
	// The client takes it for given that every server has metadata, also when it shows one that by
	// Nova's own documents has not. The service answered well.
	if said := o.refused("server", "show", one); !strings.Contains(said, "metadata") ||
		strings.Contains(said, "HTTP 5") {
		t.Errorf("the client was expected to stumble over what it does not find in a minimal record, 'metadata': %s",
			said)
	}
	testproc.Equal(t, c.status(one), "UNKNOWN", "the same request in other hands: %s")
	services = nil
	o.do(&services, "compute", "service", "list")
	if diff := cmp.Diff([]computeService{{"nova-compute", "host2", "nova", "enabled", "up"},
		{Binary: "nova-compute", Host: "host1", Status: "UNKNOWN"}}, services); diff != "" {
		t.Errorf("compute service list with cell1 down (-want +got):\n%s", diff)
	}
	c.limits(o, 3)
	member := c.osc()
	member[slices.Index(member, "admin:"+project)] = "user:" + project + ":member"
	if said := newOpenstack(t, member...).refused("server", "create", "--flavor", "m1.tiny", "--image", "", "--network",
		"none", "more"); !strings.Contains(said, "create:cell_down") ||
		!strings.Contains(said, "Servers of the project are in a cell that does not answer") ||
		!strings.Contains(said, "Try again later.") {
		t.Errorf("a member's boot while a cell is down: %s", said)
	}
	testproc.Contains(t, o.refused("server", "delete", one), "HTTP 500", "deleting a server whose cell is down: %s")
	testproc.Equal(t, c.status(one), "UNKNOWN", "after the deletion that failed the server is %s")
	o.do(nil, "server", "delete", two)
	c.until("the deleted server is gone", func() bool { return c.status(two) == "gone" })
}

// life has the command line stop, start, reboot, rename and mark a server, and show that it did. It
// leaves the server as it was.
func (c *cloud) life(t *testing.T, o *openstack, id string) {
	t.Helper()
	o.do(nil, "server", "stop", id)
	c.until("the server is stopped", func() bool { return c.status(id) == "SHUTOFF" })
	if said := o.refused("server", "stop", id); !strings.Contains(said, "Cannot 'stop' instance "+id+
		" while it is in vm_state stopped") {
		t.Errorf("stopping what is stopped: %s", said)
	}
	o.do(nil, "server", "start", id)
	c.until("the server is started", func() bool { return c.status(id) == "ACTIVE" })
	o.do(nil, "server", "reboot", "--wait", id)
	o.do(nil, "server", "reboot", "--hard", "--wait", id)
	o.do(nil, "server", "set", "--name", "other", "--property", "a=1", "--property", "b=2", "--tag",
		"x", "--description", "d", id)
	o.do(nil, "server", "unset", "--property", "a", id)
	var shown struct {
		Name, Description string
		Properties        map[string]string
		Tags              []string
	}
	if o.do(&shown, "server", "show", id); shown.Name != "other" || shown.Description != "d" ||
		len(shown.Properties) != 1 || shown.Properties["b"] != "2" ||
		!slices.Equal(shown.Tags, []string{"x"}) {
		t.Errorf("server show after server set: %+v", shown)
	}
	o.do(nil, "server", "unset", "--property", "b", "--tag", "x", "--description", id)
	o.do(nil, "server", "set", "--name", "one", id)
	var events []struct {
		Request string `json:"Request ID"`
		Action  string `json:"Action"`
	}
	o.do(&events, "server", "event", "list", id)
	var actions []string
	for _, e := range events {
		actions = append(actions, e.Action)
	}
	if diff := cmp.Diff([]string{"reboot", "reboot", "start", "stop", "create"}, actions); diff != "" {
		t.Fatalf("server event list (-want +got):\n%s", diff)
	}
	var event struct {
		Action string `json:"action"`
		Events []struct {
			Event  string `json:"event"`
			Result string `json:"result"`
		} `json:"events"`
	}
	if o.do(&event, "server", "event", "show", id, events[3].Request); event.Action != "stop" ||
		len(event.Events) != 1 || event.Events[0].Event != "compute_stop_instance" ||
		event.Events[0].Result != "Success" {
		t.Errorf("server event show: %+v", event)
	}
}

// keyPairs has the command line make, show, list, use and delete key pairs.
func (c *cloud) keyPairs(t *testing.T, o *openstack) {
	t.Helper()
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI drivertest"
	dir := t.TempDir()
	public, private := filepath.Join(dir, "id.pub"), filepath.Join(dir, "made")
	check(t, os.WriteFile(public, []byte(key+"\n"), 0o600))
	o.do(nil, "keypair", "create", "--public-key", public, "mine")
	o.do(nil, "keypair", "create", "--private-key", private, "made")
	var pairs []struct{ Name, Fingerprint, Type string }
	if o.do(&pairs, "keypair", "list"); len(pairs) != 2 || pairs[1].Name != "mine" || pairs[1].Type != "ssh" ||
		pairs[1].Fingerprint != "aa:f3:62:0a:e3:f7:fb:d3:44:a6:4f:9b:b6:8a:fe:16" {
		t.Errorf("keypair list: %+v", pairs)
	}
	o.do(nil, "server", "create", "--flavor", "m1.tiny", "--image", "", "--network", "none", "--availability-zone",
		"nova:host2", "--key-name", "mine", "--wait", "keyed")
	var shown struct {
		ID  string `json:"id"`
		Key string `json:"key_name"`
	}
	if o.do(&shown, "server", "show", "keyed"); shown.Key != "mine" {
		t.Errorf("server show: key_name is %q", shown.Key)
	}
	if said := o.refused("server", "create", "--flavor", "m1.tiny", "--image", "", "--network", "none", "--key-name",
		"none", "more"); !strings.Contains(said, "Invalid key_name provided.") {
		t.Errorf("a boot with a key pair that does not exist: %s", said)
	}
	o.do(nil, "keypair", "delete", "mine", "made")
	if o.do(&pairs, "keypair", "list"); len(pairs) != 0 {
		t.Errorf("keypair list after the deletion: %+v", pairs)
	}
	o.do(nil, "server", "delete", "--wait", shown.ID)
}

// limits has the command line show limits and quotas of a project with so many servers; cells that
// are down make no difference.
func (c *cloud) limits(o *openstack, servers int) {
	c.t.Helper()
	var limits []struct {
		Name  string
		Value int
	}
	o.do(&limits, "limits", "show", "--absolute")
	got := map[string]int{}
	for _, l := range limits {
		got[l.Name] = l.Value
	}
	for name, want := range map[string]int{"totalInstancesUsed": servers, "totalCoresUsed": servers,
		"totalRAMUsed": 512 * servers, "maxTotalInstances": 100} {
		testproc.Equal(c.t, got[name], want, "limits show: %s is %d", name)
	}
}

// quota has the command line show the quotas of the project. It asks the identity service for the
// project and the services of volumes and networks for their quotas, all at the same address: these
// requests are answered here, and the rest by the compute API.
func (c *cloud) quota(t *testing.T) {
	t.Helper()
	compute := testproc.Try(url.Parse(c.endpoint)).Or(t)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: compute.Scheme, Host: compute.Host})
	var quotaSets atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/projects/"+project):
			_, _ = fmt.Fprintf(w,
				`{"project": {"id": %q, "name": %[1]q, "links": {}, "enabled": true, "domain_id": "default", `+
					`"is_domain": false}}`, project)
			return
		case strings.HasSuffix(r.URL.Path, "/quotas/"+project):
			_, _ = fmt.Fprint(w, `{"quota": {}}`)
			return
		case r.URL.Path == compute.Path+"/os-quota-sets/"+
			project && r.Header.Get("OpenStack-API-Version") == "compute "+microversion:
			quotaSets.Add(1)
		case strings.Contains(r.URL.Path, "/os-quota-sets/"): // those of volumes have the same path
			_, _ = fmt.Fprint(w, `{"quota_set": {}}`)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer front.Close()
	told := c.osc()
	told[slices.Index(told, c.endpoint)] = front.URL + compute.Path
	var quotas map[string]any
	newOpenstack(t, told...).do(&quotas, "quota", "show", project)
	for name, want := range map[string]float64{"instances": 100, "cores": 20, "ram": 51200, "properties": 128} {
		if quotas[name] != want {
			t.Errorf("quota show: %s is %v, not %v", name, quotas[name], want)
		}
	}
	if quotaSets.Load() == 0 {
		t.Error("quota show did not ask for quota sets")
	}
}
