// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Explanation explains the candidates of a request: the providers and trees that each of its
// conditions leaves, one after the other.
type Explanation struct {
	// Verdict is the answer in a sentence or two. Where there are no candidates it names the
	// condition that left nothing, and the nearest miss.
	Verdict string `json:"verdict"`
	// Candidates is how many candidates there are, and at least that many when MoreCandidates is
	// set.
	Candidates     int  `json:"candidates"`
	MoreCandidates bool `json:"more_candidates"`
	// Incomplete: not all trees were evaluated, because there are too many. All numbers but those
	// of the candidates are for a part of the trees.
	Incomplete bool `json:"incomplete"`
	// Groups are the parts of the request that one provider must serve: a whole suffixed group, or
	// one class of the unsuffixed one. Each is evaluated by itself.
	Groups []GroupExplanation `json:"groups"`
	// Trees are the trees that the whole request leaves. The last step counts those with
	// candidates.
	Trees []TreeStep `json:"trees"`
	// Hosts are the hosts with NUMA cells that come nearest to a candidate, with what their cells
	// lack. It is empty if there are candidates.
	Hosts []HostExplanation `json:"hosts,omitempty"`
}

// GroupExplanation explains a group, or one class of the unsuffixed group.
type GroupExplanation struct {
	Suffix    string           `json:"suffix"`
	Resources map[string]int64 `json:"resources,omitempty"`
	Steps     []ProviderStep   `json:"steps"`
}

// ProviderStep is one condition on providers. The first step of a group has all providers that are
// considered.
type ProviderStep struct {
	Kind      StepKind `json:"kind"`
	Condition string   `json:"condition"`
	// Removed is how many providers met all conditions before and not this one.
	Removed int `json:"removed"`
	// Providers is how many providers are left, and Trees how many trees these can serve: their
	// own, and those that they share with.
	Providers int `json:"providers"`
	Trees     int `json:"trees"`
	// Note describes what exists instead.
	Note string `json:"note,omitempty"`
}

// TreeStep is one condition on trees. The first step is all trees.
type TreeStep struct {
	Kind      StepKind `json:"kind"`
	Condition string   `json:"condition"`
	Removed   int      `json:"removed"`
	Trees     int      `json:"trees"`
}

// StepKind is the kind of a condition.
type StepKind string

// Conditions on providers. Some of them apply to roots as well.
const (
	StepInventory   StepKind = "inventory"     // an inventory of each class; without resources, any provider
	StepUnits       StepKind = "units"         // min_unit, max_unit, step_size
	StepFree        StepKind = "free"          // free capacity
	StepRequired    StepKind = "required"      // traits; of the unsuffixed group, those of all its providers together
	StepForbidden   StepKind = "forbidden"     // traits
	StepMemberOf    StepKind = "member_of"     // aggregates
	StepNotMemberOf StepKind = "not_member_of" // aggregates
	StepInTree      StepKind = "in_tree"
	// StepNothingAsked: a group without resources must ask for a trait or an aggregate, without the
	// extension.
	StepNothingAsked StepKind = "nothing_asked"
)

// Conditions on trees.
const (
	StepAll             StepKind = "all"
	StepRootRequired    StepKind = "root_required"
	StepRootForbidden   StepKind = "root_forbidden"
	StepRootMemberOf    StepKind = "root_member_of"
	StepRootNotMemberOf StepKind = "root_not_member_of"
	StepGroup           StepKind = "group"        // a group has a provider
	StepRoom            StepKind = "room"         // enough for all groups at once
	StepGroupPolicy     StepKind = "group_policy" // isolate
	StepIsolate         StepKind = "isolate"
	StepSameSubtree     StepKind = "same_subtree"
	StepFlat            StepKind = "flat"      // one provider of a tree, before 1.29
	StepUndecided       StepKind = "undecided" // it would have taken too many steps to find out
)

// counted is the maximum number of candidates that an Explanation counts.
const counted = 1000

