// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

const (
	// maxAdmitted is the largest amount that differs from larger ones.
	maxAdmitted = 1 << 53
	// maxRefusals bounds what an answer says is not admitted.
	maxRefusals = 20
)

// allocatable is how much of a class can be allocated of an inventory: reserved amounts count,
// because the host chooses them.
func allocatable(i *ledger.Inventory) float64 {
	return max(0, min(float64(i.Total)*i.AllocationRatio, maxAdmitted))
}

// HostKey is the name by which the ledger has what a host may report. Case does not count.
func HostKey(name string) string {
	const longest = 255 // of the column
	return strings.ToLower(strings.ToValidUTF8(name[:min(len(name), longest)], ""))
}

// report has the sums over all trees of a host: amounts by class, and kinds of traits.
type report struct {
	classes map[string]float64
	kinds   map[string]bool
}

func (r *report) add(p *ledger.Provider) {
	for i := range p.Inventories {
		r.classes[p.Inventories[i].Class] += allocatable(&p.Inventories[i])
	}
	for _, trait := range p.Traits {
		if kind := wire.TraitKind(trait); kind != "" {
			r.kinds[kind] = true
		}
	}
}

// addTrees adds the trees of some roots.
func (r *report) addTrees(s *ledger.Snapshot, has func(root *ledger.Provider) bool) {
	for t := range s.Trees() {
		if has(t.Root()) {
			r.addTree(s, t.Root())
		}
	}
}

func (r *report) addTree(s *ledger.Snapshot, root *ledger.Provider) {
	for _, p := range s.Tree(root.UUID) {
		r.add(p)
	}
}

func newReport() report { return report{classes: map[string]float64{}, kinds: map[string]bool{}} }

// reportIn is the report of the host in a snapshot. Cost: its providers, and a look at all roots if
// its certificate does not say which compute nodes it has.
func (r *Request) reportIn(s *ledger.Snapshot) report {
	out := newReport()
	if len(r.id.Nodes) == 0 {
		out.addTrees(s, r.ownsRoot)
	}
	for _, node := range r.id.Nodes {
		if root, ok := s.Provider(node); ok && root.Parent == "" && r.ownsRoot(root) {
			out.addTree(s, root)
		}
	}
	return out
}

// reportedAs is the report of the host of that key, as far as its trees are named as it is, or as
// that with a domain: only a certificate says more. Cost: a look at all roots, and its providers.
func reportedAs(key string, s *ledger.Snapshot) report {
	out, host := newReport(), pki.Identity{Kind: pki.Host, Name: key}
	out.addTrees(s, func(root *ledger.Provider) bool { return host.HasName(strings.ToLower(root.Name)) })
	return out
}

// growth is what a transaction adds to the trees of the host, all of them together: classes of
// which there is more, and kinds of traits that a provider has and had not.
type growth struct {
	classes, kinds []string
	// some: providers of the host changed.
	some bool
}

func (w *write) growthOf(edits []ledger.Edit[ledger.Provider]) (g growth) {
	was, is := newReport(), newReport()
	for _, e := range edits {
		had, has := e.Before != nil && w.owns(w.before, e.Before), e.After != nil && w.owns(w.after, e.After)
		g.some = g.some || had || has
		if had && has && slices.Equal(e.Before.Inventories, e.After.Inventories) &&
			slices.Equal(e.Before.Traits, e.After.Traits) {
			continue // only allocated
		}
		if had {
			was.add(e.Before)
		}
		if has {
			is.add(e.After)
		}
	}
	for class, amount := range is.classes {
		if exceeds(amount, was.classes[class]) {
			g.classes = append(g.classes, class)
		}
	}
	for kind := range is.kinds {
		if !was.kinds[kind] {
			g.kinds = append(g.kinds, kind)
		}
	}
	slices.Sort(g.classes)
	slices.Sort(g.kinds)
	return g
}

// exceeds reports whether an amount is more than another one, and not by the rounding of sums.
func exceeds(a, b float64) bool { return a > b*(1+1e-9) }

