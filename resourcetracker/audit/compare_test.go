// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// root, and the others, are providers of the node and of other nodes.
const root, gpu, far, share = "root", "gpu", "far", "share"

var now = time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)

type resources = providertree.ProviderResources

// held is a consumer that was written two hours ago.
func held(uuid string, r resources) reportclient.Consumer {
	generation := int64(3)
	return reportclient.Consumer{UUID: uuid,
		ConsumerAllocations: providertree.ConsumerAllocations{ProjectID: "p", UserID: "u", Generation: &generation,
			Resources: r}, Written: now.Add(-2 * time.Hour), Age: 2 * time.Hour}
}

// node is a node with these consumers.
func node(consumers ...reportclient.Consumer) audit.Input {
	in := audit.Input{Node: plugins.Node{Name: "cn1", UUID: root}, Driver: "fake", Now: now,
		Holdings: reportclient.Holdings{
			Providers: []reportclient.HeldProvider{
				{UUID: root, Name: "cn1",
					Inventories: providertree.Inventories{"VCPU": {Total: 8, Reserved: 2, AllocationRatio: 2}},
					Allocations: resources{}},
				{UUID: gpu, Name: "cn1_gpu",
					Inventories: providertree.Inventories{"CUSTOM_GPU": {Total: 2}}, Allocations: resources{}},
			},
			Consumers: map[string]reportclient.Consumer{},
		}}
	for _, c := range consumers {
		in.Holdings.Consumers[c.UUID] = c
		for i := range in.Holdings.Providers {
			if amounts := c.Resources[in.Holdings.Providers[i].UUID]; amounts != nil {
				in.Holdings.Providers[i].Allocations[c.UUID] = amounts
			}
		}
	}
	return in
}

// TestDiffering: each guest of which driver and Placement say different things, and only those.
func TestDiffering(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := node(held("a", resources{root: {"VCPU": 2}}), held("b", resources{root: {"VCPU": 2}, gpu: {"CUSTOM_GPU": 1}}),
		held("orphan", resources{root: {"VCPU": 1}}))
	in.Guests = []plugins.Guest{
		{UUID: "b", Name: "db", Resources: resources{root: {"VCPU": 4}}},
		{UUID: "a", Resources: resources{root: {"VCPU": 2}}},
		{UUID: "nothing", Resources: resources{root: {"VCPU": 1}}},
		{UUID: "c", Resources: resources{gpu: {"CUSTOM_GPU": 1}}},
	}
	got := audit.Compare(in, audit.Proof{}, audit.Owner{}).Differing()
	testproc.EqualList(t, got, []string{"b db: allocated 2 VCPU on cn1, driver 4; 1 CUSTOM_GPU on cn1_gpu, driver 0"},
		"%q")
}

var hourOld = audit.Proof{MinAge: time.Hour}