// maxExplained bounds the conditions and names of an explanation, each counted once for each part
// it applies to. A request for 64 devices of NUMA nodes of their own has some 10,000.
const maxExplained = 50_000

// ErrTooMuch is a request whose explanation would be too long.
var ErrTooMuch = errors.New("the request has too many conditions to be explained")

// Explain explains the candidates of a request. Of the options, Limit bounds the candidates that
// are counted (1000 for 0), and Steps the work, as for Search. Unknown names are explained and are
// not an error; the error is ErrTooMuch or the context's.
//
// Cost: the providers of all trees, and the sharing ones of their aggregates, times the groups and
// their conditions, and one search for each rule of the request at each tree that has a provider
// for each group; 4 ms for 1000 trees of 7 providers.
func Explain(ctx context.Context, s *ledger.Snapshot, r *Request, o Options) (*Explanation, error) {
	if o.Limit <= 0 {
		o.Limit = counted
	}
	if o.Steps <= 0 {
		o.Steps = DefaultSteps
	}
	if explained := r.conditions(); explained > maxExplained {
		return nil, fmt.Errorf("%w: there are %d, and at most %d can be", ErrTooMuch, explained, maxExplained)
	}
	e := newExplainer(s, r)
	out := &Explanation{}
	for t := range s.Trees() {
		if e.trees&255 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if e.work/workPerStep >= o.Steps {
			out.Incomplete = true
			break
		}
		e.evaluateTree(t)
	}
	out.Groups, out.Trees = e.groups(), e.treeSteps()
	rules, err := e.combine(ctx, o)
	if err != nil {
		return nil, err
	}
	out.Trees = append(out.Trees, rules...)
	if last := out.Trees[len(out.Trees)-1]; last.Trees == 0 && last.Kind != StepUndecided {
		out.Hosts = e.explainHosts()
	}
	if left := out.Trees[len(out.Trees)-1].Trees; left > 0 {
		// One more than is counted, to find out whether there are more.
		stats, err := Search(ctx, s, r, Options{Limit: o.Limit + 1, Steps: o.Steps, DepthFirst: true},
			func(*Candidate) bool { return true })
		if err != nil {
			return nil, err
		}
		out.Candidates = min(stats.Candidates, o.Limit)
		out.MoreCandidates = stats.Candidates > o.Limit || stats.Exhausted
	}
	out.Verdict = e.verdict(out)
	return out, nil
}

// conditions is the length of the explanation of the request, in conditions and names.
func (r *Request) conditions() int {
	n := len(r.SameSubtree) * len(r.Groups) // There is a search for each rule.
	for i := range r.Groups {
		g := &r.Groups[i]
		each := len(g.Forbidden) + len(g.NotMemberOf) + 1
		for _, set := range slices.Concat(g.Required, g.MemberOf) {
			each += 1 + len(set)
		}
		if g.Suffix == "" {
			each *= max(1, len(g.Resources))
		}
		n += each + len(g.Resources)
	}
	return n
}

// explainer counts the providers and trees that the conditions leave.
type explainer struct {
	s                  *ledger.Snapshot
	r                  *Request
	parts              []explained
	roots              []rootCondition
	sharingByAggregate map[string][]*ledger.Provider // by aggregate
	cells              ledger.ProviderSet
	near               []nearHost      // the nearest first
	asked              map[string]bool // the classes of the request

	trees        int   // evaluated
	work         int   // conditions and names checked, at most
	rootFailures []int // by condition on roots: how many roots do not meet it and met all before
	// lackingTrait counts the trees whose providers of the unsuffixed group do not have one of the
	// required traits.
	lackingTrait []int
	missing      []int // by part: how many trees lack a provider and had one for each part before
	left         []*ledger.Tree
	// onlyMissing are, by part, the trees that meet all conditions and have providers for all other
	// parts.
	onlyMissing []missingPart
	reached     []int // by part, at the current tree
	has         []bool
}

