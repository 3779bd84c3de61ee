// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What compareCandidates calls its differences.
const (
	differentNumber    = "number of candidates"
	differentCandidate = "candidate"
	differentSummaries = "provider summaries"
)

// compareCandidates compares two answers with candidates. Without a limit they must be the same as
// sets. With one, each service chooses its own candidates; but ours must be among all of the real
// service, as many, and the provider summaries must be those of the trees that they use: those of
// all candidates when the limit cut nothing off.
//
// The real service makes two mistakes that have to be taken out of its answers first: see
// sharesAmounts and anchorsLost.
func (r *runner) compareCandidates(ctx context.Context, x *Exchange) ([]Difference, error) {
	limit := 0
	if text, has := x.Step.get("limit"); has {
		limit, _ = strconv.Atoi(text) // Both took it for a number.
	} else if found := compare(x.Real, x.Ours, x.Step.Method); len(found) == 0 {
		return nil, nil
	}
	// The bodies are compared here, the rest as for other requests.
	found := compare(Answer{x.Real.Status, x.Real.Header, ""}, Answer{x.Ours.Status, x.Ours.Header, ""}, x.Step.Method)
	real, mine := candidatesOf(x.Real.Body), candidatesOf(x.Ours.Body)
	roots, err := r.roots(ctx)
	if err != nil {
		return nil, err
	}
	right := real
	if limit > 0 {
		if right, err = r.whole(ctx, r.real, &x.Step, nil); err != nil {
			return nil, err
		}
	}
	different := within(right, mine, limit, roots)
	if len(different) > 0 && x.Step.sharesAmounts() {
		if right, err = r.whole(ctx, r.real, &x.Step, &Param{Name: "group_policy", Value: "none"}); err != nil {
			return nil, err
		}
		if policy, _ := x.Step.get("group_policy"); policy == "isolate" && len(x.Step.suffixes()) > 1 {
			if x.Step.minor() < 34 {
				// Without mappings one cannot see which of these are isolated: ours must be among
				// them, and have all that the real service found in spite of its wrong amounts.
				lose, err := r.losable(ctx, &x.Step)
				if err != nil {
					return nil, err
				}
				bounded, lost := boundedBy(real, mine, right, limit, lose)
				if !bounded {
					return append(found, different...), nil
				}
				if lost {
					found = append(found, Difference{lostAnchors, "one anchor of several", "all"})
				}
				return append(found, Difference{wrongAmounts, "added up wrongly", "right"}), nil
			}
			right.onlyIsolated()
			right.keepTreesOf(right.used(), roots)
		}
		if different = within(right, mine, limit, roots); len(different) == 0 {
			return append(found, Difference{wrongAmounts, "added up wrongly", "right"}), nil
		}
	}
	if len(different) > 0 {
		whole := mine
		if limit > 0 {
			if whole, err = r.whole(ctx, r.ours, &x.Step, nil); err != nil {
				return nil, err
			}
		}
		lost, err := r.anchorsLost(ctx, &x.Step, right, whole, roots)
		if err != nil {
			return nil, err
		}
		if lost && len(within(whole, mine, limit, roots)) == 0 {
			return append(found, Difference{lostAnchors, "one anchor of several", "all"}), nil
		}
	}
	return append(found, different...), nil
}

// Placement's own faults in candidates, as differences.
const (
	wrongAmounts = "amounts"
	lostAnchors  = "anchors"
)

// anchorsLost says whether ours has all that the real service has, and otherwise only candidates
// that it loses: those of a query with groups with a suffix, whose group without one is met by
// sharing providers alone. The real service keeps the ways to meet that group in a set whose
// equality leaves the tree out that they are for (AllocationRequest.__eq__), so that of several
// trees only one is left for the other groups to be in.
func (r *runner) anchorsLost(
	ctx context.Context, st *Step, real, mine answered, roots map[string]string,
) (bool, error) {
	lose, err := r.losable(ctx, st)
	if err != nil {
		return false, err
	}
	left := real.counts()
	for _, request := range mine.requests {
		if left[request.text] > 0 {
			left[request.text]--
		} else if !lose(request) {
			return false, nil
		}
	}
	for _, n := range left {
		if n > 0 {
			return false, nil
		}
	}
	kept := map[string]bool{}
	for uuid := range mine.used() {
		kept[roots[uuid]] = true
	}
	for uuid, summary := range mine.summaries {
		if theirs, has := real.summaries[uuid]; !kept[roots[uuid]] || has &&
			canonical(text(theirs)) != canonical(text(summary)) {
			return false, nil
		}
	}
	for uuid := range real.summaries {
		if _, has := mine.summaries[uuid]; !has {
			return false, nil
		}
	}
	return true, nil
}

