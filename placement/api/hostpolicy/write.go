// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"errors"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// Guarded adds to a transaction of a host the check of what it touched, before and after: nothing
// is committed that a host may not do, whichever call asked for it. Errors that say something
// about others are replaced.
func (r *Request) Guarded(fn func(*ledger.Tx) error) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		w := write{
			Request: r, tx: tx, before: tx.Base(), after: tx.Snapshot, roots: map[string]bool{},
			beside: map[string]bool{}, sizes: map[string]treeSize{},
			reclaims: map[int64]bool{},
		}
		if r.x.Route == ProvidersPath {
			taken, err := r.reclaimUUIDs(tx)
			if err != nil {
				return err
			}
			for _, p := range taken {
				w.reclaims[p.ID] = true
			}
		}
		// A call that changes nothing touches nothing, and its answer may show the provider.
		if uuid := r.x.R.PathValue("uuid"); uuid != "" {
			if p, ok := w.before.Provider(uuid); ok && !w.owns(w.before, p) {
				return w.refuseProvider(uuid)
			}
		}
		// A host that writes again what a consumer has must not keep others from writing theirs.
		tx.KeepGenerations(func(p *ledger.Provider) bool { return !w.owns(w.before, p) })
		if err := fn(tx); err != nil {
			return w.redact(err)
		}
		return w.check(tx.Touched())
	}
}

// MayName refuses a request of a host that names what belongs to others, before anything is looked
// up: the answer must not depend on what their providers have. Of these, a request can name only
// what a consumer of the host holds there. Providers that do not exist are left to the transaction.
// A nil Request (no host) allows everything.
func (r *Request) MayName(
	s *ledger.Snapshot, inventories map[string]ledger.ProviderInventories, list []ledger.ConsumerAllocations,
) error {
	if r == nil {
		return nil
	}
	for _, uuid := range slices.Sorted(maps.Keys(inventories)) {
		if p, ok := s.Provider(uuid); ok && !r.owns(s, p) {
			return r.refuseProvider(uuid)
		}
	}
	for i := range list {
		c, ok := s.Consumer(list[i].Consumer)
		if ok && len(c.Allocations) > 0 && !r.holds(s, c) {
			return r.refuseConsumer(list[i].Consumer)
		}
		has := map[[2]string]int64{}
		if ok {
			for _, a := range c.Allocations {
				has[[2]string{a.Provider, a.Class}] += a.Used
			}
		}
		for _, uuid := range slices.Sorted(maps.Keys(list[i].Resources)) {
			if p, ok := s.Provider(uuid); !ok || r.owns(s, p) {
				continue
			}
			for class, amount := range list[i].Resources[uuid] {
				if amount > has[[2]string{uuid, class}] {
					return r.refuseProvider(uuid)
				}
			}
		}
	}
	return nil
}

// write checks one transaction of a host. It trusts nothing but the state before and after.
type write struct {
	*Request
	tx            *ledger.Tx
	before, after *ledger.Snapshot
	// roots are the answers about roots before: whose they are.
	roots map[string]bool
	// sizes has the sizes of trees after the transaction, by root.
	sizes map[string]treeSize
	// beside are providers of others that consumers of the host hold: their generations may grow.
	beside map[string]bool
	// reclaims are providers of others that got another uuid, by ID: see reclaimUUIDs.
	reclaims map[int64]bool
	// elsewhere counts what others rely on: providers and consumers whose generations grow, and
	// consumers that had no allocations.
	elsewhere int
}

// redact replaces an error about what the host may not read by one that says nothing of it.
func (w *write) redact(err error) error {
	var refused *ledger.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Consumer != "" {
		if c, ok := w.before.Consumer(refused.Consumer); ok && !w.holds(w.before, c) {
			return w.refuseConsumer(refused.Consumer)
		}
	}
	switch {
	case refused.Kind == ledger.DuplicateName && w.id.HasProvider(refused.Name):
		return err // it says of the other provider only that it has the name
	case refused.Kind == ledger.DuplicateName:
		return w.refuse(ActionTree, "the name %s is not this host's", shortened(refused.Name))
	case refused.Provider != "":
		if p, ok := w.before.Provider(refused.Provider); ok && !w.owns(w.before, p) {
			return w.refuseProvider(refused.Provider)
		}
	}
	return err
}