// checkAdmission checks how much the trees of the host have after the transaction, and which kinds
// of traits, and notes what it may report. What a user of Placement wrote into its trees is no
// growth of the host's. It runs after all other checks.
func (w *write) checkAdmission(edits []ledger.Edit[ledger.Provider]) error {
	factor := w.policy.deps.CapacityFactor
	if factor < 1 {
		return nil
	}
	g := w.growthOf(edits)
	grows := len(g.classes)+len(g.kinds) > 0
	key := HostKey(w.id.Name)
	if g.some && !ledger.ValidHostName(key) {
		return w.refuse(ActionTree, "%q is no name of a host", shortened(w.id.Name))
	}
	noted, known := w.before.Host(key)
	if !g.some || known && !noted.Since.IsZero() && !w.policy.fromWrongClock(noted) && !grows {
		return nil
	}
	host := ledger.Host{Name: key, Classes: map[string]int64{}}
	if known {
		host = *noted
		host.Classes = maps.Clone(noted.Classes)
	}
	if w.policy.fromWrongClock(&host) {
		host.Since = reportedBefore
	}
	if host.Since.IsZero() { // all that is known, if anything, is what an operator has stated
		had := w.reportIn(w.before)
		switch {
		case len(had.classes)+len(had.kinds) > 0:
			host.Since = reportedBefore
			admitAll(&host, had.withoutClasses(host.Classes))
		case !grows:
			return nil
		case known:
			host.Since = reportedBefore
		default:
			host.Since = w.policy.deps.Now()
		}
	}
	if grows {
		after := w.reportIn(w.after)
		if !w.policy.openUntil(&host).IsZero() {
			admitAll(&host, after)
			if len(host.Classes)+len(host.Traits) > maxHostKinds {
				return w.refuse(ActionTree, "it would have reported more than %d resource classes and kinds of traits",
					maxHostKinds)
			}
		} else if err := w.checkAdmitted(&host, g, w.reportIn(w.before), after); err != nil {
			return err
		}
	}
	_, err := w.tx.SetHost(host)
	return err
}

// withoutClasses is a report without the classes of which an operator has stated something.
func (r report) withoutClasses(stated map[string]int64) report {
	r.classes = maps.Clone(r.classes)
	maps.DeleteFunc(r.classes, func(class string, _ float64) bool { _, is := stated[class]; return is })
	return r
}

// admitAll admits all that a report has.
func admitAll(h *ledger.Host, r report) {
	for class, amount := range r.classes {
		h.Classes[class] = max(h.Classes[class], int64(math.Ceil(amount)))
	}
	h.Traits = slices.Clone(h.Traits)
	for kind := range r.kinds {
		if !slices.Contains(h.Traits, kind) {
			h.Traits = append(h.Traits, kind)
		}
	}
}

// checkAdmitted returns a refusal if the host would report more than it may: more of a class than
// the factor times what is admitted, of all names of the class together, or a kind of traits that
// is not. What was there before may stay. The refusal has all of them.
func (w *write) checkAdmitted(h *ledger.Host, g growth, before, after report) error {
	groups, factor := w.policy.renamed, w.policy.deps.CapacityFactor
	var refused unadmitted
	for _, class := range g.classes {
		had, has, admitted := sumOf(groups, class, before.classes), sumOf(groups, class, after.classes),
			sumOf(groups, class, h.Classes)
		if most := float64(factor) * admitted; exceeds(has, max(most, had)) {
			flag := fmt.Sprintf("--class %s=%.0f", class, math.Ceil(after.classes[class]))
			if admitted == 0 {
				refused.add(class, flag, "its trees would have %.0f %s (total times allocation_ratio), "+
					"and it has not reported this class when it came", has, class)
				continue
			}
			refused.add(class, flag, "its trees would have %.0f %s (total times allocation_ratio), more than %.0f: "+
				"%d times the %.0f that it reported when it came, or that an operator stated", has,
				class, most, factor, admitted)
		}
	}
	for _, kind := range g.kinds {
		if !before.kinds[kind] && !slices.Contains(h.Traits, kind) {
			refused.add(kind, "--trait "+kind, "it has reported no trait that begins with %s when it came", kind)
		}
	}
	if refused.count == 0 {
		return nil
	}
	return w.notAdmitted(refused)
}

// sumOf adds the amounts of all names of a class.
func sumOf[N int64 | float64](groups classGroups, class string, amounts map[string]N) (sum float64) {
	for name, amount := range amounts {
		if groups.groupOf(name) == groups.groupOf(class) {
			sum += float64(amount)
		}
	}
	return sum
}

// unadmitted is why a report is not admitted, and the flags of the command that admits it:
// maxRefusals at most.
type unadmitted struct {
	names, whys, flags []string
	count              int
}

func (u *unadmitted) add(name, flag, why string, args ...any) {
	if u.count++; u.count <= maxRefusals {
		u.names, u.whys, u.flags = append(u.names, name),
			append(u.whys, fmt.Sprintf(why, args...)), append(u.flags, flag)
	}
}

// notAdmitted is the answer to a report of more than is admitted.
func (w *write) notAdmitted(r unadmitted) *osapi.Error {
	name := shortened(w.id.Name)
	if more := r.count - len(r.whys); more > 0 {
		r.whys = append(r.whys, fmt.Sprintf("and %d more, which the next answer names", more))
	}
	e := osapi.Errorf(http.StatusForbidden,
		"The host %s is not admitted to report this: %s. If the machine has it, a person admits it, "+
			"on the machine of the compute API: compute-agent cells manage admit-host %[1]s %[3]s "+
			"(with --unknown for a host that the compute API does not know).",
		name, strings.Join(r.whys, "; "), strings.Join(r.flags, " "))
	e.Code, e.Names = string(wire.CodeHostCapacity), r.names
	e.Hint = "a host reports more than it had when it came: if that was not added to the machine, " +
		"its credential may be stolen, and belongs on the deny list"
	return e
}