// TestOrphans: what is reported, and what is missing for it to be deleted.
func TestOrphans(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	gone := map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour), Gone: now.Add(-90 * time.Minute)}}
	for name, tc := range map[string]struct {
		change func(*audit.Input, *audit.Proof)
		kept   string
	}{
		"seen before, gone, old":   {func(in *audit.Input, _ *audit.Proof) { in.Seen = gone }, ""},
		"never seen (a migration)": {func(*audit.Input, *audit.Proof) {}, "never seen it as a guest"},
		"never seen, named":        {func(_ *audit.Input, p *audit.Proof) { p.Named = map[string]bool{"o": true} }, ""},
		"another is named": {func(_ *audit.Input, p *audit.Proof) { p.Named = map[string]bool{"x": true} },
			"never seen"},
		"gone just now": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour)}}
		}, "may be back soon"},
		"gone a while ago, not long": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {Gone: now.Add(-59 * time.Minute)}}
		}, "may be back soon"},
		"gone just now, and named": {func(in *audit.Input, p *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {}}
			p.Named = map[string]bool{"o": true}
		}, "may be back soon"},
		"gone in the future": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {Gone: now.Add(time.Hour)}}
		}, "may be back soon"},
		"written after it had gone": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
				Gone: now.Add(-3 * time.Hour)}}
		}, "written after the guest left"},
		"written after it had gone, and named": {func(in *audit.Input, p *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
				Gone: now.Add(-3 * time.Hour)}}
			p.Named = map[string]bool{"o": true}
		}, ""},
		"written when it went, to the second": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
				Gone: now.Add(-2*time.Hour - time.Second)}}
		}, ""},
		"written when it went, as exactly as it is known": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
				Gone: now.Add(-2*time.Hour - 2*time.Second)}}
		}, ""},
		"written right after it had gone": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
				Gone: now.Add(-2*time.Hour - 2*time.Second - 1)}}
		}, "written after the guest left"},
		"on another node of the host": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen, in.Siblings = gone,
				map[string]string{"o": "cn2"}
		}, "guest of cn2"},
		"written lately": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = gone
			c := in.Holdings.Consumers["o"]
			c.Age = 59 * time.Minute
			in.Holdings.Consumers["o"] = c
		}, "may not have started yet"},
		"written lately, and named": {func(in *audit.Input, p *audit.Proof) {
			p.Named = map[string]bool{"o": true}
			c := in.Holdings.Consumers["o"]
			c.Age = time.Second
			in.Holdings.Consumers["o"] = c
		}, "may not have started yet"},
		"of unknown age": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = gone
			c := in.Holdings.Consumers["o"]
			c.Written, c.Age = time.Time{}, 0
			in.Holdings.Consumers["o"] = c
		}, "how old"},
		"without a generation": {func(in *audit.Input, _ *audit.Proof) {
			in.Seen = gone
			c := in.Holdings.Consumers["o"]
			c.Generation = nil
			in.Holdings.Consumers["o"] = c
		}, "no generation"},
	} {
		t.Run(name, func(t *testing.T) {
			in, proof := node(held("o", resources{gpu: {"CUSTOM_GPU": 1}, far: {"VCPU": 2}, share: {"DISK_GB": 3}}),
				held("g", resources{root: {"VCPU": 1}})), hourOld
			in.Guests = []plugins.Guest{{UUID: "g"}}
			tc.change(&in, &proof)
			got := audit.Compare(in, proof, audit.Owner{})
			if len(got.Orphans) != 1 || len(got.Unaccounted) != 0 || got.Guests != 1 || got.Consumers != 2 {
				t.Fatalf("Compare: got %+v, want one orphan, one guest and two consumers", got)
			}
			o := got.Orphans[0]
			testproc.Same(t, cmp.Diff([]audit.Share{{gpu, "cn1_gpu", "CUSTOM_GPU", 1}}, o.Here))
			testproc.Same(t, cmp.Diff([]audit.Share{{far, "", "VCPU", 2}, {share, "", "DISK_GB", 3}}, o.Elsewhere))
			if (o.Kept == "") != (tc.kept == "") || !strings.Contains(o.Kept, tc.kept) {
				t.Errorf("kept because %q, want %q", o.Kept, tc.kept)
			}
			if !strings.HasSuffix(o.Look, " o") {
				t.Errorf("look: %q", o.Look)
			}
		})
	}
}