// check returns a refusal if the transaction touched what the host may not. Cost: what it touched,
// and a look at all roots if it made one.
func (w *write) check(t ledger.Touched) error {
	for _, e := range t.Classes {
		if e.Before != nil {
			return w.refuse(ActionNames,
				"a host removes and renames no resource classes; use the credential of a user with the role "+
					"service or admin")
		}
	}
	for _, e := range t.Traits {
		if e.Before != nil {
			return w.refuse(ActionNames,
				"a host removes no traits; use the credential of a user with the role service or admin")
		}
	}
	bounds := &w.policy.bounds
	if made := len(t.Classes) + len(t.Traits); made > 0 && bounds.names.spend(w.id.Name, made) > 0 {
		return w.refuse(ActionNames,
			"it has created very many traits and resource classes; it can create %d more an hour", perHour(namesEvery))
	}
	for _, e := range t.Consumers {
		if err := w.checkConsumer(e); err != nil {
			return err
		}
	}
	for _, e := range t.Providers {
		if err := w.checkProvider(e); err != nil {
			return err
		}
	}
	if w.elsewhere > 0 && bounds.heals.spend(w.id.Name, w.elsewhere) > 0 {
		return w.refuse(ActionAllocations,
			"it has given allocations to very many consumers, or changed those of very many that hold something "+
				"elsewhere; it can do %d more an hour", perHour(healsEvery))
	}
	return w.checkAdmission(t.Providers)
}

// checkProvider checks the change of a provider.
func (w *write) checkProvider(e ledger.Edit[ledger.Provider]) error {
	was, is := e.Before, e.After
	if was != nil && w.reclaims[was.ID] {
		return nil
	}
	ownBefore := was != nil && w.owns(w.before, was)
	if was != nil && !ownBefore {
		if is != nil && w.beside[was.UUID] && onlyAllocated(was, is) {
			w.elsewhere++
			return nil
		}
		return w.refuseProvider(was.UUID)
	}
	if is == nil {
		return w.checkAggregates(was, nil)
	}
	if !w.owns(w.after, is) {
		if is.Parent == "" && w.id.HasName(is.Name) {
			return w.refuse(ActionTree,
				"the certificate of the host is for the compute nodes %s, and not for %s; enrol the host for that node",
				w.id.Nodes, shortened(is.UUID))
		}
		if was == nil {
			return w.refuse(ActionTree,
				"a host makes root providers with its own name only, and providers below those; %s would be neither",
				shortened(is.UUID))
		}
		return w.refuse(ActionTree, "resource provider %s would be in no tree of this host any more",
			shortened(is.UUID))
	}
	if was == nil || was.Parent != is.Parent || was.Name != is.Name {
		if err := w.checkPlace(was, is); err != nil {
			return err
		}
	}
	if err := w.fits(was, is); err != nil {
		return err
	}
	if is.HasTrait(providertree.TraitSharesViaAggregate) &&
		(was == nil || !was.HasTrait(providertree.TraitSharesViaAggregate)) && !w.allowed(ActionSharing) {
		return w.refuse(ActionSharing,
			"a provider with the trait %s offers what it has to other hosts; an operator sets it, or allows it "+
				"by this rule", providertree.TraitSharesViaAggregate)
	}
	return w.checkAggregates(was, is)
}

// checkPlace checks where a provider is, and its name, if these are new.
func (w *write) checkPlace(was, is *ledger.Provider) error {
	if is.Parent != "" {
		if (was == nil || was.Name != is.Name) && !w.id.HasProvider(is.Name) {
			return w.refuse(ActionTree,
				"the name of a provider below a host's root begins with the name of the host and a character such "+
					"as _ or :, and %s does not", shortened(is.Name))
		}
		if host := w.policy.nodes.host(is.UUID); was == nil && host != "" && host != w.id.Name {
			return w.refuse(ActionTree, "the uuid %s is that of a compute node of another host", shortened(is.UUID))
		}
		if (was == nil || was.Root != is.Root) && len(w.after.Tree(is.Root)) > maxHostTree {
			return w.refuse(ActionTree, "its tree would have more than %d providers", maxHostTree)
		}
		return nil
	}
	if was != nil && was.Parent == "" {
		return nil // it is a root still, and its name is the host's
	}
	roots := 0
	for tree := range w.after.Trees() {
		if w.ownsRoot(tree.Root()) {
			roots++
		}
	}
	if roots > maxHostRoots {
		return w.refuse(ActionTree, "it would have more than %d trees", maxHostRoots)
	}
	return nil
}

