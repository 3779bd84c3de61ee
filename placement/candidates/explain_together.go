// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// rule is a rule for all groups together, in addition to the rules before it.
type rule struct {
	kind    StepKind
	text    string
	request Request // with this rule and those before
	search  *search
	removed int
}

// rules are the rules of the request, each in addition to those before it.
func (e *explainer) rules() []rule {
	r := withoutUnknown(e.s, e.r)
	now := r
	now.GroupPolicy, now.Isolate, now.SameSubtree, now.Flat = None, nil, nil, false
	list := []rule{{kind: StepRoom, text: "all groups fit at once", request: now}}
	add := func(kind StepKind, text string) { list = append(list, rule{kind: kind, text: text, request: now}) }
	if r.GroupPolicy == Isolate {
		now.GroupPolicy = Isolate
		add(StepGroupPolicy, "group_policy=isolate: a provider for each suffixed group")
	}
	if len(r.Isolate) > 0 {
		now.Isolate = r.Isolate
		add(StepIsolate, "isolate="+strings.Join(r.Isolate, ",")+": providers of their own")
	}
	for i, set := range r.SameSubtree {
		now.SameSubtree = r.SameSubtree[:i+1]
		add(StepSameSubtree, "same_subtree="+strings.Join(set, ",")+": one provider is above the others")
	}
	if r.Flat {
		now.Flat = true
		add(StepFlat, "one provider of each tree, as before microversion 1.29")
	}
	return list
}

// withoutUnknown is the request without unknown names. Where that makes a difference, no tree is
// left anyway.
func withoutUnknown(s *ledger.Snapshot, r *Request) Request {
	unknown := func(trait string) bool { _, ok := s.Trait(trait); return !ok }
	out := *r
	out.Groups = slices.Clone(r.Groups)
	for i := range out.Groups {
		g := &out.Groups[i]
		g.Forbidden = slices.DeleteFunc(slices.Clone(g.Forbidden), unknown)
		g.Required = slices.Clone(g.Required)
		for j := range g.Required {
			g.Required[j] = slices.DeleteFunc(slices.Clone(g.Required[j]), unknown)
		}
	}
	out.Root.Forbidden = slices.DeleteFunc(slices.Clone(r.Root.Forbidden), unknown)
	return out
}

// combine finds the rule that excludes each of the trees that have a provider for each group, and
// returns the steps of the rules. The last one leaves the trees with candidates.
func (e *explainer) combine(ctx context.Context, o Options) ([]TreeStep, error) {
	if len(e.left) == 0 {
		return nil, nil
	}
	l := &limits{steps: o.Steps, stopped: func() bool { return ctx.Err() != nil }}
	rules := e.rules()
	for i := range rules {
		q, err := resolve(ctx, e.s, &rules[i].request, o.Steps)
		if err != nil {
			return nil, err
		}
		rules[i].search = newSearch(q, &Options{}, 0, l)
	}
	undecided := 0
	for i, t := range e.left {
		if l.steps <= 0 {
			undecided += len(e.left) - i
			break
		}
		l.exhausted = false
		if rules[len(rules)-1].allows(t) {
			continue
		}
		stops := slices.IndexFunc(rules, func(r rule) bool { return !r.allows(t) })
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if stops < 0 || l.exhausted {
			undecided++
			continue
		}
		rules[stops].removed++
	}
	left := len(e.left)
	var steps []TreeStep
	add := func(kind StepKind, text string, removed int) {
		left -= removed
		steps = append(steps, TreeStep{Kind: kind, Condition: text, Removed: removed, Trees: left})
	}
	for i := range rules {
		add(rules[i].kind, rules[i].text, rules[i].removed)
	}
	if undecided > 0 {
		add(StepUndecided, fmt.Sprintf("decided within %d steps of search", o.Steps), undecided)
	}
	return steps, nil
}

// allows reports whether the tree has a candidate under the rule and those before it.
func (r *rule) allows(t *ledger.Tree) bool {
	return !r.search.q.never && r.search.fill(t) && r.search.next()
}
