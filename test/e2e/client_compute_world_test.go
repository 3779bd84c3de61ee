// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// microversion is the one with records of cells that are down.
const microversion = "2.69"

// project owns the servers, and image is what they are made from: no process looks for it, since no
// host has a driver.
const (
	project = "p1"
	image   = "5ff0f6d5-1f3c-4b0c-9d0e-0d4c6c6a1f0e"
)

// cloud is a compute API over cell0, cell1 and cell2, each a process, with Placement beside it;
// cell1 and cell2 have a host each, host1 and host2, which this process plays.
type cloud struct {
	t         *testing.T
	state     string // directory
	endpoint  string // of the compute API, with its version
	placement string
	cells     map[string]*service
	services  map[string]*service // all of them, by name
	hosts     []*host
}

// newCloud starts all of it and offers a flavor, "1".
func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := newEmptyCloud(t)
	c.ask(http.MethodPost, "/flavors", map[string]any{"flavor": map[string]any{"id": "1", "name": "m1.tiny", "vcpus": 1, "ram": 512, "disk": 1}}, nil)
	for _, n := range []string{"1", "2"} {
		c.hosts = append(c.hosts, c.addHost("host"+n, c.cellURL("cell"+n)))
	}
	return c
}

// newEmptyCloud starts it without hosts and flavors. The environment of the compute API can have
// more.
func newEmptyCloud(t *testing.T, env ...string) *cloud {
	t.Helper()
	return newCloudWith(t, nil, env...)
}

// newCloudWith is newEmptyCloud with more of an environment for all services.
func newCloudWith(t *testing.T, all []string, env ...string) *cloud {
	t.Helper()
	placement := launchService(t, all, "placement", "serve", "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(), "--runtime-dir", t.TempDir())
	c := &cloud{t: t, state: t.TempDir(), placement: placement.endpoint, cells: map[string]*service{}, services: map[string]*service{"placement": placement}}
	for _, name := range []string{"cell0", "cell1", "cell2"} {
		c.cells[name] = launchService(t, all, "cells", "serve", "--name", name, "--listen", c.cellURL(name), "--state-dir", filepath.Join(c.state, name), "--runtime-dir", c.runtime())
		c.services[name] = c.cells[name]
	}
	api := launchService(t, slices.Concat(all, []string{
		"COMPUTE_AGENT_PLACEMENT_CLIENT_URL=" + c.placement, "COMPUTE_AGENT_COMPUTE_API_CELL_TIMEOUT=10s", "COMPUTE_AGENT_COMPUTE_API_CELL_DOWN_TIME=10s",
		"COMPUTE_AGENT_COMPUTE_API_DISCOVER_HOSTS_INTERVAL=100ms", "COMPUTE_AGENT_QUOTA_INSTANCES=100",
	}, env), "cells", "api", "--listen", testproc.FreeAddress(t), "--state-dir", c.state, "--runtime-dir", c.runtime())
	c.endpoint, c.services["compute-api"] = api.endpoint+"/v2.1", api
	for _, name := range []string{"cell0", "cell1", "cell2"} {
		words := []string{"cells", "manage", "create", "--name", name, "--url", c.cellURL(name), "--state-dir", c.state, "--runtime-dir", c.runtime()}
		if name == "cell0" {
			words = append(words, "--cell0")
		}
		if said, code := binaries.Run(t, "compute-agent", words...); code != 0 {
			t.Fatalf("compute-agent %v ended with %d:\n%s", words, code, said)
		}
	}
	return c
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
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		check(c.t, err)
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, url, content)
	check(c.t, err)
	r.Header.Set("X-Auth-Token", "admin:"+project)
	r.Header.Set("OpenStack-API-Version", version)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	check(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	check(c.t, err)
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			c.t.Fatalf("%s %s answered %d %s: %v", method, url, resp.StatusCode, text, err)
		}
	}
	return resp.StatusCode
}

// until waits until a condition holds.
func (c *cloud) until(what string, is func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %v: %s", patience, what)
		}
	}
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
func (c *cloud) kill(name string) { c.cells[name].kill() }

// host makes the guests that its cell assigns to it, at once.
type host struct {
	name, node string
	cell       *cellclient.Client
	placing    *scheduler.PlacementClient
}