// explained is one part of the request, with its conditions and what they left so far.
type explained struct {
	group      *Group
	resources  []Resource
	conditions []condition
	price      int   // of checking one provider, in options
	failedAt   []int // number of providers by the first condition that they do not meet; the last entry: all are met
	trees      []int // number of trees by the condition at which their best provider fails
	shared     map[*ledger.Provider]int
}

// condition is a condition on providers.
type condition struct {
	kind StepKind
	text string
	// met checks a provider for a tree. external: it belongs to another tree.
	met   func(p, root *ledger.Provider, external bool) bool
	note  func() string
	class string // of StepFree
}

// rootCondition is a condition on roots.
type rootCondition struct {
	kind StepKind
	text string
	met  func(root *ledger.Provider) bool
}

// missingPart describes the trees that lack a provider for one part only.
type missingPart struct {
	trees    int
	failedAt []int    // number of trees by the condition at which their best provider fails
	example  []string // the name of a root, by the same condition
}

func newExplainer(s *ledger.Snapshot, r *Request) *explainer {
	e := &explainer{s: s, r: r, sharingByAggregate: map[string][]*ledger.Provider{}, cells: s.WithTrait(cellTrait)}
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Suffix != "" || len(g.Resources) == 0 {
			e.addPart(g, g.Resources)
			continue
		}
		for j := range g.Resources {
			e.addPart(g, g.Resources[j:j+1])
		}
	}
	e.roots = e.rootConditions()
	e.rootFailures = make([]int, len(e.roots))
	e.missing = make([]int, len(e.parts))
	e.reached = make([]int, len(e.parts))
	e.onlyMissing = make([]missingPart, len(e.parts))
	for i := range e.onlyMissing {
		n := len(e.parts[i].conditions)
		e.onlyMissing[i].failedAt, e.onlyMissing[i].example = make([]int, n), make([]string, n)
	}
	if g := e.unsuffixed(); g != nil {
		e.lackingTrait = make([]int, len(g.Required))
		e.has = make([]bool, len(g.Required))
	}
	for p := range s.WithTrait(sharingTrait).All() {
		for _, a := range p.Aggregates {
			e.sharingByAggregate[a] = append(e.sharingByAggregate[a], p)
		}
	}
	return e
}

func (e *explainer) addPart(g *Group, resources []Resource) {
	x := explained{group: g, resources: resources, conditions: e.conditions(g, resources),
		shared: map[*ledger.Provider]int{}}
	x.price = len(x.conditions) + len(g.Forbidden) + len(g.NotMemberOf)
	for _, set := range slices.Concat(g.Required, g.MemberOf) {
		x.price += len(set)
	}
	x.failedAt = make([]int, len(x.conditions)+1)
	x.trees = make([]int, len(x.conditions)+1)
	e.parts = append(e.parts, x)
}

// unsuffixed is the unsuffixed group, whose providers have its required traits together; nil if
// there is none, or if it has no resources and so one provider.
func (e *explainer) unsuffixed() *Group {
	for i := range e.r.Groups {
		if g := &e.r.Groups[i]; g.Suffix == "" && len(g.Resources) > 0 {
			return &e.r.Groups[i]
		}
	}
	return nil
}

// evaluateTree evaluates a tree and its providers.
func (e *explainer) evaluateTree(t *ledger.Tree) {
	e.trees++
	root := t.Root()
	clear(e.reached)
	clear(e.has)
	for _, p := range t.Providers() {
		e.evaluateProvider(p, root, false)
	}
	for _, p := range e.external(t) {
		e.evaluateProvider(p, root, true)
	}
	for i := range e.parts {
		e.parts[i].trees[e.reached[i]]++
	}
	for i, c := range e.roots {
		if !c.met(root) {
			e.rootFailures[i]++
			return
		}
	}
	first, lacking := -1, 0
	for i := range e.parts {
		if e.reached[i] < len(e.parts[i].conditions) {
			lacking++
			if first < 0 {
				first = i
			}
		}
	}
	if lacking == 1 {
		m := &e.onlyMissing[first]
		m.trees++
		m.failedAt[e.reached[first]]++
		m.example[e.reached[first]] = root.Name
	}
	if lacking != 0 {
		e.missing[first]++
		e.rememberNearest(t, lacking)
		return
	}
	for i, has := range e.has {
		if !has {
			e.lackingTrait[i]++
			return
		}
	}
	e.left = append(e.left, t)
	e.rememberNearest(t, 0)
}

