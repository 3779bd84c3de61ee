// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// requestOf is the write that an operation makes.
func requestOf(op reportclient.Operation) string {
	provider := "/resource_providers/" + op.UUID
	return map[reportclient.Kind]string{
		reportclient.EnsureClass:    "PUT /resource_classes/" + op.Symbol,
		reportclient.EnsureTrait:    "PUT /traits/" + op.Symbol,
		reportclient.CreateProvider: "POST /resource_providers",
		reportclient.UpdateProvider: "PUT " + provider,
		reportclient.DeleteProvider: "DELETE " + provider,
		reportclient.SetInventories: "PUT " + provider + "/inventories",
		reportclient.SetAggregates:  "PUT " + provider + "/aggregates",
		reportclient.SetTraits:      "PUT " + provider + "/traits",
	}[op.Kind]
}

// short names an operation.
func short(op reportclient.Operation) string {
	return op.Kind.String() + " " + cmp.Or(op.Provider, op.Symbol)
}

// TestApplySkipsWhatBuildsUponAFailure: what builds upon an operation that failed is not tried, all
// others are, and the next pass does the rest.
func TestApplySkipsWhatBuildsUponAFailure(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	join := func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.AddAggregates(id(1), id(9))).Or(t) }
	move := func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Move(id(2), id(6))).Or(t) }
	removeOnce := func(provider int) edit {
		return func(_ *testing.T, tr *providertree.Tree) { _, _ = tr.Remove(id(provider)) }
	}
	before := []edit{
		inventory(1, "VCPU", providertree.Inventory{Total: 8}), traits(1, "COMPUTE_NODE"),
		child(1, 2, "cn1_b"), child(2, 3, "cn1_b_vf"), child(1, 4, "cn1_old"), child(4, 5, "cn1_old_vf"),
	}
	edits := []edit{
		childOnce(1, 6, "cn1_numa"), childOnce(6, 7, "cn1_numa_gpu"),
		inventory(7, "CUSTOM_GPU", providertree.Inventory{Total: 4}), traits(6, "CUSTOM_FAST"),
		move, traits(2, "OWNER_NOVA"), removeOnce(3), removeOnce(4),
		inventory(1, "VCPU", providertree.Inventory{Total: 4}), join, traits(1, "OWNER_NOVA"),
	}
	plan := []string{
		"ensure_class CUSTOM_GPU", "ensure_trait CUSTOM_FAST", "create_provider cn1_numa",
		"create_provider cn1_numa_gpu", "update_provider cn1_b",
		"delete_provider cn1_old_vf", "delete_provider cn1_old", "delete_provider cn1_b_vf",
		"set_traits cn1_b", "set_inventories cn1_numa_gpu",
		"set_traits cn1_numa", "set_inventories cn1", "set_aggregates cn1", "set_traits cn1",
	}
	const (
		conflict = wire.CodeConcurrentUpdate
		inUse    = wire.CodeInventoryInUse
		none     = wire.CodeUndefined
	)
	for _, c := range []struct {
		fails   string
		status  int
		code    wire.ErrorCode
		skipped []string
	}{
		{"", 0, "", nil},
		{"ensure_class CUSTOM_GPU", 409, conflict, []string{"set_inventories cn1_numa_gpu"}},
		{"ensure_trait CUSTOM_FAST", 409, conflict, []string{"set_traits cn1_numa"}},
		{"create_provider cn1_numa", 409, wire.CodeDuplicateName, []string{
			"create_provider cn1_numa_gpu", "update_provider cn1_b", "set_traits cn1_b",
			"set_inventories cn1_numa_gpu", "set_traits cn1_numa",
		}},
		{"update_provider cn1_b", 409, wire.CodeDuplicateName, []string{"set_traits cn1_b"}}, // its child can still go
		{"delete_provider cn1_old_vf", 409, wire.CodeProviderInUse, []string{"delete_provider cn1_old"}},
		{"delete_provider cn1_b_vf", 409, wire.CodeProviderInUse, nil}, // its parent stays anyway
		{"set_inventories cn1", 409, conflict, []string{"set_aggregates cn1", "set_traits cn1"}},
		{"set_aggregates cn1", 409, conflict, []string{"set_traits cn1"}},
		{"set_inventories cn1", 409, inUse, nil},
		{"set_inventories cn1", 400, none, nil},
		{"set_traits cn1", 400, none, nil},
		{"create_provider cn1_numa", 503, "", plan[3:]},
		{"delete_provider cn1_old", 403, none, plan[7:]},
	} {
		t.Run(fmt.Sprintf("%s %d %s", c.fails, c.status, c.code), func(t *testing.T) {
			url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
			client, requests, _ := observed(t, url)
			ok(t, apply(t, client, before...))
			known := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
			desired := known.Clone()
			for _, e := range edits {
				e(t, desired)
			}
			todo := client.Plan(known, desired)
			var all, sent []string
			for _, op := range todo.Operations {
				all = append(all, short(op))
				if short(op) == c.fails {
					var met bool
					requests.fail = func(r *http.Request) (*http.Response, error) {
						if met || r.Method+" "+r.URL.Path != requestOf(op) {
							return nil, nil
						}
						met = true
						return answer(c.status, placementError(c.status, string(c.code), "no")), nil
					}
				}
				if !slices.Contains(c.skipped, short(op)) {
					sent = append(sent, requestOf(op))
				}
			}
			if d := gocmp.Diff(plan, all); d != "" {
				t.Fatalf("plan (-want +got)\n%s", d)
			}
			var progress []int
			todo.Progress = func(done int) { progress = append(progress, done) }
			if c.fails == "" {
				client.Forget(id(1)) // it needs no cached tree
			}
			requests.since()
			err := client.Apply(t.Context(), id(1), todo)

			writes := slices.DeleteFunc(requests.seen, func(r string) bool { return strings.HasPrefix(r, "GET ") })
			testproc.Samef(t, gocmp.Diff(sent, writes), "writes")
			if len(progress) != len(plan) || !slices.IsSorted(progress) || progress[0] != 0 ||
				progress[len(plan)-1] != len(plan)-1 {
				t.Errorf("progress %v", progress)
			}
			if c.fails == "" {
				ok(t, err)
			} else {
				checkFailure(t, err, c.fails, len(plan), c.skipped)
			}

			requests.fail = nil
			ok(t, apply(t, client, edits...))
			fresh, _, _ := observed(t, url)
			tree := testproc.Try(fresh.Tree(t.Context(), id(1), "cn1")).Or(t)
			if !tree.Equal(desired) {
				t.Errorf("after the next pass (-want +got):\n%s",
					gocmp.Diff(slices.Collect(desired.All()), slices.Collect(tree.All())))
			}
		})
	}
}

