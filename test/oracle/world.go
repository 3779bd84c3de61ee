// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// Profile says what kind of worlds are made.
type Profile struct {
	Name string
	// Providers is how many are made at most, Roots how many of them are roots, Sharing how many
	// share at most.
	Providers, Roots, Sharing int
	// Steps is how many random requests follow the building of the forest.
	Steps int
	// Candidates and Writes are the shares of the random requests in percent; the rest are reads.
	Candidates, Writes int
	// Groups is how many groups with a suffix a query has at most, Isolate the share of isolate
	// among the policies in percent.
	Groups, Isolate int
	// Deep is the chance in percent that a child goes below the newest provider rather than any.
	Deep int
}

// The profiles.
var (
	// Mixed is a bit of everything.
	Mixed = Profile{Name: "mixed", Providers: 9, Roots: 3,
		Sharing: 2, Steps: 110, Candidates: 35, Writes: 40, Groups: 3, Isolate: 45, Deep: 30}
	// Plain is what is not a query of candidates.
	Plain = Profile{Name: "plain", Providers: 7, Roots: 3, Sharing: 1, Steps: 150, Writes: 60, Groups: 1, Deep: 30}
	// Nasty has deep trees, many sharing providers, and many groups that fight for few providers.
	Nasty = Profile{Name: "nasty", Providers: 11, Roots: 2,
		Sharing: 4, Steps: 110, Candidates: 80, Writes: 14, Groups: 4, Isolate: 70, Deep: 65}
)

// Profiles are all profiles by name.
var Profiles = map[string]Profile{Mixed.Name: Mixed, Plain.Name: Plain, Nasty.Name: Nasty}

// The small universe that all worlds live in, so that things collide.
var (
	classNames  = []string{"VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A", "CUSTOM_B"}
	traitNames  = []string{"HW_CPU_X86_AVX", "HW_CPU_X86_SSE", "CUSTOM_T", "CUSTOM_U", sharingTrait}
	oddClasses  = []string{"NOPE", "vcpu", "CUSTOM_", "CUSTOM_x", "CUSTOM_N", "SRIOV_NET_VF"}
	oddTraits   = []string{"NOPE", "CUSTOM_", "custom_t", "CUSTOM_N", "COMPUTE_NODE"}
	projects    = []string{"p1", "p2"}
	users       = []string{"u1", "u2"}
	types       = []string{"INSTANCE", "MIGRATION"}
	nowhere     = "99999999-9999-4999-8999-999999999999"
	aggregates  = []string{uuidOf(2, 0), uuidOf(2, 1), uuidOf(2, 2)}
	consumerMax = 5
)

const sharingTrait = "MISC_SHARES_VIA_AGGREGATE"

// uuidOf makes the uuid of a kind of things: 0 for providers, 1 for consumers, 2 for aggregates.
func uuidOf(kind, n int) string { return fmt.Sprintf("%d0000000-0000-4000-8000-%012x", kind+1, n) }

// generator makes the steps of one world.
type generator struct {
	*rand.Rand
	p         Profile
	providers []string
	// gives is what the generator believes each provider to have, so that many of its requests can
	// work.
	gives map[string][]string
	// tree is which of the first roots each provider was made below, and focus the tree that a
	// query is about.
	tree  map[string]string
	focus string
	// pending are the next steps of a story that has begun.
	pending []Step
	// clean steps have no value that is odd on purpose.
	clean bool
}

// World makes the steps of a world. The same seed and profile make the same steps.
func World(seed uint64, p Profile) []Step {
	g := &generator{
		Rand:  rand.New(rand.NewPCG(seed, 0x0c0ffee)),
		p:     p,
		gives: map[string][]string{},
		tree:  map[string]string{},
		clean: true,
	}
	steps := g.forest()
	for range p.Steps {
		steps = append(steps, g.step())
	}
	return append(steps, g.lookAround()...)
}

// rare is chance for what is odd on purpose.
func (g *generator) rare(percent int) bool { return !g.clean && g.IntN(100) < percent }

// chance is true in so many percent of cases.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// some picks n different ones, or all.
func some[T any](g *generator, from []T, n int) []T {
	picked := make([]T, 0, n)
	for _, i := range g.Perm(len(from))[:min(n, len(from))] {
		picked = append(picked, from[i])
	}
	return picked
}

type object = map[string]any

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // The generator makes nothing that JSON has no form for.
	}
	return string(b)
}

// latest is a request at the newest microversion, without a body if it is nil.
func latest(kind, method, path string, body any) Step {
	st := at(kind, method, path, newest)
	if body != nil {
		st.Body, st.HasBody = text(body), true
	}
	return st
}

func gen(uuid string) string { return "{{gen " + uuid + " +0}}" }

