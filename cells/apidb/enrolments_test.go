// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// node is the uuid of a test's compute node.
func node(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// enrol changes an enrolment without conditions.
func enrol(t testing.TB, s database, e apidb.Enrolment) {
	t.Helper()
	got := testproc.Try(s.ChangeEnrolment(ctx, e.Host, func(was *apidb.Enrolment) error { *was = e; return nil })).Or(t)
	wants[apidb.Enrolment](t, "what was written")(got, nil)(e)
}

// testEnrolments: all processes see what one wrote; a change is all or nothing; the deny list has
// those that were evicted or invited again.
func testEnrolments(t *testing.T, e testEngine) {
	stores := e.processes(t)
	s, other := stores[0], stores[len(stores)-1]
	withCells(t, s, 1)
	wants[[]apidb.Enrolment](t, "none")(s.Enrolments(ctx))(nil)
	h1 := apidb.Enrolment{
		Host: "h1", CellUUID: cellUUID(1), State: apidb.Invited, CreatedBy: "root", CreatedAt: start,
		InvitedUntil: start.Add(time.Hour),
		Token:        apidb.TokenDigest{ID: "id", Salt: "salt", Digest: "digest"},
	}
	enrol(t, s, h1)
	wants[apidb.Enrolment](t, "by token")(other.EnrolmentOfToken(ctx, "id"))(h1)
	if _, denied := h1.Denial(); denied {
		t.Error("a host that is invited for the first time is denied")
	}
	h1.State, h1.Nodes, h1.KeyDigest, h1.NextKeyDigest =
		apidb.Enrolled, []apidb.EnrolledNode{{node(1), "h1"}, {node(2), ""}}, "key", "next"
	h1.EnrolledAt, h1.EnrolledFrom, h1.Serial, h1.Issued,
		h1.ExpiresAt = start, "192.0.2.1", "ff", start, start.Add(24*time.Hour)
	h1.RenewedFrom, h1.Conflict = "192.0.2.2",
		&apidb.KeyConflict{At: start.Add(time.Hour), From: "192.0.2.3", Key: "old"}
	h1.Agents = agentruns.Agents{Turn: 7, Until: 9,
		All: []agentruns.HostAgent{{Process: agentruns.Process{Token: "a", Boot: "b", Started: start,
			Address: "192.0.2.3"}, First: 3, Shown: 7, Seen: 8}}}
	enrol(t, other, h1)
	wants[apidb.Enrolment](t, "by host")(s.Enrolment(ctx, "h1"))(h1)
	wants[apidb.Enrolment](t, "of no host")(s.Enrolment(ctx, "h0"))(apidb.Enrolment{Host: "h0"})
	h2 := apidb.Enrolment{
		Host: "h2", CellUUID: cellUUID(1), State: apidb.Evicted, DeniedBefore: start, EvictedAt: start,
		Reason: "stolen", Nodes: []apidb.EnrolledNode{{node(3), ""}},
		Token: apidb.TokenDigest{ID: "other"},
	}
	enrol(t, s, h2)
	wants[[]apidb.Enrolment](t, "both")(other.Enrolments(ctx))([]apidb.Enrolment{h1, h2})
	if d, denied := h2.Denial(); !denied || d != (pki.Denial{Host: "h2", Before: start, Reason: "stolen"}) {
		t.Errorf("the denial of h2: got %+v, want it as stolen", d)
	}
	refusal := errors.New("no")
	_, err := s.ChangeEnrolment(ctx,
		"h1", func(e *apidb.Enrolment) error { e.State, e.Nodes[0].Name = apidb.Evicted, "x"; return refusal })
	wantError(t, "a refused change", err, refusal)
	_, err = s.ChangeEnrolment(ctx, "h3", func(e *apidb.Enrolment) error {
		if e.State != "" || e.Host != "h3" {
			t.Errorf("a host without an enrolment has %+v", e)
		}
		return apidb.ErrNotFound
	})
	wantError(t, "a host that is not there", err, apidb.ErrNotFound)
	wants[[]apidb.Enrolment](t, "both still")(other.Enrolments(ctx))([]apidb.Enrolment{h1, h2})
	for _, id := range []string{"", "ID", "none"} {
		_, err := s.EnrolmentOfToken(ctx, id)
		wantError(t, "token "+id, err, apidb.ErrNotFound)
	}

	// The nodes of an evicted host stay its own until it is deleted.
	take := func(host string, n int) error {
		_, err := s.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
			e.CellUUID, e.State, e.Nodes = cellUUID(1),
				apidb.Enrolled, append(e.Nodes, apidb.EnrolledNode{UUID: node(n)})
			return nil
		})
		return err
	}
	var taken *apidb.NodeTakenError
	for n, owner := range map[int]string{1: "h1", 3: "h2"} {
		if err := take("h4", n); !errors.As(err, &taken) ||
			*taken != (apidb.NodeTakenError{Node: node(n), Host: owner}) || !errors.Is(err, apidb.ErrExists) {
			t.Errorf("node %d of %s: %v", n, owner, err)
		}
	}
	must(t, s.DeleteHost(ctx, "h2"))
	must(t, take("h4", 3))
	wantError(t, "deleting it again", s.DeleteHost(ctx, "h2"), apidb.ErrNotFound)
	wantError(t, "deleting a host that is enrolled and not mapped", s.DeleteHost(ctx, "h1"), apidb.ErrNotFound)
	// A node that reports is that of the host that it was mapped to.
	must(t, s.MapNodes(ctx, []apidb.Node{{UUID: node(5), Name: "h5", Host: "h5", CellUUID: cellUUID(1)}}))
	if err := take("h4", 5); !errors.As(err, &taken) || taken.Host != "h5" {
		t.Errorf("a node that is mapped to another host: %v", err)
	}
	must(t, take("h5", 5))
	// Nor does it get a name of another host: enrolled, mapped, or of a node of it.
	name := func(host, name string) error {
		_, err := s.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
			e.CellUUID, e.State, e.Nodes = cellUUID(1),
				apidb.Enrolled, []apidb.EnrolledNode{{UUID: node(8), Name: name}}
			return nil
		})
		return err
	}
	must(t, name("h7", "bare7"))
	must(t, s.MapNodes(ctx, []apidb.Node{{UUID: node(9), Name: "mapped", Host: "mapped", CellUUID: cellUUID(1)}}))
	for other, owner := range map[string]string{"h1": "h1", "H1": "h1", "h1.example.com": "h1", "mapped": "mapped",
		"mapped.x": "mapped", "bare7": "h7", "bare7.x": "h7"} {
		if err := name("h6", other); !errors.As(err, &taken) ||
			*taken != (apidb.NodeTakenError{Host: owner, Name: other}) {
			t.Errorf("name %s of %s: %v", other, owner, err)
		}
	}
	if err := name("bare7", ""); !errors.As(err, &taken) || taken.Host != "h7" {
		t.Errorf("a host with the name of another one's node: %v", err)
	}
	evicted := apidb.Enrolment{Host: "bare7", CellUUID: cellUUID(1), State: apidb.Evicted,
		DeniedBefore: start, EvictedAt: start}
	enrol(t, s, evicted)
	must(t, name("h7", "h7.example.com"))
}