// TestUnaccountedGuests: who holds nothing, or something else.
func TestUnaccountedGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	has := resources{root: {"VCPU": 2}, gpu: {"CUSTOM_GPU": 1}}
	whole := plugins.Guest{UUID: "g", Name: "vm", ProjectID: "p", UserID: "u", Resources: has}
	for name, tc := range map[string]struct {
		guest  plugins.Guest
		here   resources // nil: nothing
		other  resources
		owner  audit.Owner
		wrong  bool
		kept   string
		differ []audit.Difference
	}{
		"holds what it has": {guest: whole, here: has},
		"and more, of classes that the driver does not report": {guest: whole,
			here: resources{root: {"VCPU": 2, "MEMORY_MB": 5}, gpu: {"CUSTOM_GPU": 1},
				far: {"NET_BW_EGR_KILOBIT_PER_SEC": 9}}},
		"holds, the driver does not know what": {guest: plugins.Guest{UUID: "g"}, here: has},
		"holds nothing":                        {guest: whole, wrong: true},
		"holds elsewhere": {guest: whole, other: resources{far: {"VCPU": 2}},
			wrong: true, kept: "elsewhere"},
		"the driver does not know what it has": {guest: plugins.Guest{UUID: "g", ProjectID: "p", UserID: "u"},
			wrong: true, kept: "does not report its resources"},
		"has nothing, holds nothing": {guest: plugins.Guest{UUID: "g", Resources: resources{}}},
		"the driver does not know whose it is": {guest: plugins.Guest{UUID: "g", Resources: has}, wrong: true,
			kept: "does not report its project and user"},
		"half of whose it is": {guest: plugins.Guest{UUID: "g", ProjectID: "p", Resources: has},
			wrong: true, kept: "does not report its project and user"},
		"the driver does not know, an operator does": {guest: plugins.Guest{UUID: "g", Resources: has},
			owner: audit.Owner{ProjectID: "x", UserID: "y"}, wrong: true},
		"holds less": {
			guest: whole, here: resources{root: {"VCPU": 1}, gpu: {"CUSTOM_GPU": 1}},
			wrong: true, kept: "are not changed",
			differ: []audit.Difference{{root, "cn1", "VCPU", 2, 1}},
		},
		"holds it elsewhere in the tree": {
			guest: whole, here: resources{root: {"VCPU": 2, "CUSTOM_GPU": 1}}, wrong: true, kept: "are not changed",
			differ: []audit.Difference{{root, "cn1", "CUSTOM_GPU", 0, 1}, {gpu, "cn1_gpu", "CUSTOM_GPU", 1, 0}},
		},
		"another amount of a share": {
			guest: plugins.Guest{UUID: "g", Resources: resources{root: {"VCPU": 2}, share: {"DISK_GB": 4}}},
			here:  resources{root: {"VCPU": 2}, share: {"DISK_GB": 5}}, wrong: true, kept: "are not changed",
			differ: []audit.Difference{{share, "", "DISK_GB", 4, 5}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := node()
			if tc.here != nil {
				in = node(held("g", tc.here))
			}
			in.Guests, in.Others = []plugins.Guest{tc.guest},
				map[string]reportclient.Consumer{"g": {UUID: "g",
					ConsumerAllocations: providertree.ConsumerAllocations{Resources: tc.other}}}
			got := audit.Compare(in, hourOld, tc.owner)
			if len(got.Orphans) != 0 || (len(got.Unaccounted) == 1) != tc.wrong {
				t.Fatalf("Compare: got %+v, want no orphan, and an unaccounted guest: %v", got, tc.wrong)
			}
			if !tc.wrong {
				return
			}
			g := got.Unaccounted[0]
			if (g.Kept == "") != (tc.kept == "") || !strings.Contains(g.Kept, tc.kept) {
				t.Errorf("kept because %q, want %q", g.Kept, tc.kept)
			}
			testproc.Same(t, cmp.Diff(append([]audit.Difference{}, tc.differ...), g.Differences))
			testproc.NoError(t, g.CheckUnchanged(&tc.guest))
			if g.CheckUnchanged(nil) == nil ||
				tc.guest.Resources != nil && g.CheckUnchanged(&plugins.Guest{UUID: "g"}) == nil {
				t.Error("a guest that went or changed is the same")
			}
			if w := g.DesiredAllocations(); tc.kept == "" &&
				(w.ProjectID == "" || w.UserID == "" ||
					w.Generation != nil || cmp.Diff(tc.guest.Resources, w.Resources) != "") {
				t.Errorf("what is written for the guest: got %+v, want resources, project and user alone", w)
			}
		})
	}
}

