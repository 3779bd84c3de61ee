// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	deployment "github.com/compute-agent/compute-agent/test/world"
)

// microversion is the one with records of cells that are down.
const microversion = "2.69"

// project owns the servers, and image is what they are made from: no process looks for it, since no
// host has a driver.
const (
	project = "p1"
	image   = "5ff0f6d5-1f3c-4b0c-9d0e-0d4c6c6a1f0e"
)

// cloud is a compute API, which is asked as an administrator of a project, and Placement.
type cloud struct {
	t         *testing.T
	state     string // directory
	endpoint  string // of the compute API, with its version
	placement string
	world     *deployment.World // nil: the test has made it
}

// newCloud starts a compute API over cell0, cell1 and cell2, each a process, with Placement beside
// it, and plays a host in cell1 and in cell2, host1 and host2. It offers a flavor, "1".
func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := newEmptyCloud(t, nil)
	c.world.AddHost("cell1", "host1", 51200)
	c.world.AddHost("cell2", "host2", 51200)
	c.world.Discover()
	return c
}

// newEmptyCloud starts it without hosts, with more of an environment for all processes, and more
// keys of the configuration of the compute API. Hosts are found by themselves.
func newEmptyCloud(t *testing.T, env []string, keys ...string) *cloud {
	t.Helper()
	w := deployment.New(t, deployment.Plan{Binaries: binaries, Env: env, API: append([]string{
		"quota.instances = 100", "quota.cores = 20",
		"quota.ram = 51200", `compute_api.discover_hosts_interval = "200ms"`,
	}, keys...)})
	return &cloud{t: t, state: w.Dir, endpoint: w.APIURL + "/v2.1", placement: w.PlacementURL, world: w}
}

// runtime is the directory of the admin sockets.
func (c *cloud) runtime() string { return filepath.Join(c.state, "run") }

// cellURL is where a cell answers: a socket, whose name no other process takes.
func (c *cloud) cellURL(name string) string { return "unix://" + filepath.Join(c.state, name+".sock") }

// ask is a request to the compute API as curl sends it: the reference for clients.
func (c *cloud) ask(method, path string, body, out any) int {
	c.t.Helper()
	return c.send(method, c.endpoint+path, "compute "+microversion, body, out)
}

func (c *cloud) send(method, url, version string, body, out any) int {
	c.t.Helper()
	a, err := deployment.Exchange(c.t.Context(), http.DefaultClient, method, url,
		http.Header{"X-Auth-Token": {"admin:" + project}, "Openstack-Api-Version": {version}}, body)
	check(c.t, err)
	if out != nil {
		a.Into(c.t, out)
	}
	return a.Code
}

// until waits until a condition holds.
func (c *cloud) until(what string, is func() bool) {
	c.t.Helper()
	testproc.Eventually(c.t, patience, what, testproc.True(is))
}

// status of a server as GET shows it; "gone" for one that is not found.
func (c *cloud) status(id string) string {
	c.t.Helper()
	var shown struct{ Server struct{ Status string } }
	switch code := c.ask(http.MethodGet, "/servers/"+id, nil, &shown); code {
	case http.StatusOK:
		return shown.Server.Status
	case http.StatusNotFound:
		return "gone"
	default:
		return fmt.Sprint(code)
	}
}

// boot makes a server on a host, and waits until it is active.
func (c *cloud) boot(name, on string) string {
	c.t.Helper()
	var made struct{ Server struct{ ID string } }
	code := c.ask(http.MethodPost, "/servers", map[string]any{"server": map[string]any{
		"name": name, "flavorRef": "1", "imageRef": image, "networks": "none", "availability_zone": "nova:" + on,
	}}, &made)
	if code != http.StatusAccepted {
		c.t.Fatalf("booting %s: %d", name, code)
	}
	c.until(name+" is active", func() bool { return c.status(made.Server.ID) == "ACTIVE" })
	return made.Server.ID
}

// kill ends the process of a cell.
func (c *cloud) kill(name string) { c.world.Kill(name) }

// osc are the arguments with which the command line of OpenStack finds the compute API and
// authenticates.
func (c *cloud) osc() []string {
	return []string{"--os-auth-type", "admin_token", "--os-endpoint", c.endpoint, "--os-token", "admin:" + project,
		"--os-compute-api-version", microversion}
}