// addHost puts a host into a cell, with a node of a hundred small servers, and waits until the
// compute API knows it.
func (c *cloud) addHost(name, cell string) *host {
	c.t.Helper()
	h := &host{name: name, node: uuid.NewString()}
	var err error
	h.cell, err = cellclient.New(cellclient.Config{URL: cell})
	check(c.t, err)
	h.placing, err = scheduler.NewPlacementClient(placementclient.Config{
		Endpoint:  func(context.Context) (string, error) { return c.placement, nil },
		Authorize: func(_ context.Context, h http.Header) error { h.Set("X-Auth-Token", "admin"); return nil },
	})
	check(c.t, err)
	const version = "placement 1.36"
	c.send(http.MethodPost, c.placement+"/resource_providers", version, map[string]any{"uuid": h.node, "name": name}, nil)
	inventory := func(total int) map[string]any { return map[string]any{"total": total, "max_unit": total} }
	c.send(http.MethodPut, c.placement+"/resource_providers/"+h.node+"/inventories", version, map[string]any{
		"resource_provider_generation": 0, "inventories": map[string]any{"VCPU": inventory(100), "MEMORY_MB": inventory(51200), "DISK_GB": inventory(100)},
	}, nil)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.run(ctx)
	}()
	c.t.Cleanup(func() { stop(); <-done; h.cell.CloseIdle() })
	c.until(name+" is mapped", func() bool {
		var made struct{ Server struct{ ID string } }
		code := c.ask(http.MethodPost, "/servers", map[string]any{"server": map[string]any{
			"name": "first", "flavorRef": "1", "imageRef": image, "networks": "none", "availability_zone": "nova:" + name,
		}}, &made)
		if code != http.StatusAccepted {
			return false
		}
		status := ""
		c.until("the first server of "+name+" has come to something", func() bool { status = c.status(made.Server.ID); return status != "BUILD" })
		c.ask(http.MethodDelete, "/servers/"+made.Server.ID, nil, nil)
		c.until("the first server of "+name+" is gone", func() bool { return c.status(made.Server.ID) == "gone" })
		return status == "ACTIVE"
	})
	return h
}

// run is the life of the host. Errors are those of a cell that was killed: it goes on, as an agent
// does.
func (h *host) run(ctx context.Context) {
	var work cellwire.Work
	for ctx.Err() == nil {
		_, err := h.cell.Report(ctx, h.name, cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: h.node, Name: h.name, Abilities: []string{plugins.AbilityConsoleLog, plugins.AbilityRebuild}}}})
		if err == nil {
			work, err = h.cell.Work(ctx, h.name, work.Revision, work.Epoch, time.Second)
		}
		if err == nil {
			err = h.do(ctx, work.Items)
		}
		for _, offer := range work.Streams {
			h.show(ctx, offer)
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// show sends a console log. A stream that is offered again, or whose other end is gone, is left.
func (h *host) show(ctx context.Context, offer cellwire.StreamOffer) {
	end, err := h.cell.AcceptStream(ctx, h.name, offer.ID)
	if err != nil {
		return
	}
	defer func() { _ = end.Close() }()
	_, _ = fmt.Fprintf(end, "guest %s boots\r\nlogin: ", offer.UUID)
	_ = end.CloseWrite()
	_, _ = io.Copy(io.Discard, end)
}

// do makes the desired state of the items exist, and reports it.
func (h *host) do(ctx context.Context, items []cellwire.WorkItem) error {
	var reports []cellwire.Report
	for _, item := range items {
		report := cellwire.Report{UUID: item.Server.UUID, Revision: item.Server.Revision}
		switch {
		case item.Want == cellwire.WantPresent && item.Server.VMState == cellwire.VMBuilding:
			report.Kind, report.PowerState = cellwire.ReportSpawned, plugins.PowerRunning
		case item.Want == cellwire.WantGone:
			if err := h.placing.Release(ctx, report.UUID); err != nil {
				return err
			}
			report.Kind = cellwire.ReportGone
		case item.Want == cellwire.WantShutdown:
			report.Kind, report.PowerState = cellwire.ReportSettled, plugins.PowerShutdown
		case item.Want == cellwire.WantCleared:
			report.Kind = cellwire.ReportSettled
		case item.Want == cellwire.WantRunning, item.Want == cellwire.WantRebuilt:
			report.Kind, report.PowerState = cellwire.ReportSettled, plugins.PowerRunning
		default:
			continue
		}
		reports = append(reports, report)
	}
	if len(reports) == 0 {
		return nil
	}
	_, err := h.cell.Reports(ctx, h.name, reports)
	return err
}

// osc are the arguments with which the command line of OpenStack finds the compute API and
// authenticates.
func (c *cloud) osc() []string {
	return []string{"--os-auth-type", "admin_token", "--os-endpoint", c.endpoint, "--os-token", "admin:" + project, "--os-compute-api-version", microversion}
}