// checkFailure: the error names the operation that failed, and counts those that were skipped.
func checkFailure(t *testing.T, err error, fails string, operations int, skipped []string) {
	t.Helper()
	var failed *reportclient.ApplyError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}
	testproc.Equal(t, failed.Done, operations-1-len(skipped), "%d operations are done")
	var left []string
	text := ""
	for _, f := range failed.Failed {
		testproc.Equal(t, f.Provider, f.Operation.Provider, "%s is of %q", f)
		if f.Skipped {
			left = append(left, short(f.Operation))
			if f.Error() != f.Operation.String()+": skipped, since an earlier step failed" {
				t.Errorf("the text of one that was skipped is %q", f)
			}
			continue
		}
		if short(f.Operation) != fails {
			t.Errorf("%s failed", f)
		}
		text = f.Error()
	}
	testproc.Samef(t, gocmp.Diff(skipped, left), "skipped")
	if n := len(skipped); n > 0 {
		text += fmt.Sprintf("; %d more were skipped because of that", n)
	}
	if err.Error() != text {
		t.Errorf("the text is %q, want %q", err, text)
	}
}

// TestAnyChangeArrives: whatever a driver makes of a tree, Placement then has exactly that, and the
// client knows it, generations included, without reading.
func TestAnyChangeArrives(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	next := 1000
	rapid.Check(t, func(rt *rapid.T) {
		next++
		root, name := id(next), "p-"+id(next)
		client, requests, now := observed(t, url)
		for range 3 {
			known := testproc.Try(client.Tree(t.Context(), root, name)).Or(t)
			desired := known.Clone()
			for range rapid.IntRange(0, 8).Draw(rt, "edits") {
				next++
				change(rt, desired, next)
			}
			plan := client.Plan(known, desired)
			if err := client.Apply(t.Context(), root, plan); err != nil {
				rt.Fatalf("%v\nplan: %s", err, strings.Join(lines(plan), "\n      "))
			}
			written, _ := client.Known(root)
			requests.since()
			now.pass(6 * time.Minute)
			verified := testproc.Try(client.Tree(t.Context(), root, name)).Or(t)
			if looked := requests.since(); slices.ContainsFunc(looked,
				func(r string) bool { return r != "GET /resource_providers" }) {
				rt.Fatalf("what the client noted is not what Placement has, it read again: %v", looked)
			}
			fresh, _, _ := observed(t, url)
			tree := testproc.Try(fresh.Tree(t.Context(), root, name)).Or(t)
			for what, tree := range map[string]*providertree.Tree{"written": written,
				"verified": verified, "read": tree} {
				if !tree.Equal(desired) {
					rt.Fatalf("%s (-want +got):\n%s", what,
						gocmp.Diff(slices.Collect(desired.All()), slices.Collect(tree.All())))
				}
			}
		}
	})
}

// change edits a tree; what the tree refuses is left out. next is the least number that is free for
// uuids and names.
func change(t *rapid.T, tr *providertree.Tree, next int) {
	uuids := tr.UUIDs()
	root, uuid := uuids[0], rapid.SampledFrom(uuids).Draw(t, "provider")
	edit := rapid.IntRange(0, 6).Draw(t, "edit")
	if uuid == root && edit < 3 {
		edit = 3 // what a driver must not do to a root
	}
	switch edit {
	case 0:
		_, _ = tr.Remove(uuid)
	case 1:
		_, _ = tr.Rename(uuid, "p-"+id(next))
	case 2:
		_, _ = tr.Move(uuid, rapid.SampledFrom(uuids).Draw(t, "parent"))
	case 3:
		_ = tr.AddChild(uuid, id(next), "p-"+id(next))
	case 4:
		inventories := providertree.Inventories{}
		for _, class := range rapid.SliceOfNDistinct(rapid.SampledFrom(scenarioClasses), 0, 2, rapid.ID[string]).
			Draw(t, "classes") {
			inventories[class] = providertree.Inventory{Total: rapid.Int64Range(1, 3).Draw(t, "total")}
		}
		_, _ = tr.SetInventories(uuid, inventories)
	case 5:
		_, _ = tr.SetTraits(uuid,
			rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"CUSTOM_T", "HW_NUMA_ROOT", "OWNER_NOVA"}), 0, 2,
				rapid.ID[string]).Draw(t, "traits"))
	case 6:
		_, _ = tr.SetAggregates(uuid, rapid.SliceOfNDistinct(rapid.SampledFrom([]string{id(80), id(81), id(82)}), 0, 2,
			rapid.ID[string]).Draw(t, "aggregates"))
	}
}
