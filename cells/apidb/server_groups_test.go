// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func testServerGroups(t *testing.T, e testEngine) {
	s := e.fresh(t)
	withCells(t, s, 1)
	wants[[]apidb.ServerGroup](t, "none")(s.ServerGroups(ctx, ""))(nil)
	make := func(name, project, policy string) apidb.ServerGroup {
		t.Helper()
		g, err := s.CreateServerGroup(ctx,
			apidb.ServerGroup{Name: name, ProjectID: project, UserID: "user", Policy: policy, MaxPerHost: 2}, nil)
		must(t, err)
		return g
	}
	_, err := s.CreateServerGroup(ctx, apidb.ServerGroup{Name: "x", ProjectID: "p"}, nil)
	wantError(t, "without a policy", err, apidb.ErrInvalid)
	one, two, other := make("one", "p", apidb.PolicyAntiAffinity), make("one", "p", apidb.PolicySoftAffinity),
		make("x", "q", apidb.PolicyAffinity)
	wants[[]apidb.ServerGroup](t, "all")(s.ServerGroups(ctx, ""))([]apidb.ServerGroup{one, two, other})
	wants[[]apidb.ServerGroup](t, "of a project")(s.ServerGroups(ctx, "p"))([]apidb.ServerGroup{one, two})
	wants[apidb.ServerGroup](t, "one")(s.ServerGroup(ctx, other.UUID))(other)
	_, err = s.ServerGroup(ctx, "none")
	wantError(t, "one that there is not", err, apidb.ErrNotFound)

	var saw int64
	full := errors.New("full")
	_, err = s.CreateServerGroup(ctx, apidb.ServerGroup{Name: "y", ProjectID: "p", Policy: apidb.PolicyAffinity},
		func(has int64) error {
			saw = has
			return full
		})
	wantError(t, "one too many", err, full)
	wants[int64](t, "how many")(s.CountServerGroups(ctx, "p", ""))(saw)
	wants[int64](t, "how many of a user")(s.CountServerGroups(ctx, "p", "user"))(2)
	wants[int64](t, "how many of another user")(s.CountServerGroups(ctx, "p", "w"))(0)
	testproc.Equal(t, saw, 2, "the check saw %d")

	in := func(group string, uuids ...string) (servers []apidb.RequestSpec) {
		for _, uuid := range uuids {
			n := server(uuid, "p")
			n.Group = group
			servers = append(servers, n)
		}
		return servers
	}
	wantError(t, "in a group that there is not", s.CreateServers(ctx, in("none", "s0"), nil), apidb.ErrGroup)
	wantError(t, "in two groups", s.CreateServers(ctx, append(in(one.UUID, "s0"), in("", "s1")...), nil),
		apidb.ErrInvalid)
	must(t, s.CreateServers(ctx, in(one.UUID, "s2", "s1"), nil))
	must(t, s.CreateServers(ctx, in("", "s3"), nil))
	others := in(one.UUID, "s4")
	others[0].UserID = "other user"
	must(t, s.CreateServers(ctx, others, nil))
	wantError(t, "a full group", s.CreateServers(ctx, in(one.UUID, "s5"), func(has apidb.Counts) error {
		saw = has.GroupMembers
		return full
	}), full)
	testproc.Equal(t, saw, 2, "the check saw %d members of the user")
	one.Members = []string{"s2", "s1", "s4"}
	wants[apidb.ServerGroup](t, "with members")(s.ServerGroup(ctx, one.UUID))(one)
	wants[apidb.ServerGroup](t, "of a member")(s.ServerGroupOf(ctx, "s1"))(one)
	wants[[]apidb.ServerGroup](t, "both with members")(s.ServerGroups(ctx, "p"))([]apidb.ServerGroup{one, two})
	_, err = s.ServerGroupOf(ctx, "s3")
	wantError(t, "of none", err, apidb.ErrNotFound)
	build, err := s.BuildRequest(ctx, "s1")
	if must(t, err); build.Group != one.UUID {
		t.Errorf("the build request is of %q", build.Group)
	}

	must(t, s.SetQueued(ctx, map[string]bool{"s1": true}))
	must(t, s.AbandonBuild(ctx, "s2"))
	one.Members = []string{"s4"}
	wants[apidb.ServerGroup](t, "without deleted ones")(s.ServerGroup(ctx, one.UUID))(one)
	must(t, s.DeleteServerGroup(ctx, one.UUID))
	wantError(t, "deleting again", s.DeleteServerGroup(ctx, one.UUID), apidb.ErrNotFound)
	_, err = s.ServerGroupOf(ctx, "s4")
	wantError(t, "of a deleted one", err, apidb.ErrNotFound)
	if _, err := s.Mapping(ctx, "s4"); err != nil {
		t.Errorf("a member of a deleted group: %v", err)
	}
}

// testServerGroupsAtOnce: the limits on groups and their members hold when several are made at the
// same time.
func testServerGroupsAtOnce(t *testing.T, e testEngine) {
	stores := e.processes(t)
	full := errors.New("full")
	atMost := func(n int64) func(has int64) error {
		return func(has int64) error {
			if has >= n {
				return full
			}
			return nil
		}
	}
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := stores[i%len(stores)].CreateServerGroup(ctx,
				apidb.ServerGroup{Name: "g", ProjectID: "p", Policy: apidb.PolicyAffinity}, atMost(4))
			if err != nil && !errors.Is(err, full) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	groups, err := stores[0].ServerGroups(ctx, "p")
	if must(t, err); len(groups) != 4 {
		t.Fatalf("%d groups", len(groups))
	}
	for i := range 10 {
		all.Go(func() {
			n := server(fmt.Sprint("s", i), "p")
			n.Group = groups[0].UUID
			err := stores[i%len(stores)].CreateServers(ctx, []apidb.RequestSpec{n},
				func(has apidb.Counts) error { return atMost(3)(has.GroupMembers) })
			if err != nil && !errors.Is(err, full) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	g, err := stores[0].ServerGroup(ctx, groups[0].UUID)
	if must(t, err); len(g.Members) != 3 {
		t.Errorf("%d members", len(g.Members))
	}
}