// testHostNamesOverlap: a host whose name may be that of a provider of another one is not invited,
// in whatever order they come, and the refusal names the other. An evicted host that is not mapped
// is in the way of none, and comes back only if none is in its way.
func testHostNamesOverlap(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	become := func(host string, state apidb.EnrolmentState) error {
		_, err := s.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
			if e.CellUUID, e.State = cellUUID(1), state; state == apidb.Evicted {
				e.DeniedBefore, e.EvictedAt = start, start
			}
			return nil
		})
		return err
	}
	for i, pair := range [][2]string{{"", ".example.com"},
		{"", "_b"}, {"", ".example.com_b"}, {"_b", "_b.example.com"}} {
		for j, order := range [][2]string{pair, {pair[1], pair[0]}} {
			mark := fmt.Sprintf("m%dx%d", i, j)
			first, second := mark+order[0], strings.ToUpper(mark)+order[1]
			refused := func(what string) {
				t.Helper()
				taken := new(apidb.NodeTakenError)
				err := become(second, apidb.Invited)
				if !errors.As(err, &taken) || *taken != (apidb.NodeTakenError{Host: first, Name: second}) ||
					!errors.Is(err, apidb.ErrExists) || !strings.Contains(err.Error(), first) {
					t.Errorf("%s and then %s, %s: %v", first, second, what, err)
				}
			}
			must(t, become(first, apidb.Invited))
			refused("invited")
			must(t, become(first, apidb.Enrolled))
			refused("enrolled")
			must(t, become(first, apidb.Invited)) // again
			must(t, become(first, apidb.Evicted))
			must(t, s.MapNodes(ctx,
				[]apidb.Node{{UUID: node(10*i + j), Name: first, Host: first, CellUUID: cellUUID(1)}}))
			refused("evicted, and mapped")
			must(t, s.DeleteHost(ctx, first))
			must(t, become(second, apidb.Invited))
			must(t, become(second, apidb.Enrolled))
			wantError(t, first+" is invited again", become(first, apidb.Invited), apidb.ErrExists)
			must(t, become(second, apidb.Evicted))
			must(t, become(first, apidb.Invited))
		}
	}
	for _, host := range []string{"h1", "h10", "h1-b", "h2.a", "h2.b", "h2.a.c", "n_1", "n_2"} {
		must(t, become(host, apidb.Enrolled))
	}
}