// checkAggregates checks the aggregates of a provider: they say to whom the host is reserved, and
// in which zone it is. A provider that goes leaves them, too.
func (w *write) checkAggregates(was, is *ledger.Provider) error {
	var before, after []string
	if was != nil {
		before = was.Aggregates
	}
	if is != nil {
		after = is.Aggregates
	}
	if slices.Equal(before, after) || w.allowed(ActionAggregates) {
		return nil
	}
	const todo = "an operator changes them, or allows it by this rule"
	if is == nil {
		return w.refuse(ActionAggregates, "resource provider %s is in aggregates; %s", shortened(was.UUID), todo)
	}
	return w.refuse(ActionAggregates, "the aggregates of resource provider %s would change; %s",
		shortened(is.UUID), todo)
}

// onlyAllocated reports whether nothing of a provider changed but its generation, as a write of
// allocations changes it.
func onlyAllocated(was, is *ledger.Provider) bool {
	return is.Generation == was.Generation+1 && was.Name == is.Name && was.Parent == is.Parent && was.Root == is.Root &&
		slices.Equal(was.Inventories, is.Inventories) &&
		slices.Equal(was.Traits, is.Traits) && slices.Equal(was.Aggregates, is.Aggregates)
}

// held is what a consumer holds: in the trees of the host by class, in how many parts, and
// elsewhere by provider and class.
type held struct {
	own    map[string]int64
	parts  int
	others map[[2]string]int64
}

func (w *write) heldBy(s *ledger.Snapshot, c *ledger.Consumer) held {
	out := held{own: map[string]int64{}, others: map[[2]string]int64{}}
	if c == nil {
		return out
	}
	for i := range c.Allocations {
		a := &c.Allocations[i]
		if w.ownsProvider(s, a.Provider) {
			out.own[a.Class] += a.Used
			out.parts++
		} else {
			out.others[[2]string{a.Provider, a.Class}] += a.Used
		}
	}
	return out
}

// ownsProvider is owns by uuid. A provider of the host before the transaction is one after it, or
// gone, and the other way round: see checkProvider.
func (w *write) ownsProvider(s *ledger.Snapshot, uuid string) bool {
	own, known := w.roots[uuid]
	if !known {
		p, ok := s.Provider(uuid)
		own = ok && w.owns(s, p)
		w.roots[uuid] = own
	}
	return own
}

// checkConsumer checks the change of a consumer.
func (w *write) checkConsumer(e ledger.Edit[ledger.Consumer]) error {
	was, is := w.heldBy(w.before, e.Before), w.heldBy(w.after, e.After)
	uuid := ""
	if e.Before != nil {
		uuid = e.Before.UUID
	} else {
		uuid = e.After.UUID
	}
	if is.parts > maxHostParts && is.parts > was.parts {
		return w.refuse(ActionAllocations, "consumer %s would have more than %d allocations in the trees of this host",
			shortened(uuid), maxHostParts)
	}
	if len(was.own) == 0 && len(was.others) == 0 {
		switch {
		case len(is.own) == 0 && len(is.others) == 0:
			return nil
		case len(is.others) > 0:
			return w.refuse(ActionHeal,
				"consumer %s has no allocations, and a host gives it some in its own trees only",
				shortened(uuid))
		case !w.allowed(ActionHeal):
			return w.refuse(ActionHeal,
				"consumer %s has no allocations, and a host gives none to others than its guests have already; "+
					"an administrator allocates for it, or allows it to the host by this rule for a while",
				shortened(uuid))
		}
		w.elsewhere++
		return nil
	}
	if len(was.own) == 0 {
		return w.refuseConsumer(uuid)
	}
	if err := w.checkElsewhere(uuid, was, is); err != nil {
		return err
	}
	if err := w.checkAmounts(uuid, was.own, is.own); err != nil {
		return err
	}
	if err := w.checkOwner(uuid, e.Before, e.After); err != nil {
		return err
	}
	if len(was.others) > 0 && e.After != nil {
		w.elsewhere++
	}
	for key := range was.others {
		w.beside[key[0]] = true
	}
	return nil
}

