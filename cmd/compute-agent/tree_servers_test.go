// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTreeShowsServers: each guest is drawn on what it holds, a consumer that is no guest as that,
// with its type, and guests without allocations below. Without the flag nothing of it is there.
func TestTreeShowsServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testTreeShowsServers(t, newSite(t))
}

// TestRealTreeShowsServers is the same with OpenStack's Placement.
func TestRealTreeShowsServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testTreeShowsServers(t, newOpenStackSite(t))
}

func testTreeShowsServers(t *testing.T, s *site) {
	t.Helper()
	s.inhabit()
	defer s.agent()()
	s.requestAt("1.38", http.MethodPut, "/allocations/"+vm(7), fmt.Sprintf(
		`{"allocations": {%q: {"resources": {"VCPU": 1}}}, "project_id": "p", "user_id": "u", `+
			`"consumer_generation": null, "consumer_type": "MIGRATION"}`, cn1), nil)
	node := func(args ...string) control.NodeTree {
		t.Helper()
		var tree control.Tree
		check(t, json.Unmarshal([]byte(s.says(0, append(append([]string{"tree"}, args...), "--output", "json"))),
			&tree))
		return tree.Nodes[0]
	}
	guest := func(n int, amount int64) control.Consumer {
		return control.Consumer{UUID: vm(n), Kind: control.KindGuest, Guest: fmt.Sprint("vm", n),
			Resources: map[string]int64{"VCPU": amount}}
	}
	other := func(n int, kind string) control.Consumer {
		return control.Consumer{UUID: vm(n), Kind: control.KindOther, Type: kind,
			Resources: map[string]int64{"VCPU": 1}}
	}
	with, without := node("--servers"), node()
	want := []control.Consumer{guest(1, 1), guest(6, 2),
		other(3, ""), other(4, ""), other(5, ""), other(7, "MIGRATION")}
	testproc.Samef(t, cmp.Diff(want, with.Providers[0].Consumers), "consumers")
	if used := with.Providers[0].Inventories[slices.IndexFunc(with.Providers[0].Inventories,
		func(i control.Inventory) bool { return i.Class == "VCPU" })].Used; used == nil || *used != 7 {
		t.Errorf("7 VCPU are used: %v", used)
	}
	if diff := cmp.Diff([]control.Consumer{{UUID: vm(2), Kind: control.KindGuest, Guest: "vm2"}},
		with.WithoutAllocations); diff != "" {
		t.Errorf("guests without allocations (-want +got):\n%s", diff)
	}
	with.ReadAt, with.WithoutAllocations = without.ReadAt, nil
	for i := range with.Providers {
		with.Providers[i].Consumers = nil
	}
	testproc.Samef(t, cmp.Diff(without, with), "the rest differs (-without +with)")
	shown := s.says(0, []string{"tree", "--servers"})
	for _, line := range []string{
		`held by  vm1  ` + vm(1) + `  VCPU 1$`, `         vm6  ` + vm(6) + `  VCPU 2$`, `         -    ` + vm(7) +
			`  VCPU 1  MIGRATION, not a guest of this host$`,
		`^Guests of cn1 without allocations`, `^  vm2  ` + vm(2) + `$`,
	} {
		if !regexp.MustCompile(`(?m)` + line).MatchString(shown) {
			t.Errorf("%q is not there:\n%s", line, shown)
		}
	}
	if text := s.says(0, []string{"tree"}); strings.Contains(text, "vm1") {
		t.Errorf("without the flag:\n%s", text)
	}
}

// TestTreeWithoutGuests: where the driver cannot list guests, consumers are not called anything.
func TestTreeWithoutGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.configure("flat", "")
	defer s.agent()()
	s.claim(1, 1, 0)
	s.says(0, []string{"tree", "--servers"}, "-  "+vm(1)+"  VCPU 1  not known whether it is a guest",
		"The guests of cn1 are unknown: ", "not supported by this driver")
}
