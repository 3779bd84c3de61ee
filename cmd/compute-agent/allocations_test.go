// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// newOpenStackSite is a site whose Placement is OpenStack's own.
func newOpenStackSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	target := testproc.Try(url.Parse(testproc.StartPlacement(t).URL)).Or(t)
	s.http = httputil.NewSingleHostReverseProxy(target)
	return s
}

// vm is the uuid of a guest, or of another consumer.
func vm(n int) string { return fmt.Sprintf("99999999-0000-4000-8000-%012d", n) }

// guestList is the fake driver's configuration of guests that have 1 VCPU each.
func guestList(more string, guests ...int) string {
	lines := []string{}
	for _, n := range guests {
		lines = append(lines,
			fmt.Sprintf(`{uuid = %q, name = "vm%d", project_id = "p", user_id = "u", resources = {"" = {VCPU = 1}}}`,
				vm(n), n))
	}
	if more != "" {
		lines = append(lines, more)
	}
	return "guest_list = [" + strings.Join(lines, ", ") + "]"
}

// claim has a consumer hold VCPUs of the node, and of another host.
func (s *site) claim(n, here, elsewhere int) {
	s.t.Helper()
	held := []string{}
	for provider, amount := range map[string]int{cn1: here, cn2: elsewhere} {
		if amount > 0 {
			held = append(held, fmt.Sprintf(`%q: {"resources": {"VCPU": %d}}`, provider, amount))
		}
	}
	s.request(http.MethodPut, "/allocations/"+vm(n),
		fmt.Sprintf(`{"allocations": {%s}, "project_id": "p", "user_id": "u", "consumer_generation": null}`,
			strings.Join(held, ", ")), nil)
}

// holding is what a consumer holds of the node and of another host.
func (s *site) holding(n int) string {
	s.t.Helper()
	var got struct {
		Allocations map[string]struct{ Resources map[string]int }
	}
	s.request(http.MethodGet, "/allocations/"+vm(n), "", &got)
	return fmt.Sprintf("%d here, %d elsewhere", got.Allocations[cn1].Resources["VCPU"],
		got.Allocations[cn2].Resources["VCPU"])
}

const cn2 = "aaaaaaaa-0000-4000-8000-000000000002"

// inhabit has Placement know the node and another host, and these guests and consumers:
//
//	1  a guest that holds what it has    4  was a guest, is gone, holds something elsewhere too
//	2  a guest that holds nothing        5  was never a guest: a migration
//	3  was a guest, is gone              6  a guest that holds something else than it has
func (s *site) inhabit() {
	s.t.Helper()
	s.configure("flat", "") // a node that is new has no guests
	s.agent()()
	s.configure("flat", guestList("", 1, 2, 6))
	s.request(http.MethodPost, "/resource_providers", fmt.Sprintf(`{"uuid": %q, "name": "cn2"}`, cn2), nil)
	s.request(http.MethodPut, "/resource_providers/"+
		cn2+"/inventories", `{"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}`, nil)
	s.claim(1, 1, 0)
	s.claim(3, 1, 0)
	s.claim(4, 1, 1)
	s.claim(5, 1, 0)
	s.claim(6, 2, 0)
	// What the agent remembers: two went just now, after what they hold was written.
	seen := resourcetracker.OpenSeenGuests(filepath.Join(s.dir, "state"))
	list := func(ns ...int) (out []plugins.Guest) {
		for _, n := range ns {
			out = append(out, plugins.Guest{UUID: vm(n)})
		}
		return out
	}
	check(s.t, os.RemoveAll(filepath.Join(s.dir, "state", resourcetracker.GuestsDir)))
	check(s.t, seen.Record(cn1, list(1, 3, 4, 6), time.Now().Add(-48*time.Hour)))
	check(s.t, seen.Record(cn1, list(1, 6), time.Now()))
}

