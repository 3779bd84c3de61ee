// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	cn1 = "11111111-0000-4000-8000-000000000001"
	cn2 = "11111111-0000-4000-8000-000000000002"
)

// host is two nodes of one driver, their Placement and the audits of them. Time is virtual.
type host struct {
	t         *testing.T
	guests    map[string][]plugins.Guest // by node
	nodeErr   map[string]error           // of a node's list
	driverErr error
	asked     int        // how often the driver listed its guests
	then      func(*int) // before each list, with the count of the lists so far

	held     map[string]reportclient.Consumer
	read     int // consumers that were read one by one
	holdErr  error
	readErr  error
	writeErr error
	written  []string

	log     bytes.Buffer
	auditor audit.Auditor
}

func newHost(t *testing.T) *host {
	h := &host{t: t, guests: map[string][]plugins.Guest{},
		nodeErr: map[string]error{}, held: map[string]reportclient.Consumer{}}
	h.auditor = audit.Auditor{
		Placement: h, Seen: resourcetracker.OpenSeenGuests(t.TempDir()), Logger: zerolog.New(&h.log),
		Drivers: func() []audit.Driver { return []audit.Driver{{Name: "fake", Guests: h.list}} },
	}
	return h
}

func (h *host) list(context.Context) ([]resourcetracker.NodeGuests, error) {
	if h.then != nil {
		h.then(&h.asked)
	}
	h.asked++
	var out []resourcetracker.NodeGuests
	for name, uuid := range map[string]string{"cn1": cn1, "cn2": cn2} {
		out = append(out, resourcetracker.NodeGuests{Node: plugins.Node{Name: name, UUID: uuid},
			Guests: h.guests[uuid], Err: h.nodeErr[uuid]})
	}
	slices.SortFunc(out, func(a, b resourcetracker.NodeGuests) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return out, h.driverErr
}

// holds has a consumer hold VCPUs of a node, written now.
func (h *host) holds(consumer, node string) {
	generation := int64(1)
	h.held[consumer] = reportclient.Consumer{UUID: consumer, Written: time.Now(),
		ConsumerAllocations: providertree.ConsumerAllocations{
			ProjectID: "p", UserID: "u", Generation: &generation, Resources: resources{node: {"VCPU": 2}},
		}}
}

func (h *host) Holdings(_ context.Context, root string) (reportclient.Holdings, error) {
	out := reportclient.Holdings{Providers: []reportclient.HeldProvider{{UUID: root, Name: root}},
		Consumers: map[string]reportclient.Consumer{}}
	for uuid, c := range h.held {
		if c.Resources[root] != nil {
			c.Age = time.Since(c.Written)
			out.Consumers[uuid] = c
		}
	}
	return out, h.holdErr
}

func (h *host) Consumer(_ context.Context, uuid string) (reportclient.Consumer, error) {
	h.read++
	return h.held[uuid], h.readErr
}

func (h *host) DeleteOurPart(_ context.Context, c reportclient.Consumer, ours []string) (bool, error) {
	if h.writeErr == nil {
		h.written = append(h.written, "delete "+c.UUID+" from "+strings.Join(ours, ", "))
		delete(h.held, c.UUID)
	}
	return true, h.writeErr
}

func (h *host) CreateAllocations(_ context.Context, c reportclient.Consumer) error {
	if h.writeErr == nil {
		h.written = append(h.written, "create "+c.UUID+" of "+c.ProjectID+"/"+c.UserID)
		h.held[c.UUID] = c
	}
	return h.writeErr
}

func (h *host) audit(r audit.Request) audit.Report {
	h.t.Helper()
	h.asked, h.read, h.written = 0, 0, nil
	return testproc.Try(h.auditor.Audit(h.t.Context(), r)).Or(h.t)
}

// orphansOf are the orphaned allocations of a report, with why they are kept or their outcome.
func orphansOf(report audit.Report) map[string]string {
	out := map[string]string{}
	for _, n := range report.Nodes {
		for _, o := range n.Orphans {
			out[o.Consumer] = n.Node + ": " + o.Kept + string(o.Done) + o.Problem
		}
	}
	return out
}

func guest(uuid string) plugins.Guest {
	return plugins.Guest{UUID: uuid, ProjectID: "p", UserID: "u", Resources: resources{cn1: {"VCPU": 2}}}
}

// TestServersThatMoveDoNotDiffer after a reshape: another server does. While the cell has not told
// which of them move, a difference is no finding.
func TestServersThatMoveDoNotDiffer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newHost(t)
	servers, unknown := map[string]audit.Server{"a": {Name: "web", Migration: "m"}, "b": {Name: "db"}}, ""
	h.auditor.Servers = func() (map[string]audit.Server, string) { return servers, unknown }
	larger := func(uuid string) plugins.Guest {
		g := guest(uuid)
		g.Resources = resources{cn1: {"VCPU": 4}}
		return g
	}
	for _, uuid := range []string{"a", "b", "c"} {
		h.holds(uuid, cn1)
	}
	differing := func(guests ...plugins.Guest) ([]string, error) {
		return h.auditor.Differing(t.Context(), plugins.Node{Name: "cn1", UUID: cn1}, guests)
	}
	got, err := differing(larger("a"), larger("b"), guest("c"))
	testproc.Check(t, err)
	if len(got) != 1 || !strings.HasPrefix(got[0], "b: allocated 2 VCPU") {
		t.Errorf("%q differ", got)
	}
	servers, unknown = nil, "the cell does not answer"
	if got, err = differing(larger("a")); err == nil || !strings.Contains(err.Error(), unknown) || got != nil {
		t.Errorf("without an answer of the cell %q differ: %v", got, err)
	}
	if got, err = differing(guest("a")); err != nil || got != nil {
		t.Errorf("what is the same differs: %q, %v", got, err)
	}
	h.auditor.Servers = nil
	if got, err = differing(larger("a")); err != nil || len(got) != 1 {
		t.Errorf("without a cell %q differ: %v", got, err)
	}
}