// losable tells which candidates the real service loses as anchorsLost says. Without mappings, it
// is those in which sharing providers give some of each class that the group without a suffix asks
// for.
func (r *runner) losable(ctx context.Context, st *Step) (func(allocationRequest) bool, error) {
	asked, has := st.get("resources")
	if !has || len(st.suffixes()) == 0 {
		return func(allocationRequest) bool { return false }, nil
	}
	sharing, err := r.sharing(ctx)
	if err != nil {
		return nil, err
	}
	return func(request allocationRequest) bool {
		if request.mappings != nil {
			return !slices.ContainsFunc(request.mappings[""],
				func(uuid string) bool { _, shares := sharing[uuid]; return !shares })
		}
		for part := range strings.SplitSeq(asked, ",") {
			class, _, _ := strings.Cut(part, ":")
			found := false
			for uuid, resources := range request.resources {
				_, shares := sharing[uuid]
				found = found || shares && resources[class] > 0
			}
			if !found {
				return false
			}
		}
		return true
	}, nil
}

// within compares an answer that a limit may have cut with all that there is.
func within(whole, mine answered, limit int, roots map[string]string) []Difference {
	want := len(whole.requests)
	if limit > 0 {
		want = min(want, limit)
	}
	if len(mine.requests) != want {
		return []Difference{{differentNumber, strconv.Itoa(want), strconv.Itoa(len(mine.requests))}}
	}
	left := whole.counts()
	for _, request := range mine.requests {
		if left[request.text]--; left[request.text] < 0 {
			return []Difference{{differentCandidate, "does not have it", request.text}}
		}
	}
	expected := whole
	if want < len(whole.requests) {
		expected.summaries = maps.Clone(whole.summaries)
		expected.keepTreesOf(mine.used(), roots)
	}
	if a, b := canonical(text(expected.summaries)), canonical(text(mine.summaries)); a != b {
		return []Difference{{differentSummaries, a, b}}
	}
	return nil
}

// boundedBy says whether ours lies between what the real service has of it, but for the amounts,
// and all that it could be, with what it may lose besides; and whether there is any of that.
func boundedBy(real, mine, whole answered, limit int, lose func(allocationRequest) bool) (bounded, lost bool) {
	left, patterns := whole.counts(), map[string]int{}
	for _, request := range mine.requests {
		patterns[request.pattern()]++
		if left[request.text]--; left[request.text] < 0 {
			if lost = true; !lose(request) {
				return false, false
			}
		}
	}
	if limit > 0 {
		return true, lost
	}
	for _, request := range real.requests {
		if patterns[request.pattern()]--; patterns[request.pattern()] < 0 {
			return false, false
		}
	}
	return true, lost
}

// sharesAmounts says that the real service may get the amounts of a query wrong: two groups ask for
// the same class, one of them is that without a suffix or the policy lets groups meet, and
// group_policy is not none. Then its candidates share the objects that hold the amounts, and adding
// up one candidate changes the others (copy_arr_if_needed in research_context.py).
func (st *Step) sharesAmounts() bool {
	if policy, _ := st.get("group_policy"); policy == "none" {
		return false
	}
	seen := map[string]string{}
	for _, p := range st.Query {
		suffix, found := strings.CutPrefix(p.Name, "resources")
		if !found || p.Raw {
			continue
		}
		for part := range strings.SplitSeq(p.Value, ",") {
			class, _, _ := strings.Cut(part, ":")
			if of, again := seen[class]; again && of != suffix {
				return true
			}
			seen[class] = suffix
		}
	}
	return false
}

var groupSuffix = regexp.MustCompile(`^(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})$`)

// suffixes are those of the step's groups.
func (st *Step) suffixes() []string {
	var all []string
	for _, p := range st.Query {
		if m := groupSuffix.FindStringSubmatch(p.Name); m != nil && !slices.Contains(all, m[2]) {
			all = append(all, m[2])
		}
	}
	return all
}

// whole is a service's answer to the query without its limit, and with one parameter instead of its
// own.
func (r *runner) whole(ctx context.Context, of Service, st *Step, instead *Param) (answered, error) {
	ask := st.clone()
	ask.Query = slices.DeleteFunc(ask.Query,
		func(p Param) bool { return p.Name == "limit" || instead != nil && p.Name == instead.Name })
	if instead != nil {
		ask.Query = append(ask.Query, *instead)
	}
	answer, err := r.ask(ctx, of, &ask)
	if err != nil {
		return answered{}, err
	}
	if answer.Status != http.StatusOK {
		return answered{summaries: object{}}, nil // Which is different from whatever ours has.
	}
	return candidatesOf(answer.Body), nil
}