func (s *site) audit(code int, args ...string) (report audit.Report) {
	s.t.Helper()
	got, stdout, stderr := s.run(append(append([]string{"allocations"}, args...), "--output", "json")...)
	if got != code {
		s.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	check(s.t, json.Unmarshal([]byte(stdout), &report))
	return report
}

func (s *site) wantHeld(what string, want map[int]string) {
	s.t.Helper()
	for n, w := range want {
		testproc.Equal(s.t, s.holding(n), w, "%s: consumer %d holds %s", what, n)
	}
}

func (s *site) counted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// TestAllocations is the whole story, by a running agent and without one.
func TestAllocations(t *testing.T) {
	t.Parallel()
	testAllocations(t, newSite)
}

// TestRealAllocations is the same with OpenStack's Placement.
func TestRealAllocations(t *testing.T) {
	t.Parallel()
	testAllocations(t, newOpenStackSite)
}

func testAllocations(t *testing.T, newSite func(*testing.T) *site) {
	t.Helper()
	for name, running := range map[string]bool{"running": true, "not running": false} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			testAllocationsOn(t, newSite(t), running)
		})
	}
}

func testAllocationsOn(t *testing.T, s *site, running bool) {
	t.Helper()
	s.inhabit()
	if running {
		defer s.agent()()
	}
	before := map[int]string{1: "1 here, 0 elsewhere", 2: "0 here, 0 elsewhere", 3: "1 here, 0 elsewhere",
		4: "1 here, 1 elsewhere", 5: "1 here, 0 elsewhere", 6: "2 here, 0 elsewhere"}
	s.wantHeld("at first", before)
	writes := s.counted()

	found := s.audit(cli.ExitFailed, "audit").Nodes[0]
	if len(found.Orphans) != 3 || len(found.Unaccounted) != 2 || found.Guests != 3 || found.Consumers != 5 {
		t.Fatalf("%+v", found)
	}
	code, text, _ := s.run("allocations", "audit")
	testproc.Equal(t, code, cli.ExitFailed, "exit code %d")
	for _, words := range []string{
		"orphaned: consumer " + vm(3), "elsewhere  VCPU 1 on " + cn2, "may be a migration",
		"openstack resource provider allocation show " + vm(5),
		"guest " + vm(2) + " (vm2) holds nothing", "VCPU on cn1: the driver says 1, Placement says 2",
	} {
		testproc.Contains(t, text, words, "%q is not in\n%s", words)
	}

	// Too young, and said so: the allocations were written just now.
	for _, o := range s.audit(cli.ExitFailed, "audit", "--heal").Nodes[0].Orphans {
		if o.Done != "" || o.Kept == "" {
			t.Errorf("%+v", o)
		}
	}
	s.audit(cli.ExitFailed, "audit", "--heal", "--dry-run", "--min-age", "0s")
	s.audit(cli.ExitDone, "heal", "--dry-run")
	if s.counted() != writes {
		t.Error("something was written")
	}
	s.wantHeld("after looking", before)

	healed := s.audit(cli.ExitFailed, "audit", "--heal", "--min-age", "0s").Nodes[0]
	outcomes := map[string]audit.Outcome{}
	for _, o := range healed.Orphans {
		outcomes[o.Consumer] = o.Done
	}
	if outcomes[vm(3)] != audit.Deleted || outcomes[vm(4)] != audit.Deleted || outcomes[vm(5)] != "" {
		t.Errorf("%v", outcomes)
	}
	before[3], before[4] = "0 here, 0 elsewhere", "0 here, 1 elsewhere"
	s.wantHeld("after healing", before)

	// Only the consumer that the operator names is healed: the migration.
	if r := s.audit(cli.ExitProtect, "audit", "--heal",
		"--min-age", "0s", "--consumer", vm(1)); !strings.Contains(r.Refused, vm(1)) {
		t.Errorf("%+v", r)
	}
	s.wantHeld("after naming a guest", before)
	if r := s.audit(cli.ExitProtect, "audit", "--heal", "--min-age", "0s", "--consumer", vm(5),
		"--consumer", vm(99)); !strings.Contains(r.Refused, vm(99)) {
		t.Errorf("%+v", r)
	}
	s.wantHeld("after naming an unknown consumer, too", before)
	s.audit(cli.ExitFailed, "audit", "--heal", "--min-age", "0s", "--consumer", vm(5))
	before[5] = "0 here, 0 elsewhere"
	s.wantHeld("after naming the migration", before)

	// Missing allocations.
	made := s.audit(cli.ExitDone, "heal")
	if made.Nodes[0].Unaccounted[0].Done != audit.Created {
		t.Errorf("%+v", made)
	}
	before[2] = "1 here, 0 elsewhere"
	s.wantHeld("after making what is missing", before)
	if code, text, _ := s.run("allocations", "heal"); code != cli.ExitDone || !strings.Contains(text,
		"nothing to create") {
		t.Errorf("%d, %s", code, text)
	}
	if left := s.audit(cli.ExitFailed, "audit").Nodes[0]; len(left.Orphans) != 0 || len(left.Unaccounted) != 1 ||
		left.Unaccounted[0].UUID != vm(6) {
		t.Errorf("%+v", left)
	}
}