// TestOrphanedAllocationsAreDeleted once there is proof, and not before; each write costs one more
// list of the guests.
func TestOrphanedAllocationsAreDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		for _, uuid := range []string{"stays", "goes", "goes too"} {
			h.holds(uuid, cn1)
			h.guests[cn1] = append(h.guests[cn1], guest(uuid))
		}
		heal := audit.Request{Heal: true, MinAge: time.Hour}
		if report := h.audit(heal); !report.Clean() || h.asked != 1 || h.read != 0 {
			t.Errorf("all guests are there: %+v; listed %d times, read %d", report, h.asked, h.read)
		}
		h.guests[cn1] = h.guests[cn1][:1]
		report := h.audit(heal)
		want := "cn1: it was a guest here less than 1h0m0s ago: it may be back soon"
		if d := cmp.Diff(map[string]string{"goes": want, "goes too": want}, orphansOf(report)); d != "" ||
			h.asked != 1 || h.written != nil {
			t.Errorf("gone just now: %s; listed %d times, wrote %q", d, h.asked, h.written)
		}
		time.Sleep(time.Hour) // exactly the age is enough
		for name, r := range map[string]audit.Request{"without heal": {MinAge: time.Hour},
			"a dry run": {Heal: true, DryRun: true, MinAge: time.Hour}} {
			report := h.audit(r)
			want := map[string]string{"goes": "cn1: ", "goes too": "cn1: "}
			if r.DryRun {
				want = map[string]string{"goes": "cn1: would be deleted", "goes too": "cn1: would be deleted"}
			}
			if d := cmp.Diff(want, orphansOf(report)); d != "" || h.asked != 1 || h.written != nil || report.Clean() {
				t.Errorf("%s: %s; listed %d times, wrote %q", name, d, h.asked, h.written)
			}
		}
		report = h.audit(heal)
		if d := cmp.Diff([]string{"delete goes from " + cn1, "delete goes too from " + cn1}, h.written); d != "" ||
			h.asked != 3 || !report.Clean() || report.Refused != "" {
			t.Errorf("wrote %s; listed %d times, %+v", d, h.asked, report)
		}
		if n := strings.Count(h.log.String(), `"allocations":"deleted"`); n != 2 {
			t.Errorf("logged %d times:\n%s", n, &h.log)
		}
	})
}