// testOverlappingNamesAtOnce: of hosts with overlapping names that are invited at once, by several
// processes, one is; of hosts whose nodes get such names at once, one is.
func testOverlappingNamesAtOnce(t *testing.T, e testEngine) {
	stores := e.processes(t)
	withCells(t, stores[0], 1)
	names := []string{"a", "a_b", "a_b_c", "a_b_c_d", "a_b_c_d_e", "a_b_c_d_e_f"}
	for round := range 10 {
		errs := make([]error, len(names))
		var all sync.WaitGroup
		for i, name := range names {
			name = fmt.Sprint("r", round, name) // others in each round
			all.Go(func() {
				host := name
				if round%2 == 1 && i%2 == 1 { // a host with a node of that name
					host = fmt.Sprint("host", round, "-", i)
				}
				_, errs[i] = stores[i%len(stores)].ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
					e.CellUUID, e.State, e.Nodes = cellUUID(1), apidb.Invited, nil
					if host != name {
						e.Nodes = []apidb.EnrolledNode{{UUID: node(100*round + i), Name: name}}
					}
					return nil
				})
			})
		}
		all.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				continue
			}
			wantError(t, names[i], err, apidb.ErrExists)
		}
		testproc.Equal(t, won, 1, "round %d: %d of them were invited", round)
	}
}

// testEnrolmentsRefused: what no certificate can say is not stored.
func testEnrolmentsRefused(t *testing.T, e testEngine) {
	s := e.fresh(t)
	valid := apidb.Enrolment{CellUUID: cellUUID(1), State: apidb.Invited}
	many := make([]apidb.EnrolledNode, apidb.MaxEnrolledNodes+1)
	for i := range many {
		many[i].UUID = node(i)
	}
	for name, c := range map[string]struct {
		host   string
		change func(*apidb.Enrolment)
	}{
		"no name":            {"", nil},
		"a name with spaces": {"a b", nil},
		"a long name":        {strings.Repeat("a", 254), nil},
		"no state":           {"h", func(e *apidb.Enrolment) { e.State = "" }},
		"no cell":            {"h", func(e *apidb.Enrolment) { e.CellUUID = "" }},
		"cell0":              {"h", func(e *apidb.Enrolment) { e.CellUUID = apidb.Cell0UUID }},
		"too many nodes":     {"h", func(e *apidb.Enrolment) { e.Nodes = many }},
		"no uuid":            {"h", func(e *apidb.Enrolment) { e.Nodes = []apidb.EnrolledNode{{"x", ""}} }},
		"another form": {"h",
			func(e *apidb.Enrolment) { e.Nodes = []apidb.EnrolledNode{{"URN:UUID:" + node(1), ""}} }},
		"twice": {"h",
			func(e *apidb.Enrolment) { e.Nodes = []apidb.EnrolledNode{{node(1), ""}, {node(1), "n"}} }},
		"a name of a node": {"h", func(e *apidb.Enrolment) { e.Nodes = []apidb.EnrolledNode{{node(1), "a/b"}} }},
		"a long reason":    {"h", func(e *apidb.Enrolment) { e.Reason = strings.Repeat("x", 1001) }},
	} {
		_, err := s.ChangeEnrolment(ctx, c.host, func(e *apidb.Enrolment) error {
			host := e.Host
			*e = valid
			e.Host = host
			if c.change != nil {
				c.change(e)
			}
			return nil
		})
		wantError(t, name, err, apidb.ErrInvalid)
	}
	wants[[]apidb.Enrolment](t, "none")(s.Enrolments(ctx))(nil)
}

// testEnrolmentsAtOnce: of hosts that ask for the same node at once, one gets it.
func testEnrolmentsAtOnce(t *testing.T, e testEngine) {
	stores := e.processes(t)
	var all sync.WaitGroup
	const hosts = 8
	errs := make([]error, hosts)
	for i := range hosts {
		all.Go(func() {
			_, errs[i] = stores[i%len(stores)].ChangeEnrolment(ctx, fmt.Sprint("h", i), func(e *apidb.Enrolment) error {
				e.CellUUID, e.State, e.Nodes = cellUUID(1), apidb.Enrolled, []apidb.EnrolledNode{{UUID: node(1)}}
				return nil
			})
		})
	}
	all.Wait()
	got := 0
	for _, err := range errs {
		if err == nil {
			got++
			continue
		}
		wantError(t, "another host", err, apidb.ErrExists)
	}
	enrolled, err := stores[0].Enrolments(ctx)
	if must(t, err); got != 1 || len(enrolled) != 1 {
		t.Errorf("%d hosts got the node, %d are enrolled", got, len(enrolled))
	}
}
