// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// scenario is a tree with guests, and an honest reshape of it: what there was of each class is
// there afterwards, somewhere, under that name or another, and each guest has as much of it.
// Providers and consumers are numbers.
type scenario struct {
	Parents []int              // of the providers 1, 2, ... (0 is the root)
	Total   []map[string]int64 // by provider, by class
	Holds   []map[int]map[string]int64
	Outside []int64 // by consumer: what it holds on another host
	// the root is in an aggregate with shared storage, of which every guest holds some
	Joins     bool
	New       int // providers that come
	Part      []map[string][]part
	Rename    map[string]string
	Removes   bool // providers that have nothing left go
	TakesName bool // a new provider gets the name of one that goes
	Traits    []string
}

// part is where some of an inventory goes.
type part struct {
	to     int
	amount int64
}

var scenarioClasses = []string{"VCPU", "MEMORY_MB", "VGPU", "CUSTOM_A", "CUSTOM_B"}

func drawScenario(t *rapid.T) scenario {
	s := scenario{Joins: rapid.Bool().Draw(t, "joins"), New: rapid.IntRange(0, 3).Draw(t, "new"),
		Removes: rapid.Bool().Draw(t, "removes"), TakesName: rapid.Bool().Draw(t, "takes name")}
	old := rapid.IntRange(1, 4).Draw(t, "providers")
	for i := range old {
		if i > 0 {
			s.Parents = append(s.Parents, rapid.IntRange(0, i-1).Draw(t, "parent"))
		}
		total := map[string]int64{}
		for _, class := range rapid.SliceOfNDistinct(rapid.SampledFrom(scenarioClasses), 0, 3, rapid.ID[string]).
			Draw(t, "classes") {
			total[class] = rapid.Int64Range(1, 20).Draw(t, "total")
		}
		s.Total = append(s.Total, total)
	}
	if rapid.Bool().Draw(t, "renames") {
		from := rapid.SampledFrom(scenarioClasses).Draw(t, "rename from")
		s.Rename = map[string]string{from: rapid.SampledFrom([]string{"CUSTOM_C", "PCPU"}).Draw(t, "rename to")}
	}
	s.Traits = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"CUSTOM_T", "HW_NUMA_ROOT", "OWNER_NOVA"}), 0, 2,
		rapid.ID[string]).Draw(t, "traits")
	room := make([]map[string]int64, old)
	for i, total := range s.Total {
		room[i] = maps.Clone(total)
		parts := map[string][]part{}
		for _, class := range slices.Sorted(maps.Keys(total)) {
			left := total[class]
			for left > 0 {
				amount := rapid.Int64Range(1, left).Draw(t, "amount")
				if rapid.Bool().Draw(t, "all") {
					amount = left
				}
				to := i
				if rapid.IntRange(0, 2).Draw(t, "goes") > 0 {
					to = rapid.IntRange(0, old+s.New-1).Draw(t, "to")
				}
				parts[class] = append(parts[class], part{to, amount})
				left -= amount
			}
		}
		s.Part = append(s.Part, parts)
	}
	for range rapid.IntRange(0, 5).Draw(t, "consumers") {
		holds := map[int]map[string]int64{}
		for i := range room {
			for _, class := range slices.Sorted(maps.Keys(room[i])) {
				if room[i][class] > 0 && rapid.Bool().Draw(t, "holds") {
					n := rapid.Int64Range(1, room[i][class]).Draw(t, "amount")
					room[i][class] -= n
					if holds[i] == nil {
						holds[i] = map[string]int64{}
					}
					holds[i][class] = n
				}
			}
		}
		if len(holds) > 0 {
			s.Holds = append(s.Holds, holds)
			s.Outside = append(s.Outside, rapid.Int64Range(0, 2).Draw(t, "outside"))
		}
	}
	return s
}

func (s scenario) renamed(class string) string {
	if to, found := s.Rename[class]; found {
		return to
	}
	return class
}