// TestNothingIsWrittenUnlessAllIsKnown: each reason, before the first write or between two, and
// what the report says of it.
func TestNothingIsWrittenUnlessAllIsKnown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	crash := errors.New("the process has ended")
	for name, c := range map[string]struct {
		prepare func(*host, *audit.Request)
		refused string
		written int
		outcome string // of the orphan "a"; "-": it is not one
	}{
		"a discrepancy about the host": {func(h *host, _ *audit.Request) {
			h.auditor.Discrepancy =
				"This is another machine."
		},
			"nothing is written: This is another machine. Start the agent here first: it continues with a warning.", 0,
			"cn1: "},
		"a driver that does not answer": {func(h *host, _ *audit.Request) { h.driverErr = crash },
			"nothing is written, because not every driver answered: driver fake: the process has ended", 0, "-"},
		"a node without an answer": {func(h *host, _ *audit.Request) { h.nodeErr[cn2] = crash },
			"nothing is written, because not every driver answered: node cn2: the process has ended", 0, "cn1: "},
		"Placement does not answer": {func(h *host, _ *audit.Request) { h.holdErr = crash },
			"nothing is written, because not every driver answered: node cn1: the process has ended; node cn2: the " +
				"process has ended", 0, "-"},
		"Placement does not know a guest": {func(h *host, _ *audit.Request) {
			h.guests[cn2], h.readErr = []plugins.Guest{{UUID: "new"}}, crash
		}, "nothing is written, because not every driver answered: node cn2: the process has ended", 0, "cn1: "},
		"a driver that fails before the second write": {func(h *host, _ *audit.Request) {
			h.then = func(asked *int) {
				if *asked == 2 {
					h.driverErr = crash
				}
			}
		}, "nothing more is written, because not every driver answered: driver fake: the process has ended", 1,
			"cn1: deleted"},
		"the guest is back": {func(h *host, _ *audit.Request) {
			h.then = func(asked *int) {
				if *asked == 1 {
					h.guests[cn2] = []plugins.Guest{guest("a")}
				}
			}
		}, "", 1, "cn1: failedit is now a guest of cn2"},
		"Placement refuses the write": {func(h *host, _ *audit.Request) { h.writeErr = reportclient.ErrConflict },
			"", 0, "cn1: failed" + reportclient.ErrConflict.Error()},
		"a consumer that is named and no orphan": {func(_ *host, r *audit.Request) { r.Consumers = []string{"a", "x"} },
			"nothing is written: consumer x was named but is not orphaned here: it holds nothing on these nodes, or " +
				"is a guest of one of them", 0, "cn1: "},
		"the same, and a driver does not answer": {func(h *host, r *audit.Request) {
			r.Consumers,
				h.nodeErr[cn2] = []string{"x"}, crash
		},
			"nothing is written, because not every driver answered: node cn2: the process has ended", 0, "cn1: "},
		"orphans that are named": {func(_ *host, r *audit.Request) { r.Consumers = []string{"a", "b"} }, "", 2,
			"cn1: deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				h.guests[cn1] = []plugins.Guest{guest("a"), guest("b"), guest("g")}
				for _, g := range h.guests[cn1] {
					h.holds(g.UUID, cn1)
				}
				h.audit(audit.Request{})
				h.guests[cn1] = h.guests[cn1][2:]
				h.audit(audit.Request{})
				time.Sleep(time.Hour)
				r := audit.Request{Heal: true, MinAge: time.Hour}
				c.prepare(h, &r)
				report := h.audit(r)
				outcome, is := orphansOf(report)["a"]
				if !is {
					outcome = "-"
				}
				if report.Refused != c.refused || len(h.written) != c.written || outcome != c.outcome {
					t.Errorf("refused: %q; wrote %q; %q", report.Refused, h.written, outcome)
				}
				if failed := strings.Contains(h.log.String(), "Failed to heal"); failed != strings.Contains(c.outcome,
					"failed") {
					t.Errorf("logged: %s", &h.log)
				}
			})
		})
	}
}