// TestOvercommitted: with the numbers, and without inventory too.
func TestOvercommitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := node(held("a", resources{root: {"VCPU": 7, "MEMORY_MB": 1}, gpu: {"CUSTOM_GPU": 2}}),
		held("b", resources{root: {"VCPU": 6}}))
	in.Guests = []plugins.Guest{{UUID: "a"}, {UUID: "b"}}
	got := audit.Compare(in, hourOld, audit.Owner{})
	if d := cmp.Diff([]audit.Overcommitted{
		{Provider: root, Name: "cn1", Class: "MEMORY_MB", Used: 1},
		{Provider: root, Name: "cn1", Class: "VCPU", Total: 8, Reserved: 2, AllocationRatio: 2, Capacity: 12, Used: 13},
	}, got.Overcommitted); d != "" {
		t.Error(d)
	}
	if (audit.Report{Nodes: []audit.Node{got}}).Clean() {
		t.Error("an over-committed inventory is no finding")
	}
}

// TestProof: whatever is known, nothing is deletable that is a guest somewhere on this host, is
// young, or was neither seen nor named, or is not named and was written after it went, or while
// no guest is listed; and every consumer is either a guest or an orphan.
func TestProof(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		coin := func(label string) bool { return rapid.Bool().Draw(t, label) }
		var consumers []reportclient.Consumer
		proof := audit.Proof{MinAge: time.Duration(rapid.IntRange(0, 3).Draw(t, "min age")) * time.Hour,
			Named: map[string]bool{}}
		seen, siblings, guests := map[string]resourcetracker.Sighting{}, map[string]string{}, []plugins.Guest{}
		for i := range rapid.IntRange(0, 6).Draw(t, "consumers") {
			c := held(fmt.Sprint("c", i), resources{root: {"VCPU": 1}})
			c.Age = time.Duration(rapid.IntRange(-2, 5).Draw(t, "age")) * time.Hour
			consumers = append(consumers, c)
			if coin("seen") {
				s := resourcetracker.Sighting{First: now.Add(-99 * time.Hour)}
				if coin("gone") {
					s.Gone = now.Add(-time.Duration(rapid.IntRange(-2, 5).Draw(t, "gone")) * time.Hour)
				}
				seen[c.UUID] = s
			}
			proof.Named[c.UUID] = coin("named")
			if coin("guest") {
				guests = append(guests, plugins.Guest{UUID: c.UUID})
			} else if coin("sibling") {
				siblings[c.UUID] = "cn2"
			}
		}
		in := node(consumers...)
		in.Guests, in.Seen, in.Siblings = guests, seen, siblings
		got := audit.Compare(in, proof, audit.Owner{})
		if len(got.Orphans)+len(guests) != len(consumers) {
			t.Fatalf("%d orphans and %d guests of %d consumers", len(got.Orphans), len(guests), len(consumers))
		}
		for _, o := range got.Orphans {
			s, was := seen[o.Consumer]
			proven := siblings[o.Consumer] == "" && (was || proof.Named[o.Consumer]) && o.Age >= proof.MinAge &&
				(!was || !s.Gone.IsZero() && now.Sub(s.Gone) >= proof.MinAge) &&
				(proof.Named[o.Consumer] || len(guests) > 0 && o.Age >= now.Sub(s.Gone))
			if (o.Kept == "") != proven {
				t.Fatalf("%+v: proven %v", o, proven)
			}
		}
	})
}

// TestOutcomes: what counts as fixed.
func TestOutcomes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		outcome          audit.Outcome
		clean, accounted bool
	}{{"", false, false}, {audit.Deleted, true, true}, {audit.Created, true, true}, {audit.WouldDelete, false, false},
		{audit.WouldCreate, false, true}, {audit.Failed, false, false}} {
		orphan := audit.Report{Nodes: []audit.Node{{Orphans: []audit.Orphan{{Done: tc.outcome}}}}}
		guest := audit.Report{Nodes: []audit.Node{{Unaccounted: []audit.Guest{{Done: tc.outcome}}}}}
		if orphan.Clean() != tc.clean || guest.Clean() != tc.clean ||
			guest.Accounted() != tc.accounted || !orphan.Accounted() {
			t.Errorf("%q: %v, %v, %v, %v", tc.outcome,
				orphan.Clean(), guest.Clean(), guest.Accounted(), orphan.Accounted())
		}
	}
	failed := audit.Report{Nodes: []audit.Node{{Error: "no"}}}
	if failed.Clean() || failed.Accounted() {
		t.Error("a node that could not be compared is clean")
	}
}