// evaluateProvider evaluates a provider for a tree.
func (e *explainer) evaluateProvider(p, root *ledger.Provider, external bool) {
	sharing := external || len(e.sharingByAggregate) != 0 && p.HasTrait(sharingTrait)
	for i := range e.parts {
		x := &e.parts[i]
		e.work += x.price
		n := x.conditionsMet(p, root, external)
		e.reached[i] = max(e.reached[i], n)
		if sharing {
			// It is evaluated for several trees and counts once, for the one where it gets
			// furthest.
			x.shared[p] = max(x.shared[p], n)
		} else {
			x.failedAt[n]++
		}
		if n == len(x.conditions) && x.group.Suffix == "" && len(x.resources) > 0 {
			for j, set := range x.group.Required {
				e.has[j] = e.has[j] || hasOne(p.HasTrait, set)
			}
		}
	}
}

// external are the providers of other trees that share with this one.
func (e *explainer) external(t *ledger.Tree) []*ledger.Provider {
	if len(e.sharingByAggregate) == 0 {
		return nil
	}
	var list []*ledger.Provider
	seen := map[*ledger.Provider]bool{}
	for _, p := range t.Providers() {
		for _, a := range p.Aggregates {
			for _, sharer := range e.sharingByAggregate[a] {
				if sharer.Root != t.Root().UUID && !seen[sharer] {
					seen[sharer] = true
					list = append(list, sharer)
				}
			}
		}
	}
	return list
}

// groups are the steps of the parts.
func (e *explainer) groups() []GroupExplanation {
	var list []GroupExplanation
	for i := range e.parts {
		x := &e.parts[i]
		for _, n := range x.shared {
			x.failedAt[n]++
		}
		clear(x.shared) // they are counted now
		g := GroupExplanation{Suffix: x.group.Suffix, Resources: map[string]int64{}}
		for _, r := range x.resources {
			g.Resources[r.Class] = r.Amount
		}
		providers, trees := 0, e.trees
		for _, n := range x.failedAt {
			providers += n
		}
		for j, c := range x.conditions {
			providers -= x.failedAt[j]
			trees -= x.trees[j]
			step := ProviderStep{Kind: c.kind, Condition: c.text, Removed: x.failedAt[j],
				Providers: providers, Trees: trees}
			if x.failedAt[j] > 0 && c.note != nil {
				step.Note = c.note()
			}
			g.Steps = append(g.Steps, step)
		}
		list = append(list, g)
	}
	return list
}

// treeSteps are the steps on trees before the rules for all groups together.
func (e *explainer) treeSteps() []TreeStep {
	left := e.trees
	steps := []TreeStep{{Kind: StepAll, Condition: "all trees", Trees: left}}
	add := func(kind StepKind, text string, removed int) {
		left -= removed
		steps = append(steps, TreeStep{Kind: kind, Condition: text, Removed: removed, Trees: left})
	}
	for i, c := range e.roots {
		add(c.kind, c.text, e.rootFailures[i])
	}
	for i := range e.parts {
		add(StepGroup, e.parts[i].name()+" has a provider", e.missing[i])
	}
	if g := e.unsuffixed(); g != nil {
		for i, set := range g.Required {
			add(StepRequired, "the providers of the unsuffixed group have "+e.traitText(set), e.lackingTrait[i])
		}
	}
	return steps
}