// TestGuestsWithoutAllocationsGetThem, with the owner that an operator supplies where the driver
// knows none.
func TestGuestsWithoutAllocationsGetThem(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		unowned := guest("b")
		unowned.ProjectID, unowned.UserID = "", ""
		h.guests[cn1] = []plugins.Guest{guest("a"), unowned, guest("has")}
		h.holds("has", cn1)
		heal := func(r audit.HealRequest) audit.Report {
			t.Helper()
			h.asked, h.read, h.written = 0, 0, nil
			return testproc.Try(h.auditor.HealAllocations(t.Context(), r)).Or(t)
		}
		if report := heal(audit.HealRequest{DryRun: true}); h.written != nil || report.Accounted() ||
			report.Nodes[0].Unaccounted[0].Done != audit.WouldCreate || h.read != 2 || h.asked != 1 {
			t.Errorf("dry run: %q, %+v, read %d, listed %d", h.written, report, h.read, h.asked)
		}
		if report := heal(audit.HealRequest{Node: "cn2"}); len(report.Nodes) != 1 || report.Nodes[0].Node != "cn2" ||
			h.written != nil || h.read != 0 {
			t.Errorf("another node: %q, %+v", h.written, report)
		}
		if report := heal(audit.HealRequest{IncompleteProject: "op", IncompleteUser: "ou"}); !report.Accounted() ||
			!slices.Equal(h.written, []string{"create a of p/u", "create b of op/ou"}) || h.asked != 3 {
			t.Errorf("%q, %+v, listed %d", h.written, report, h.asked)
		}
		if report := heal(audit.HealRequest{}); !report.Clean() || h.written != nil {
			t.Errorf("again: %q, %+v", h.written, report)
		}
		if _, err := h.auditor.HealAllocations(t.Context(), audit.HealRequest{Node: "cn9"}); err == nil {
			t.Error("an unknown node")
		}
	})
}