// TestAllocationsRefused: who cannot tell is never taken for one who says no.
func TestAllocationsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.inhabit()
	writes := s.counted()
	for name, more := range map[string]string{
		"the driver cannot list now":  `guests_error = "the daemon does not answer"` + "\n" + guestList("", 1),
		"the driver can never list":   "",
		"the driver is not ready":     `not_ready = "the daemon is down"` + "\n" + guestList("", 1),
		"half a guest cannot be read": guestList(fmt.Sprintf(`{uuid = %q, resources = {gone = {VCPU = 1}}}`, vm(9))),
	} {
		s.configure("flat", more)
		for _, command := range [][]string{{"audit", "--heal", "--min-age", "0s"},
			{"audit", "--heal", "--min-age", "0s", "--consumer", vm(5)}, {"heal"}} {
			if r := s.audit(cli.ExitProtect, command...); r.Refused == "" {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if r := s.audit(cli.ExitFailed, "audit"); r.Nodes[0].Error == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// Placement fails for one request of those that the comparison needs, whichever that is.
	s.configure("flat", guestList("", 1, 2, 6))
	whole := s.http
	for fail := 1; ; fail++ {
		n := 0
		s.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; n >= fail && r.Method == http.MethodGet {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			whole.ServeHTTP(w, r)
		})
		code, _, _ := s.run("allocations", "audit", "--heal", "--dry-run", "--min-age", "0s")
		s.http = whole
		if n < fail {
			break
		}
		if code == cli.ExitDone || fail == 1 && code != cli.ExitProtect && code != cli.ExitFailed {
			t.Errorf("Placement fails from request %d on: exit code %d", fail, code)
		}
		if fail > 200 {
			t.Fatal("there is no end to the requests")
		}
	}
	if s.counted() != writes {
		t.Error("something was written")
	}
	for _, wrong := range [][]string{{"audit", "--dry-run"}, {"audit", "--consumer", vm(1)},
		{"audit", "--heal", "--consumer", "x"}, {"audit", "--heal", "--min-age", "-1s"}} {
		if code, _, _ := s.run(append([]string{"allocations"}, wrong...)...); code != cli.ExitUsage {
			t.Errorf("%v: exit code %d", wrong, code)
		}
	}
	if code, _, stderr := s.run("allocations", "audit", "--node", "cn9"); code != cli.ExitFailed ||
		!strings.Contains(stderr, `"cn1"`) {
		t.Errorf("%d, %s", code, stderr)
	}
}

// TestAllocationsRace: another client that writes to the consumer, or a guest that comes, between
// comparing and writing, wins.
func TestAllocationsRace(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.inhabit()
	defer s.agent()()
	whole := s.http
	s.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, vm(3)) { // another client is faster
			body := httptest.NewRequestWithContext(r.Context(), http.MethodDelete, "/allocations/"+vm(3), http.NoBody)
			body.Header = http.Header{"X-Auth-Token": {"admin"}}
			whole.ServeHTTP(httptest.NewRecorder(), body)
		}
		whole.ServeHTTP(w, r)
	})
	report := s.audit(cli.ExitFailed, "audit", "--heal", "--min-age", "0s").Nodes[0]
	s.http = whole
	for _, o := range report.Orphans {
		if o.Consumer == vm(3) && (o.Done != audit.Failed || o.Problem == "") ||
			o.Consumer == vm(4) && o.Done != audit.Deleted {
			t.Errorf("%+v", o)
		}
	}
}