// desired is the tree after the reshape. uuid gives the uuids of providers.
func (s scenario) desired(known *providertree.Tree, uuid func(int) string) (*providertree.Tree, error) {
	tree := known.Clone()
	for i := range s.New {
		n := len(s.Total) + i
		if err := tree.AddChild(uuid(0), uuid(n), "p-"+uuid(n)); err != nil {
			return nil, err
		}
		if _, err := tree.AddTraits(uuid(n), s.Traits...); err != nil {
			return nil, err
		}
	}
	total := make([]map[string]int64, len(s.Total)+s.New)
	for _, parts := range s.Part {
		for class, list := range parts {
			for _, p := range list {
				if total[p.to] == nil {
					total[p.to] = map[string]int64{}
				}
				total[p.to][s.renamed(class)] += p.amount
			}
		}
	}
	for i, amounts := range total {
		inventories := providertree.Inventories{}
		for class, n := range amounts {
			inventories[class] = providertree.Inventory{Total: n}
		}
		if _, err := tree.SetInventories(uuid(i), inventories); err != nil {
			return nil, err
		}
	}
	if !s.Removes {
		return tree, nil
	}
	for i := len(s.Total) - 1; i > 0; i-- {
		p, _ := tree.Provider(uuid(i))
		if len(total[i]) > 0 || len(tree.Children(uuid(i))) > 0 {
			continue
		}
		if _, err := tree.Remove(uuid(i)); err != nil {
			return nil, err
		}
		if heir := uuid(len(s.Total)); s.TakesName && s.New > 0 {
			if _, err := tree.Rename(heir, p.Name); err != nil {
				return nil, err
			}
		}
	}
	return tree, nil
}

// after moves what the guests hold along with the inventories: each part is filled by the guests in
// turn.
func (s scenario) after(
	before providertree.Allocations, uuid func(int) string, consumer func(int) string,
) providertree.Allocations {
	after := before.Clone()
	for i, parts := range s.Part {
		for class, list := range parts {
			list = slices.Clone(list)
			for c := range s.Holds {
				resources := after[consumer(c)].Resources
				n := s.Holds[c][i][class]
				if n == 0 {
					continue
				}
				resources[uuid(i)][class] -= n
				for k := 0; n > 0; k++ {
					take := min(n, list[k].amount)
					list[k].amount -= take
					n -= take
					if take == 0 {
						continue
					}
					to := uuid(list[k].to)
					if resources[to] == nil {
						resources[to] = map[string]int64{}
					}
					resources[to][s.renamed(class)] += take
				}
			}
		}
	}
	return after
}

// run makes the tree and its guests, reshapes, and compares. first is the least number that is free
// for uuids.
func (s scenario) run(t *testing.T, url string, first int) error {
	uuid := func(i int) string { return id(first + i) }
	consumer := func(i int) string { return id(first + 20 + i) }
	storage, host, shared := first+40, first+41, first+42
	for n, class := range map[int]string{storage: "DISK_GB", host: "SRIOV_NET_VF"} {
		asAdmin(t, "1.37", "POST", url+"/resource_providers",
			fmt.Sprintf(`{"uuid": %q, "name": %q}`, id(n), "q-"+id(n)))
		asAdmin(t, "1.37", "PUT", url+"/resource_providers/"+id(n)+"/inventories",
			fmt.Sprintf(`{"resource_provider_generation": 0, "inventories": {%q: {"total": 1000}}}`, class))
	}
	asAdmin(t, "1.37", "PUT", url+"/resource_providers/"+
		id(storage)+"/traits", `{"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}`)
	asAdmin(t, "1.37", "PUT", url+"/resource_providers/"+id(storage)+"/aggregates",
		fmt.Sprintf(`{"resource_provider_generation": 2, "aggregates": [%q]}`, id(shared)))

	client, requests, now := observed(t, url)
	name := "p-" + uuid(0)
	known, err := client.Tree(t.Context(), uuid(0), name)
	if err != nil {
		return err
	}
	start := known.Clone()
	for i, total := range s.Total {
		if i > 0 {
			if err := start.AddChild(uuid(s.Parents[i-1]), uuid(i), "p-"+uuid(i)); err != nil {
				return err
			}
		}
		for class, n := range total {
			if _, err := start.SetInventory(uuid(i), class, providertree.Inventory{Total: n}); err != nil {
				return err
			}
		}
	}
	if s.Joins {
		if _, err := start.AddAggregates(uuid(0), id(shared)); err != nil {
			return err
		}
	}
	if err := client.Apply(t.Context(), uuid(0), client.Plan(known, start)); err != nil {
		return err
	}
	for c, holds := range s.Holds {
		list := resources{}
		for i, amounts := range holds {
			list[first+i] = amounts
		}
		if s.Outside[c] > 0 {
			list[host] = map[string]int64{"SRIOV_NET_VF": s.Outside[c]}
		}
		if s.Joins {
			list[storage] = map[string]int64{"DISK_GB": 1}
		}
		claim(t, url, first+20+c, list)
	}

	now.pass(6 * time.Minute)
	if known, err = client.Tree(t.Context(), uuid(0), name); err != nil {
		return err
	}
	before, err := client.AllocationsForProviderTree(t.Context(), uuid(0))
	if err != nil {
		return err
	}
	desired, err := s.desired(known, uuid)
	if err != nil {
		return err
	}
	after := s.after(before, uuid, consumer)
	for uuid := range before {
		sums := map[string]int64{}
		for class, n := range before[uuid].Totals() {
			sums[s.renamed(class)] += n
		}
		if d := cmp.Diff(sums, nonZero(after[uuid].Totals())); d != "" {
			return fmt.Errorf("the scenario is not honest:\n%s", d)
		}
	}
	plan := client.PlanReshape(known, desired, before, after)
	requests.since()
	if err := client.Apply(t.Context(), uuid(0), plan); err != nil {
		return fmt.Errorf("%w\nplan: %s", err, strings.Join(lines(plan), "\n      "))
	}
	if err := onlyWhatMoves(plan, known, before); err != nil {
		return err
	}
	sent := requests.since()
	now.pass(6 * time.Minute)
	if _, err := client.Tree(t.Context(), uuid(0), name); err != nil {
		return err
	}
	if looked := requests.since(); len(looked) > 2 { // the tree, and who shares with it
		return fmt.Errorf("what the client noted is not what Placement has, it read again: %v\nafter %v", looked, sent)
	}
	fresh, _, _ := observed(t, url)
	tree, err := fresh.Tree(t.Context(), uuid(0), name)
	if err != nil {
		return err
	}
	if !tree.Equal(desired) {
		return fmt.Errorf("the tree (-want +got):\n%s",
			cmp.Diff(slices.Collect(desired.All()), slices.Collect(tree.All())))
	}
	held, err := fresh.AllocationsForProviderTree(t.Context(), uuid(0))
	if err != nil {
		return err
	}
	if d := cmp.Diff(simplify(after), simplify(held)); d != "" {
		return fmt.Errorf("the allocations (-want +got):\n%s", d)
	}
	return nil
}