// TestUnknownNodeIsRefused, with the names that there are; without a name every node is meant, also
// of a host without any.
func TestUnknownNodeIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newHost(t)
	ask := func(node string) string {
		_, err := h.auditor.Audit(t.Context(), audit.Request{Node: node})
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if got, want := ask("cn9"), `no driver of this host names a node "cn9"; the nodes are ["cn1" "cn2"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	testproc.Equal(t, ask("cn2"), "", "the error of the audit: %q")
	h.nodeErr[cn2] = errors.New("down")
	if got, want := ask("cn9"),
		`unknown node "cn9"; the nodes are ["cn1" "cn2"]; some drivers failed to list theirs: node cn2: down`; got !=
		want {
		t.Errorf("%s, want %s", got, want)
	}
	h.driverErr = errors.New("down")
	if got, want := ask("cn1"),
		`unknown node "cn1"; the nodes are []; some drivers failed to list theirs: driver fake: down`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	h.auditor.Drivers = func() []audit.Driver { return nil }
	if got := ask("cn1"); got == "" {
		t.Error("a host without drivers has no node cn1")
	}
	testproc.Equal(t, ask(""), "", "the error of the audit: %q")
}

// TestSightingsOfSeveralNodes: a guest that moved between the nodes of a host is gone since it left
// the last one, and was first seen on the first; as long as it is on one, it is not gone.
func TestSightingsOfSeveralNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the virtual clock's
	hour := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Hour) }
	for name, c := range map[string]struct {
		at   []string // where it is at each hour
		want *audit.Seen
	}{
		"never here":                       {[]string{"", ""}, nil},
		"on the first":                     {[]string{cn1, ""}, &audit.Seen{First: hour(0), Gone: hour(1)}},
		"on the first and then the second": {[]string{cn1, cn2, "", ""}, &audit.Seen{First: hour(0), Gone: hour(2)}},
		"on the second and then the first": {[]string{"", cn2, cn1, "", ""},
			&audit.Seen{First: hour(1), Gone: hour(3)}},
		"on the first, and now the second": {[]string{cn1, "", cn2}, &audit.Seen{First: hour(0)}},
		"on the second, and now the first": {[]string{cn2, "", cn1}, &audit.Seen{First: hour(0)}},
		"on both, and it left both together": {[]string{cn1, cn1 + cn2, ""},
			&audit.Seen{First: hour(0), Gone: hour(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				const third = "11111111-0000-4000-8000-000000000003"
				h.holds("g", third) // not a guest of the node that is compared with
				var report audit.Report
				for _, at := range c.at {
					h.guests = map[string][]plugins.Guest{}
					for _, node := range []string{cn1, cn2} {
						if strings.Contains(at, node) {
							h.guests[node] = []plugins.Guest{guest("g")}
						}
					}
					// what it holds on the node where it is not
					h.holds("g", cn1)
					if strings.Contains(at, cn1) {
						h.holds("g", cn2)
					}
					report = h.audit(audit.Request{})
					time.Sleep(time.Hour)
				}
				var got *audit.Seen
				for _, n := range report.Nodes {
					for _, o := range n.Orphans {
						got = o.Seen
						if on := c.at[len(c.at)-1]; (o.GuestOf == "") != (on == "") ||
							strings.Contains(o.GuestOf, n.Node) {
							t.Errorf("on %s it is reported as a guest of %q", n.Node, o.GuestOf)
						}
					}
				}
				testproc.Same(t, cmp.Diff(c.want, got))
			})
		})
	}
}

// TestWhatIsRemembered: the guests of every node that answered, but of no node whose uuid is new;
// a record that cannot be written is logged, one that cannot be read is the node's error.
func TestWhatIsRemembered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	h := newHost(t)
	h.auditor.Seen, h.auditor.NewNode = resourcetracker.OpenSeenGuests(dir), cn2
	h.guests[cn1], h.guests[cn2] = []plugins.Guest{guest("a")}, []plugins.Guest{guest("b")}
	h.holds("a", cn1)
	h.holds("b", cn2)
	remembered := func() map[string]bool {
		out := map[string]bool{}
		for _, node := range []string{cn1, cn2} {
			seen := testproc.Try(resourcetracker.OpenSeenGuests(dir).GuestsOf(node)).Or(t)
			for g := range maps.Keys(seen) {
				out[g] = true
			}
		}
		return out
	}
	h.audit(audit.Request{})
	testproc.Samef(t, cmp.Diff(map[string]bool{"a": true}, remembered()), "of a node that is new")
	h.auditor.NewNode, h.nodeErr[cn2] = "", errors.New("down")
	h.audit(audit.Request{})
	testproc.Samef(t, cmp.Diff(map[string]bool{"a": true}, remembered()), "of a node that does not answer")
	delete(h.nodeErr, cn2)
	h.audit(audit.Request{})
	if d := cmp.Diff(map[string]bool{"a": true, "b": true}, remembered()); d != "" || h.log.Len() > 0 {
		t.Errorf("%s; logged %s", d, &h.log)
	}
	testproc.Check(t, os.WriteFile(filepath.Join(dir, resourcetracker.GuestsDir, cn1+".json"), []byte("{"), 0o600))
	h.auditor.Seen = resourcetracker.OpenSeenGuests(dir)
	report := h.audit(audit.Request{})
	if len(report.Nodes) != 2 || !strings.Contains(report.Nodes[0].Error, "cannot be read") || report.Clean() {
		t.Errorf("the audit with a damaged file of guests: got %+v, want two nodes, the first with an error", report)
	}
	if !strings.Contains(h.log.String(), "Failed to record the guests") {
		t.Errorf("logged: %s", &h.log)
	}
}

// TestHealAsksTheCell: nothing is written while it is not known what lives here and what moves, nor
// about a server that begins to move before the write.
func TestHealAsksTheCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		servers, unknown := map[string]audit.Server{}, "the cell does not answer: connection refused"
		h.auditor.Servers = func() (map[string]audit.Server, string) { return maps.Clone(servers), unknown }
		h.guests[cn1] = []plugins.Guest{guest("a"), guest("b")}
		h.holds("a", cn1)
		h.holds("b", cn1)
		h.audit(audit.Request{})
		h.guests[cn1] = h.guests[cn1][:1]
		h.audit(audit.Request{})
		time.Sleep(2 * time.Hour)
		heal := audit.Request{Heal: true, MinAge: time.Hour}
		if report := h.audit(heal); !strings.Contains(report.Refused, unknown) || len(h.written) > 0 ||
			len(orphansOf(report)) != 1 {
			t.Errorf("refused %q, written %v", report.Refused, h.written)
		}
		unknown = ""
		h.then = func(asked *int) {
			if *asked == 1 {
				servers["b"] = audit.Server{Name: "web", Migration: "m"}
			}
		}
		servers["a"] = audit.Server{Name: "db"}
		h.audit(heal)
		if len(h.written) > 0 { // the discovery before the write shows the move
			t.Errorf("written %v", h.written)
		}
		h.then = nil
		delete(servers, "b")
		h.audit(heal)
		testproc.Same(t, cmp.Diff([]string{"delete b from " + cn1}, h.written))
	})
}