// TestAllocationsOfAGuestThatComesBack: what was written after a guest had gone is for its return.
// A driver that lists no guest proves nothing; an operator who names the consumer decides.
func TestAllocationsOfAGuestThatComesBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.inhabit()
	seen := resourcetracker.OpenSeenGuests(filepath.Join(s.dir, "state"))
	check(t, os.RemoveAll(filepath.Join(s.dir, "state", resourcetracker.GuestsDir)))
	check(t, seen.Record(cn1, []plugins.Guest{{UUID: vm(1)}, {UUID: vm(3)}, {UUID: vm(4)}},
		time.Now().Add(-48*time.Hour)))
	check(t, seen.Record(cn1, []plugins.Guest{{UUID: vm(1)}, {UUID: vm(4)}}, time.Now().Add(-24*time.Hour)))
	kept := func(n int, why string, args ...string) {
		t.Helper()
		for _, o := range s.audit(cli.ExitFailed, append([]string{"audit", "--heal", "--min-age", "0s"}, args...)...).
			Nodes[0].Orphans {
			if o.Consumer == vm(n) && !strings.Contains(o.Kept, why) {
				t.Errorf("%+v", o)
			}
		}
		s.wantHeld(why, map[int]string{n: "1 here, 0 elsewhere"})
	}
	kept(3, "written after the guest left")
	s.audit(cli.ExitFailed, "audit", "--heal", "--min-age", "0s", "--consumer", vm(3))
	s.wantHeld("by a person's word", map[int]string{3: "0 here, 0 elsewhere"})

	s.configure("flat", "guest_list = []")
	kept(1, "lists no guests on this node")
	s.audit(cli.ExitFailed, "audit", "--heal", "--min-age", "0s", "--consumer", vm(1))
	s.wantHeld("by a person's word", map[int]string{1: "0 here, 0 elsewhere"})
}

// TestAllocationsOnASharingChild: a child that shares its inventory with other hosts is held by
// their guests, too.
func TestAllocationsOnASharingChild(t *testing.T) {
	t.Parallel()
	testAllocationsOnASharingChild(t, newSite(t))
}

// TestRealAllocationsOnASharingChild is the same with OpenStack's Placement.
func TestRealAllocationsOnASharingChild(t *testing.T) {
	t.Parallel()
	testAllocationsOnASharingChild(t, newOpenStackSite(t))
}

func testAllocationsOnASharingChild(t *testing.T, s *site) {
	t.Helper()
	s.inhabit()
	const disk = "aaaaaaaa-0000-4000-8000-000000000003"
	s.request(http.MethodPost, "/resource_providers",
		fmt.Sprintf(`{"uuid": %q, "name": "cn1_disk", "parent_provider_uuid": %q}`, disk, cn1), nil)
	s.request(http.MethodPut, "/resource_providers/"+
		disk+"/inventories", `{"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 100}}}`, nil)
	s.request(http.MethodPut, "/resource_providers/"+
		disk+"/traits", `{"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}`, nil)
	for n, where := range map[int]string{3: cn2, 4: cn1} { // one has moved away, of one a part stayed
		s.request(http.MethodDelete, "/allocations/"+vm(n), "", nil)
		s.request(http.MethodPut, "/allocations/"+vm(n), fmt.Sprintf(`{"allocations": {%q: {"resources": {"DISK_GB": 5}}, %q: {"resources": {"VCPU": 1}}},
				"project_id": "p", "user_id": "u", "consumer_generation": null}`, disk, where), nil)
	}
	seen := resourcetracker.OpenSeenGuests(filepath.Join(s.dir, "state"))
	check(t, seen.Record(cn1, []plugins.Guest{{UUID: vm(1)}, {UUID: vm(3)}, {UUID: vm(4)}}, time.Now()))
	check(t, seen.Record(cn1, []plugins.Guest{{UUID: vm(1)}}, time.Now()))
	s.audit(cli.ExitFailed, "audit", "--heal", "--min-age", "0s")
	s.wantHeld("after healing", map[int]string{3: "0 here, 1 elsewhere", 4: "0 here, 0 elsewhere"})
	for _, n := range []int{3, 4} {
		var got struct {
			Allocations map[string]struct{ Resources map[string]int }
		}
		s.request(http.MethodGet, "/allocations/"+vm(n), "", &got)
		if got.Allocations[disk].Resources["DISK_GB"] != 5 {
			t.Errorf("consumer %d holds %+v", n, got.Allocations)
		}
	}
}