// TestOrphansOfAnEmptyNode: a driver that lists no guest is no proof that a consumer is gone.
func TestOrphansOfAnEmptyNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := node(held("o", resources{root: {"VCPU": 1}}))
	in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
		Gone: now.Add(-90 * time.Minute)}}
	if got := audit.Compare(in, hourOld, audit.Owner{}).
		Orphans[0].Kept; !strings.Contains(got, "lists no guests on this node") {
		t.Errorf("why the orphan of an empty node is kept: got %q", got)
	}
	proof := audit.Proof{MinAge: time.Hour, Named: map[string]bool{"o": true}}
	testproc.Equal(t, audit.Compare(in, proof, audit.Owner{}).Orphans[0].Kept, "", "named: %q")
}

// TestOrphansOnASharingProvider: what a provider of the tree shares with other hosts may be held by
// their guests, who were guests here before.
func TestOrphansOnASharingProvider(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := node(held("g", resources{root: {"VCPU": 1}}),
		held("moved", resources{share: {"DISK_GB": 5}, far: {"VCPU": 1}}),
		held("evacuated", resources{root: {"VCPU": 1}, share: {"DISK_GB": 5}, far: {"VCPU": 1}}))
	in.Guests = []plugins.Guest{{UUID: "g"}}
	in.Holdings.Providers = append(in.Holdings.Providers,
		reportclient.HeldProvider{UUID: share, Name: "cn1_disk",
			Sharing: true, Inventories: providertree.Inventories{"DISK_GB": {Total: 100}}})
	gone := resourcetracker.Sighting{First: now.Add(-9 * time.Hour), Gone: now.Add(-90 * time.Minute)}
	in.Seen = map[string]resourcetracker.Sighting{"moved": gone, "evacuated": gone}
	got := audit.Compare(in, hourOld, audit.Owner{})
	testproc.Samef(t, cmp.Diff([]string{root, gpu}, got.Providers), "what is deleted from")
	if len(got.Orphans) != 1 || got.Orphans[0].Consumer != "evacuated" || got.Orphans[0].Kept != "" {
		t.Fatalf("orphans: got %+v, want evacuated alone, which is not kept", got.Orphans)
	}
	testproc.Same(t, cmp.Diff([]audit.Share{{root, "cn1", "VCPU", 1}}, got.Orphans[0].Here))
}

// TestRequestedResources: what a guest was requested with is for guests that hold nothing. It says
// nothing against what others hold.
func TestRequestedResources(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	requested := resources{root: {"VCPU": 2}}
	in := node(held("a", resources{root: {"VCPU": 4}}))
	in.Guests = []plugins.Guest{
		{UUID: "a", ProjectID: "p", UserID: "u", FromFlavor: true, Resources: requested},
		{UUID: "b", ProjectID: "p", UserID: "u", FromFlavor: true, Resources: requested},
		{UUID: "c", ProjectID: "p", UserID: "u", ResourcesUnknown: "it is pinned. What to do: fix c"},
	}
	got := audit.Compare(in, hourOld, audit.Owner{})
	if len(got.Unaccounted) != 2 || got.Unaccounted[0].UUID != "b" || got.Unaccounted[0].Kept != "" {
		t.Fatalf("unaccounted guests: got %+v, want b, which is not kept, and another", got.Unaccounted)
	}
	testproc.Equal(t, got.Unaccounted[1].Kept, "it is pinned. What to do: fix c", "%v")
}