// forest builds trees with inventories, traits, aggregates and a few allocations.
func (g *generator) forest() []Step {
	var steps []Step
	for _, name := range classNames[3:] {
		steps = append(steps, latest("build", "PUT", "/resource_classes/"+name, nil))
	}
	for _, name := range traitNames[2:4] {
		steps = append(steps, latest("build", "PUT", "/traits/"+name, nil))
	}
	count := 3 + g.IntN(g.p.Providers-2)
	roots := 1 + g.IntN(min(g.p.Roots, count))
	depth := map[string]int{}
	sharing := g.IntN(g.p.Sharing + 1)
	for i := range count {
		uuid := uuidOf(0, i)
		body := object{"name": fmt.Sprintf("n%d", i), "uuid": uuid}
		g.tree[uuid] = uuid
		if i >= roots && len(g.providers) > 0 {
			parent := pick(g, g.providers)
			if g.chance(g.p.Deep) {
				parent = g.providers[len(g.providers)-1]
			}
			if depth[parent] < 3 {
				body["parent_provider_uuid"], depth[uuid], g.tree[uuid] = parent, depth[parent]+1, g.tree[parent]
			}
		}
		g.providers = append(g.providers, uuid)
		steps = append(steps, latest("build", "POST", "/resource_providers", body))
	}
	for i, uuid := range g.providers {
		// The last ones share: children, if they have a parent.
		shares := count-i <= sharing
		path := "/resource_providers/" + uuid
		if inventories := g.inventories(1 + g.IntN(3)); shares || g.chance(85) {
			steps = append(steps,
				latest("build", "PUT", path+"/inventories",
					object{"resource_provider_generation": gen(uuid), "inventories": inventories}))
			g.believe(uuid, inventories)
		}
		traits := some(g, traitNames[:4], g.IntN(3))
		if shares {
			traits = append(traits, sharingTrait)
		}
		if len(traits) > 0 {
			steps = append(steps,
				latest("build", "PUT", path+"/traits",
					object{"resource_provider_generation": gen(uuid), "traits": traits}))
		}
		if shares || g.chance(45) {
			steps = append(steps, latest("build", "PUT", path+"/aggregates",
				object{"resource_provider_generation": gen(uuid), "aggregates": some(g, aggregates, 1+g.IntN(2))}))
		}
	}
	for slot := range g.IntN(4) {
		path := fmt.Sprintf("/allocations/{{c%d}}", slot)
		steps = append(steps, latest("build", "PUT", path, g.allocation(newest, slot)))
	}
	// The spare ones are never made by the forest.
	for i := range 2 {
		g.providers = append(g.providers, uuidOf(0, count+i))
	}
	return steps
}

func (g *generator) believe(uuid string, inventories object) {
	g.gives[uuid] = nil
	for _, name := range classNames { // In a fixed order.
		if inventories[name] != nil {
			g.gives[uuid] = append(g.gives[uuid], name)
		}
	}
}

// lookAround reads everything, at the end of a world: what the writes did and no request has read
// since.
func (g *generator) lookAround() []Step {
	steps := []Step{
		latest("look", "GET", "/resource_providers", nil),
		latest("look", "GET", "/resource_classes", nil),
		latest("look", "GET", "/traits", nil).where("name", "startswith:CUSTOM_"),
		latest("look", "GET", "/traits", nil).where("associated", "true"),
		latest("look", "GET", "/usages", nil).where("project_id", projects[0]),
	}
	for _, uuid := range g.providers[:len(g.providers)-1] {
		for _, of := range []string{"inventories", "traits", "aggregates", "allocations"} {
			steps = append(steps, latest("look", "GET", "/resource_providers/"+uuid+"/"+of, nil))
		}
	}
	for slot := range consumerMax {
		steps = append(steps, latest("look", "GET", fmt.Sprintf("/allocations/{{c%d}}", slot), nil))
	}
	return steps
}

// step is one random request.
func (g *generator) step() Step {
	if len(g.pending) > 0 && g.chance(75) {
		st := g.pending[0]
		g.pending = g.pending[1:]
		return st
	}
	g.clean = g.chance(70)
	defer func() { g.clean = true }()
	n := g.IntN(100)
	switch {
	case n < g.p.Candidates:
		return g.candidates()
	case n < g.p.Candidates+g.p.Writes:
		st := weighted(g, writes)(g)
		if st.HasBody {
			g.spoil(&st)
		}
		g.headers(&st)
		return st
	}
	st := weighted(g, reads)(g)
	g.headers(&st)
	return st
}

// choice is one of several things with its weight.
type choice struct {
	weight int
	make   func(*generator) Step
}

func weighted(g *generator, from []choice) func(*generator) Step {
	sum := 0
	for _, c := range from {
		sum += c.weight
	}
	n := g.IntN(sum)
	for _, c := range from {
		if n -= c.weight; n < 0 {
			return c.make
		}
	}
	panic("oracle: no choice")
}

// newest is the highest microversion of the real service. Ours can have higher ones, which only
// spoiled steps ask for.
const newest = 39

// edges are the versions where things change.
var edges = []int{0, 1, 2, 4, 5, 6, 7, 8, 11, 12, 13, 14,
	15, 18, 19, 20, 22, 23, 24, 26, 27, 28, 30, 32, 33, 34, 36, 37, 38}

// version draws a microversion that is at least the given one, most of the time.
func (g *generator) version(since int) int {
	if g.rare(8) {
		since = 0
	}
	switch n := g.IntN(100); {
	case n < 35 || since >= newest:
		return newest
	case n < 70:
		for range 10 {
			if v := pick(g, edges); v >= since {
				return v
			}
		}
	}
	return since + g.IntN(newest+1-since)
}

func at(kind, method, path string, v int) Step {
	return Step{Kind: kind, Method: method, Path: path, Version: fmt.Sprintf("placement 1.%d", v)}
}

// where is the step with one more parameter.
func (st Step) where(name, value string) Step {
	st.Query = append(st.Query, Param{Name: name, Value: value})
	return st
}

func (st Step) with(body any) Step {
	st.Body, st.HasBody = text(body), true
	return st
}