// answered is the body of GET /allocation_candidates, taken apart.
type answered struct {
	requests  []allocationRequest
	summaries object
}

// allocationRequest is one candidate.
type allocationRequest struct {
	text      string // canonical
	resources map[string]map[string]int64
	mappings  map[string][]string
}

// pattern says which classes come from which providers.
func (a allocationRequest) pattern() string {
	var parts []string
	for uuid, resources := range a.resources {
		for class := range resources {
			parts = append(parts, uuid+" "+class)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (a answered) counts() map[string]int {
	counts := map[string]int{}
	for _, request := range a.requests {
		counts[request.text]++
	}
	return counts
}

// used are the providers that the candidates take from.
func (a answered) used() map[string]bool {
	used := map[string]bool{}
	for _, request := range a.requests {
		for uuid := range request.resources {
			used[uuid] = true
		}
	}
	return used
}

// keepTreesOf drops the summaries of providers in other trees.
func (a answered) keepTreesOf(used map[string]bool, roots map[string]string) {
	kept := map[string]bool{}
	for uuid := range used {
		kept[roots[uuid]] = true
	}
	maps.DeleteFunc(a.summaries, func(uuid string, _ any) bool { return !kept[roots[uuid]] })
}

// onlyIsolated drops the candidates in which two groups with a suffix have the same provider.
func (a *answered) onlyIsolated() {
	a.requests = slices.DeleteFunc(a.requests, func(q allocationRequest) bool {
		seen := map[string]bool{}
		for suffix, uuids := range q.mappings {
			if suffix == "" {
				continue
			}
			for _, uuid := range uuids {
				if seen[uuid] {
					return true
				}
				seen[uuid] = true
			}
		}
		return false
	})
}

func candidatesOf(body string) answered {
	var decoded struct {
		Requests  []json.RawMessage `json:"allocation_requests"`
		Summaries object            `json:"provider_summaries"`
	}
	a := answered{summaries: object{}}
	if json.Unmarshal([]byte(body), &decoded) != nil {
		return a
	}
	a.summaries = decoded.Summaries
	for _, raw := range decoded.Requests {
		q := allocationRequest{text: canonical(string(raw)), resources: map[string]map[string]int64{}}
		type resources struct {
			Resources map[string]int64 `json:"resources"`
		}
		var asObject struct {
			Allocations map[string]resources `json:"allocations"`
			Mappings    map[string][]string  `json:"mappings"`
		}
		var asList struct {
			Allocations []struct {
				resources
				Provider struct {
					UUID string `json:"uuid"`
				} `json:"resource_provider"`
			} `json:"allocations"`
		}
		if json.Unmarshal(raw, &asObject) == nil {
			q.mappings = asObject.Mappings
			for uuid, of := range asObject.Allocations {
				q.resources[uuid] = of.Resources
			}
		} else if json.Unmarshal(raw, &asList) == nil {
			for _, one := range asList.Allocations {
				q.resources[one.Provider.UUID] = one.Resources
			}
		}
		a.requests = append(a.requests, q)
	}
	return a
}

// roots are the roots of all providers of the real service.
func (r *runner) roots(ctx context.Context) (map[string]string, error) {
	list := latest("", http.MethodGet, "/resource_providers", nil)
	answer, err := r.ask(ctx, r.real, &list)
	if err != nil {
		return nil, err
	}
	var decoded struct {
		Providers []struct {
			UUID string `json:"uuid"`
			Root string `json:"root_provider_uuid"`
		} `json:"resource_providers"`
	}
	if err := json.Unmarshal([]byte(answer.Body), &decoded); err != nil {
		return nil, fmt.Errorf("read the providers of the real Placement: %w", err)
	}
	roots := map[string]string{}
	for _, p := range decoded.Providers {
		roots[p.UUID] = p.Root
	}
	return roots, nil
}

// sharing are the providers that share, and whether each of them is a child.
func (r *runner) sharing(ctx context.Context) (map[string]bool, error) {
	var list struct {
		Providers []struct {
			UUID   string  `json:"uuid"`
			Parent *string `json:"parent_provider_uuid"`
		} `json:"resource_providers"`
	}
	if err := r.look(ctx, "/resource_providers?required="+sharingTrait, &list); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, p := range list.Providers {
		all[p.UUID] = p.Parent != nil
	}
	return all, nil
}