// TestServersThatMove: while the cell moves a server, its guest, which is only kept here, and the
// allocations of its migration are no findings, on the source and on the destination. They are
// without the cell, as of a migration of Nova's.
func TestServersThatMove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	elsewhere := map[string]reportclient.Consumer{"s": held("s", resources{far: {"VCPU": 1}})}
	for name, c := range map[string]struct {
		in       audit.Input
		findings int // without the cell
	}{
		"the source, until it is confirmed": {in: func() audit.Input {
			in := node(held("m", resources{root: {"VCPU": 1}}))
			in.Guests, in.Others = []plugins.Guest{{UUID: "s", Resources: resources{root: {"VCPU": 1}}}}, elsewhere
			return in
		}(), findings: 2},
		"the source, whose server lost its allocations": {in: func() audit.Input {
			in := node(held("m", resources{root: {"VCPU": 1}}))
			in.Guests = []plugins.Guest{{UUID: "s",
				ProjectID: "p", UserID: "u", Resources: resources{root: {"VCPU": 1}}}}
			return in
		}(), findings: 2},
		"a new size on the same host, before it is made": {in: func() audit.Input {
			in := node(held("s", resources{root: {"VCPU": 2}}), held("m", resources{root: {"VCPU": 1}}))
			in.Guests = []plugins.Guest{{UUID: "s", Resources: resources{root: {"VCPU": 1}}}}
			return in
		}(), findings: 2},
		"the destination, before it arrives": {in: node(held("s", resources{root: {"VCPU": 1}})), findings: 1},
		"the destination, as it leaves": {in: func() audit.Input {
			in := node()
			in.Guests, in.Others = []plugins.Guest{{UUID: "s", Resources: resources{root: {"VCPU": 1}}}}, elsewhere
			return in
		}(), findings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := func(n audit.Node) int { return len(n.Orphans) + len(n.Unaccounted) }
			if got := audit.Compare(c.in, hourOld, audit.Owner{}); found(got) != c.findings {
				t.Errorf("without a cell: %+v", got)
			}
			c.in.Servers = map[string]audit.Server{"s": {Name: "web", Migration: "m"}, "other": {Name: "db"}}
			if got := audit.Compare(c.in, hourOld, audit.Owner{}); found(got) != 0 {
				t.Errorf("with the cell: %+v", got)
			}
		})
	}
}

// TestServersOfTheCellKeepTheirAllocations: those of a server whose guest is missing stay, whatever
// else there is as proof, and a server that is being deleted gets none.
func TestServersOfTheCellKeepTheirAllocations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := node(held("o", resources{root: {"VCPU": 1}}))
	in.Seen = map[string]resourcetracker.Sighting{"o": {First: now.Add(-9 * time.Hour),
		Gone: now.Add(-90 * time.Minute)}}
	in.Guests = []plugins.Guest{{UUID: "d", ProjectID: "p", UserID: "u", Resources: resources{root: {"VCPU": 1}}}}
	kept := func(in audit.Input, proof audit.Proof) (orphan, guest string) {
		got := audit.Compare(in, proof, audit.Owner{})
		return got.Orphans[0].Kept, got.Unaccounted[0].Kept
	}
	if orphan, guest := kept(in, hourOld); orphan != "" || guest != "" {
		t.Fatalf("without a cell: %q, %q", orphan, guest)
	}
	in.Servers = map[string]audit.Server{"o": {Name: "web"}, "d": {Name: "db", Deleted: true}}
	for _, proof := range []audit.Proof{hourOld, {MinAge: time.Hour, Named: map[string]bool{"o": true}}} {
		orphan, guest := kept(in, proof)
		if !strings.Contains(orphan, "the server web of the cell, which has no guest now") ||
			guest != "its server is being deleted" {
			t.Errorf("why they are kept: orphan %q, guest %q", orphan, guest)
		}
	}
	in.Servers["o"] = audit.Server{Name: "web", Deleted: true}
	if orphan, _ := kept(in, hourOld); !strings.Contains(orphan, "is being deleted") {
		t.Errorf("why the orphan of a deleted server is kept: got %q", orphan)
	}
}