// checkElsewhere checks what a consumer of the host has elsewhere: it stays. Only what it has of a
// sharing provider may shrink, and go, if it has nothing of other hosts.
func (w *write) checkElsewhere(uuid string, was, is held) error {
	changed, elsewhere := false, false
	sharing := map[string]bool{}
	shared := func(provider string) bool {
		out, known := sharing[provider]
		if !known {
			p, ok := w.before.Provider(provider)
			out = ok && w.sharesWith(w.before, p)
			sharing[provider] = out
		}
		return out
	}
	for key, amount := range is.others {
		if amount > was.others[key] {
			return w.refuse(ActionAllocations,
				"consumer %s would have more of provider %s, which is not in a tree of this host",
				shortened(uuid), shortened(key[0]))
		}
	}
	for key, amount := range was.others {
		changed = changed || is.others[key] != amount
	}
	if !changed {
		return nil
	}
	for key, amount := range was.others {
		if !shared(key[0]) {
			elsewhere = true
		}
		if is.others[key] != amount && !shared(key[0]) {
			return w.refuse(ActionAllocations,
				"what consumer %s has of provider %s, which is not in a tree of this host, would change",
				shortened(uuid), shortened(key[0]))
		}
	}
	if elsewhere {
		return w.refuse(ActionAllocations,
			"consumer %s has allocations on other hosts, too, so that what it has of sharing providers stays",
			shortened(uuid))
	}
	return nil
}

// checkAmounts checks what a consumer has in the trees of the host, of each class: no more than
// before, and in a reshape, which may give a class another name if an operator has declared that,
// the same.
func (w *write) checkAmounts(uuid string, was, is map[string]int64) error {
	reshaped, groups := w.x.Route == ReshaperPath, w.policy.renamed
	before, after := map[string]int64{}, map[string]int64{}
	group := func(class string) string {
		if reshaped {
			return groups.groupOf(class)
		}
		return class
	}
	for class, amount := range was {
		before[group(class)] += amount
	}
	for class, amount := range is {
		after[group(class)] += amount
	}
	for _, class := range slices.Sorted(maps.Keys(is)) {
		had, has := before[group(class)], after[group(class)]
		switch {
		case has <= had:
		case reshaped && had == 0:
			return w.refuse(
				ActionAllocations,
				"consumer %s would have %d %s and had none; if a class of this host has another name now, "+
					"add it as \"OLD=%[3]s\" to [placement] host_class_renames of this server",
				shortened(uuid), has, shortened(class),
			)
		default:
			return w.refuse(
				ActionAllocations,
				"consumer %s would have %d %s in the trees of this host, more than the %d before; "+
					"a host moves allocations in its trees, or removes them",
				shortened(uuid), has, shortened(class), had,
			)
		}
	}
	if reshaped && !maps.Equal(before, after) {
		return w.refuse(ActionAllocations,
			"consumer %s would have less in the trees of this host than before; a reshape only moves it",
			shortened(uuid))
	}
	return nil
}

// checkOwner checks project, user and type of a consumer that has something in the trees of the
// host: they stay. Those of one without a record, as an old Placement has left it, are unknown.
func (w *write) checkOwner(uuid string, was, is *ledger.Consumer) error {
	switch {
	case is == nil:
		return nil
	case was.ID == 0:
		return w.refuse(ActionAllocations,
			"consumer %s has no record, so that its project is not known, and a host does not choose it; "+
				"run `compute-agent placement db online-data-migrations` for this server", shortened(uuid))
	case is.Project != was.Project || is.User != was.User || is.Type != was.Type:
		return w.refuse(ActionAllocations, "the project, the user or the type of consumer %s would change",
			shortened(uuid))
	}
	return nil
}