// onlyWhatMoves: there is one reshape at most, and it names nothing that stays as it is.
func onlyWhatMoves(plan reportclient.Plan, known *providertree.Tree, before providertree.Allocations) error {
	reshapes := 0
	for _, op := range plan.Operations {
		if op.Kind != reportclient.ReshapeTree {
			continue
		}
		reshapes++
		for _, p := range op.Reshape.Providers {
			was, _ := known.Provider(p.UUID)
			if was.Inventories.Equal(p.After) && len(op.Reshape.Providers) > 1 {
				return fmt.Errorf("the inventory of %s stays, and it is in the reshape", p.Name)
			}
		}
		for _, c := range op.Reshape.Consumers {
			if before[c.UUID].Resources.Equal(c.After) {
				return fmt.Errorf("the allocations of %s stay, and it is in the reshape", c.UUID)
			}
		}
	}
	if reshapes > 1 {
		return fmt.Errorf("%d reshapes in one plan", reshapes)
	}
	return nil
}

func nonZero(sums map[string]int64) map[string]int64 {
	maps.DeleteFunc(sums, func(_ string, n int64) bool { return n == 0 })
	return sums
}

// TestHonestReshapes: whatever moves, Placement then has exactly the desired tree and the edited
// allocations, and the client knows it without looking. All of rapid's scenarios run against the
// bundled Placement, some against OpenStack's.
func TestHonestReshapes(t *testing.T) { onEmptyBundled(t, testHonestReshapes) }

// TestRealHonestReshapes is the same with OpenStack's Placement.
func TestRealHonestReshapes(t *testing.T) { onEmptyOpenStack(t, testHonestReshapes) }

func testHonestReshapes(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	url := empty(t)
	first := 1000
	next := func() int { first += 100; return first }
	if strings.HasPrefix(t.Name(), "TestReal") {
		gen := rapid.Custom(drawScenario)
		for seed := range 8 {
			s := gen.Example(seed)
			if err := s.run(t, url, next()); err != nil {
				t.Errorf("seed %d: %v\n%+v", seed, err, s)
			}
		}
		return
	}
	rapid.Check(t, func(rt *rapid.T) {
		testproc.Check(rt, drawScenario(rt).run(t, url, next()))
	})
}
