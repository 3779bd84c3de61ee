// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// release has the fake driver play one of its releases on 16 VGPUs. Version 0 is one that knows no
// layout versions.
func (s *site) release(layout string) {
	s.t.Helper()
	s.configure("flat", "")
	path := filepath.Join(s.dir, "agent.toml")
	head, _, _ := strings.Cut(read(s.t, path), "[drivers")
	check(s.t, os.WriteFile(path,
		[]byte(head+fmt.Sprintf(
			"[drivers.fake.config]\n%s\n"+
				"nodes = [{name = \"cn1\", uuid = %q, inventories = {VCPU = {total = 8}, VGPU = {total = 16}}}]\n",
			layout, cn1)), 0o600))
}

// vgpus is how many there are on all providers of Placement together.
func (s *site) vgpus() int64 {
	s.t.Helper()
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	s.request("GET", "/resource_providers", "", &list)
	sum := int64(0)
	for _, p := range list.Providers {
		sum += s.total(p.UUID, "VGPU")
	}
	return sum
}

// TestOlderDriverAfterAReshape: layout version 2 was reshaped to, and an older release is put back:
// with a lower version, and without any. 16 VGPUs stay 16; the node is held, and says how to go on.
// Nothing is in the way of taking the reshape back.
func TestOlderDriverAfterAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, older := range map[string]string{"a lower layout version": "shape_version = 1",
		"no layout version": `shape = "flat"`} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.release(older)
			s.agent()()
			s.request("PUT", "/allocations/"+alice, `{"allocations": {"`+cn1+
				`": {"resources": {"VGPU": 3}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`, nil)
			s.release("layout_version = 2")
			s.agent()()
			if _, there := s.find("cn1_gpu_0"); !there || s.vgpus() != 16 {
				t.Fatalf("the reshape was not made: %q, %d VGPU", s.names(), s.vgpus())
			}
			before := s.counted()

			s.release(older)
			client, stop := s.drive()
			view := testproc.Try(client.Status(t.Context())).Or(t)
			if len(view.Conditions) == 0 || view.Conditions[0].Code != health.DriverOlder ||
				!strings.Contains(view.Conditions[0].Text, "has layout version 2, but this driver") {
				t.Errorf("conditions: %+v", view.Conditions)
			}
			s.says(cli.ExitFailed, []string{"status"}, "driver-older-than-tree", "compute-agent reshape undo 1")
			if s.vgpus() != 16 || s.counted() != before {
				t.Errorf("%d VGPU after %d writes", s.vgpus(), s.counted()-before)
			}
			s.says(cli.ExitDone, []string{"reshape", "undo", "1"})
			s.eventually("the older driver's passes", func() bool {
				view, err := client.Status(t.Context())
				return err == nil && view.Drivers[0].Report.Nodes[0].Error == ""
			})
			if s.vgpus() != 16 || s.total(cn1, "VGPU") != 16 {
				t.Errorf("after the undo: %d VGPU, %d of them on the root", s.vgpus(), s.total(cn1, "VGPU"))
			}
			stop()
		})
	}
}

// TestOlderDriverThatNeverHadVersions: neither release has a layout version, and the journal of
// reshapes tells them apart.
func TestOlderDriverThatNeverHadVersions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.release(`layout = "flat"`)
	s.agent()()
	s.request("PUT", "/allocations/"+alice, `{"allocations": {"`+cn1+
		`": {"resources": {"VGPU": 3}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`, nil)
	s.release(`layout = "vgpu-children"`)
	s.agent()()
	before := s.counted()
	// A release that knows nothing of GPUs at all: it does not see that its tree was reshaped.
	s.release("faults.reshape = \"ignore\"")
	client, stop := s.drive()
	defer stop()
	view := testproc.Try(client.Status(t.Context())).Or(t)
	if len(view.Conditions) == 0 || view.Conditions[0].Code != health.DriverOlder ||
		!strings.Contains(view.Conditions[0].Text, "VGPU on cn1, which was moved to") {
		t.Errorf("conditions: %+v", view.Conditions)
	}
	if s.vgpus() != 16 || s.counted() != before {
		t.Errorf("%d VGPU after %d writes", s.vgpus(), s.counted()-before)
	}
}

// find returns the uuid of a provider by its name.
func (s *site) find(name string) (uuid string, found bool) {
	s.t.Helper()
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	s.request("GET", "/resource_providers?name="+name, "", &list)
	if len(list.Providers) == 0 {
		return "", false
	}
	return list.Providers[0].UUID, true
}
