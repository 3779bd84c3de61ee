// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Verdict is what something unusual in a database means for its adoption.
type Verdict string

// The verdicts.
const (
	// MustRepair: the database cannot be served before it was repaired.
	MustRepair Verdict = "repair first"
	// Arrange: an administrator of the database server has to allow it before; else the command
	// refuses, and changes nothing.
	Arrange Verdict = "arrange first"
	// Shown: this program shows it as OpenStack Placement does.
	Shown Verdict = "shown as it is"
	// Harmless: nothing shows it.
	Harmless Verdict = "harmless"
)

var gravity = map[Verdict]int{MustRepair: 0, Arrange: 1, Shown: 2, Harmless: 3}

// Finding is something unusual in a database.
type Finding struct {
	ID      string  `json:"id"`
	Verdict Verdict `json:"verdict"`
	Count   int64   `json:"count"`
	// Meaning says what it is, Fix the command or statement that repairs it, "" if there
	// is nothing to do.
	Meaning string `json:"meaning"`
	Fix     string `json:"fix,omitempty"`
	// Examples are some of the rows.
	Examples []string `json:"examples,omitempty"`
}

const maxExamples = 5

// add adds findings, and keeps the worst first.
func (a *Adoption) add(more ...Finding) {
	a.Findings = append(a.Findings, more...)
	slices.SortStableFunc(a.Findings,
		func(x, y Finding) int { return cmp.Compare(gravity[x.Verdict], gravity[y.Verdict]) })
}

// finder collects findings.
type finder struct {
	found []*Finding
	byID  map[string]*Finding
}

// countRow counts a row for a finding.
func (f *finder) countRow(kind Finding, example string, args ...any) {
	known := f.byID[kind.ID]
	if known == nil {
		known = &kind
		f.byID[kind.ID] = known
		f.found = append(f.found, known)
	}
	if known.Count++; len(known.Examples) < maxExamples {
		known.Examples = append(known.Examples, fmt.Sprintf(example, args...))
	}
}

// rowNames are the names of rows by their numbers.
func rowNames(rows []ledger.NamedRow) map[int64]string {
	out := make(map[int64]string, len(rows))
	for _, r := range rows {
		out[r.ID] = r.Name
	}
	return out
}

func orphanFinding(id, table, what, where string) Finding {
	return Finding{ID: id, Verdict: MustRepair, Meaning: what, Fix: "DELETE FROM " + table + " WHERE " + where}
}

func notIn(column, table string) string { return column + " NOT IN (SELECT id FROM " + table + ")" }

// What can be wrong with rows. OpenStack Placement's tables have few foreign keys.
var (
	orphanedInventory = orphanFinding("orphaned-inventory",
		"inventories", "inventories of a resource provider or of a resource class that does not exist",
		notIn("resource_provider_id", "resource_providers")+" OR "+notIn("resource_class_id", "resource_classes"))
	orphanedAllocation = orphanFinding("orphaned-allocation",
		"allocations", "allocations of a resource provider or of a resource class that does not exist",
		notIn("resource_provider_id", "resource_providers")+" OR "+notIn("resource_class_id", "resource_classes"))
	orphanedTrait = orphanFinding("orphaned-trait", "resource_provider_traits",
		"traits of a resource provider that does not exist, or traits that do not exist",
		notIn("resource_provider_id", "resource_providers")+" OR "+notIn("trait_id", "traits"))
	orphanedAggregate = orphanFinding("orphaned-aggregate", "resource_provider_aggregates",
		"aggregates of a resource provider that does not exist, or aggregates that do not exist",
		notIn("resource_provider_id", "resource_providers")+" OR "+notIn("aggregate_id", "placement_aggregates"))
	unknownOwner = Finding{ID: "unknown-owner", Verdict: MustRepair,
		Meaning: "consumers of a project or a user that does not exist: " +
			"without their records they keep what they hold, and compute-agent placement db online-data-migrations " +
			"makes new records after the adoption",
		Fix: "DELETE FROM consumers WHERE " + notIn("project_id", "projects") + " OR " + notIn("user_id", "users")}
	unknownType = Finding{ID: "unknown-type", Verdict: MustRepair,
		Meaning: "consumers of a consumer type that does not exist",
		Fix:     "UPDATE consumers SET consumer_type_id = NULL WHERE " + notIn("consumer_type_id", "consumer_types")}
	missingParent = Finding{
		ID:      "missing-parent",
		Verdict: MustRepair,
		Meaning: "resource providers whose parent does not exist: each becomes the root of its tree",
		Fix: "UPDATE resource_providers SET parent_provider_id = NULL, root_provider_id = id WHERE " +
			"parent_provider_id NOT IN (SELECT id FROM (SELECT id FROM resource_providers) AS p)",
	}
	parentLoop = Finding{ID: "parent-loop", Verdict: MustRepair,
		Meaning: "resource providers that are their own ancestors",
		Fix:     "UPDATE resource_providers SET parent_provider_id = NULL WHERE uuid = … for one of each loop"}
	noRoot = Finding{ID: "no-root", Verdict: Harmless,
		Meaning: "resource providers without a root, from a Placement before Rocky: the root is found by the parents",
		Fix: "placement-manage db online_data_migrations of OpenStack Placement 1.0 to 10.0, before or " +
			"after; not needed"}
	otherRoot = Finding{ID: "other-root", Verdict: Shown,
		Meaning: "resource providers whose root is not that of their parents: it is shown by the parents",
		Fix:     "UPDATE resource_providers SET root_provider_id = … WHERE uuid = … for each; not needed"}
	noRecord = Finding{ID: "missing-consumers",
		Verdict: Harmless,
		Meaning: "consumers that hold allocations and have no record: what they hold counts, but they are not listed",
		Fix:     "compute-agent placement db online-data-migrations, after the adoption"}
	noAllocations = Finding{ID: "empty-consumers",
		Verdict: Harmless, Meaning: "consumers without allocations: they are not shown",
		Fix: "DELETE FROM consumers WHERE uuid NOT IN (SELECT consumer_id FROM allocations); not needed"}
	overcommit = Finding{ID: "overcommit", Verdict: Shown,
		Meaning: "more is used than the capacity: nothing more is given out there, and what is held stays",
		Fix:     "migrate servers away, or raise the total or the allocation ratio of the inventory; not needed"}
	noInventory = Finding{
		ID:      "no-inventory",
		Verdict: Shown,
		Meaning: "resources are held of a class that the resource provider has no inventory of: they cannot be " +
			"moved, and not claimed again",
		Fix: "let the agent of the host report the inventory, or delete the allocations if the server is gone " +
			"(openstack resource provider allocation delete CONSUMER); not needed",
	}
	badStep = Finding{ID: "step-size-0", Verdict: Shown,
		Meaning: "inventories with step_size 0: nothing is given out of them (OpenStack's Placement fails with 500)",
		Fix:     "UPDATE inventories SET step_size = 1 WHERE step_size < 1"}
	badUnits = Finding{ID: "units", Verdict: Shown,
		Meaning: "inventories out of which nothing can be given: max_unit is less than min_unit, or one of them " +
			"less than 1",
		Fix: "PUT the inventory of the resource provider again, or leave it to its agent"}
	badAmounts = Finding{ID: "amounts", Verdict: Shown,
		Meaning: "inventories without capacity: reserved is not less than total, or the ratio is not more than 0",
		Fix:     "nothing, if it is meant (a host that is kept empty); else let the agent of the host report it again"}
	twice = Finding{ID: "allocated-twice", Verdict: Shown,
		Meaning: "consumers with two allocations of one class at one resource provider: both count",
		Fix: "PUT the allocations of the consumer again (openstack resource provider allocation set CONSUMER " +
			"…); not needed"}
	nameCase = Finding{
		ID:      "names-by-case",
		Verdict: Harmless,
		Meaning: "names of resource providers that differ only in case: they cannot be moved to a database that " +
			"does not tell these apart",
		Fix: "rename one of them (openstack resource provider set UUID --name NAME); not needed",
	}
	standard = Finding{ID: "unknown-class", Verdict: Shown,
		Meaning: "resource classes that are neither custom nor known to this program: a newer os-resource-classes",
		Fix:     "a version of this program that knows them; not needed: they are served like the others"}
)

// findings returns a finding for everything that is unusual about the rows of a database.
func findings(s *ledger.State) (out []Finding) {
	f := &finder{byID: map[string]*Finding{}}
	classes := rowNames(s.Classes)
	providers := make(map[int64]*ledger.ProviderRow, len(s.Providers))
	for i := range s.Providers {
		providers[s.Providers[i].ID] = &s.Providers[i]
	}
	f.names(s)
	f.trees(s, providers)
	f.links(s, providers)
	capacity := f.inventories(s, providers, classes)
	f.consumers(s)
	f.allocations(s, providers, classes, capacity)
	for _, one := range f.found {
		out = append(out, *one)
	}
	return out
}

func (f *finder) names(s *ledger.State) {
	for _, c := range s.Classes {
		if !strings.HasPrefix(c.Name, "CUSTOM_") && c.ID >= ledger.MinCustomClassID {
			f.countRow(standard, "%s", c.Name)
		}
	}
	folded := make(map[string]string, len(s.Providers))
	for _, p := range s.Providers {
		key := strings.ToLower(p.Name)
		if other, ok := folded[key]; ok && p.Name != "" {
			f.countRow(nameCase, "%s and %s", other, p.Name)
		}
		folded[key] = p.Name
	}
}

func (f *finder) trees(s *ledger.State, providers map[int64]*ledger.ProviderRow) {
	for i := range s.Providers {
		p := &s.Providers[i]
		top, steps := p, 0
		for top.Parent != 0 && steps <= len(s.Providers) {
			parent := providers[top.Parent]
			if parent == nil {
				break
			}
			top, steps = parent, steps+1
		}
		switch {
		case p.Parent != 0 && providers[p.Parent] == nil:
			f.countRow(missingParent, "%s (%s)", p.UUID, p.Name)
		case steps > len(s.Providers):
			f.countRow(parentLoop, "%s (%s)", p.UUID, p.Name)
		case p.Root == 0:
			f.countRow(noRoot, "%s (%s)", p.UUID, p.Name)
		case p.Root != top.ID:
			f.countRow(otherRoot, "%s (%s)", p.UUID, p.Name)
		}
	}
}

func (f *finder) links(s *ledger.State, providers map[int64]*ledger.ProviderRow) {
	traits, aggregates := rowNames(s.Traits), rowNames(s.Aggregates)
	check := func(kind Finding, links []ledger.LinkRow, targets map[int64]string) {
		for _, l := range links {
			if _, ok := targets[l.Target]; !ok || providers[l.Provider] == nil {
				f.countRow(kind, "%s: %s", providerAt(providers, l.Provider), nameAt(targets, l.Target))
			}
		}
	}
	check(orphanedTrait, s.ProviderTraits, traits)
	check(orphanedAggregate, s.ProviderAggregates, aggregates)
}

// providerAt is a resource provider for people.
func providerAt(providers map[int64]*ledger.ProviderRow, id int64) string {
	if p := providers[id]; p != nil {
		return fmt.Sprintf("%s (%s)", p.UUID, p.Name)
	}
	return fmt.Sprintf("resource provider number %d, which does not exist", id)
}

// nameAt returns the name with an id, or a text that says that there is none.
func nameAt(names map[int64]string, id int64) string {
	if name, ok := names[id]; ok {
		return name
	}
	return fmt.Sprintf("number %d, which does not exist", id)
}

// providerClass is one class of one resource provider.
type providerClass struct{ provider, class int64 }

func (f *finder) inventories(
	s *ledger.State, providers map[int64]*ledger.ProviderRow, classes map[int64]string,
) map[providerClass]int64 {
	capacity := make(map[providerClass]int64, len(s.Inventories))
	for _, i := range s.Inventories {
		p, class := providers[i.Provider], classes[i.Class]
		if p == nil || class == "" {
			f.countRow(orphanedInventory, "%s: %s", providerAt(providers, i.Provider), nameAt(classes, i.Class))
			continue
		}
		of := ledger.Inventory{Total: i.Total, Reserved: i.Reserved, AllocationRatio: i.AllocationRatio}
		capacity[providerClass{i.Provider, i.Class}] = of.Limits().Capacity
		switch {
		case i.StepSize < 1:
			f.countRow(badStep, "%s of %s (%s): step_size %d", class, p.UUID, p.Name, i.StepSize)
		case i.MinUnit < 1 || i.MaxUnit < i.MinUnit:
			f.countRow(badUnits, "%s of %s (%s): min_unit %d, max_unit %d", class, p.UUID, p.Name, i.MinUnit, i.MaxUnit)
		case i.Total <= i.Reserved || i.Reserved < 0 || i.AllocationRatio <= 0:
			f.countRow(badAmounts, "%s of %s (%s): total %d, reserved %d, ratio %g", class, p.UUID, p.Name, i.Total,
				i.Reserved, i.AllocationRatio)
		}
	}
	return capacity
}

func (f *finder) consumers(s *ledger.State) {
	projects, users, types := rowNames(s.Projects), rowNames(s.Users), rowNames(s.ConsumerTypes)
	holding := make(map[string]bool, len(s.Consumers))
	for _, a := range s.Allocations {
		holding[a.Consumer] = true
	}
	for _, c := range s.Consumers {
		_, project := projects[c.Project]
		_, user := users[c.User]
		_, typ := types[c.Type]
		if !project || !user {
			f.countRow(unknownOwner, "%s: project %s, user %s", c.UUID, nameAt(projects, c.Project),
				nameAt(users, c.User))
		}
		if c.Type != 0 && !typ {
			f.countRow(unknownType, "%s: consumer type %s", c.UUID, nameAt(types, c.Type))
		}
		if !holding[c.UUID] {
			f.countRow(noAllocations, "%s", c.UUID)
		}
		delete(holding, c.UUID)
	}
	missing := make([]string, 0, len(holding))
	for uuid := range holding {
		missing = append(missing, uuid)
	}
	slices.Sort(missing)
	for _, uuid := range missing {
		f.countRow(noRecord, "%s", uuid)
	}
}

func (f *finder) allocations(
	s *ledger.State, providers map[int64]*ledger.ProviderRow, classes map[int64]string,
	capacity map[providerClass]int64,
) {
	type consumerClass struct {
		consumer string
		providerClass
	}
	used := make(map[providerClass]int64, len(capacity))
	seen := make(map[consumerClass]bool, len(s.Allocations))
	for _, a := range s.Allocations {
		if providers[a.Provider] == nil || classes[a.Class] == "" {
			f.countRow(orphanedAllocation, "consumer %s: %s: %d of %s", a.Consumer, providerAt(providers, a.Provider),
				a.Used, nameAt(classes, a.Class))
			continue
		}
		key := consumerClass{a.Consumer, providerClass{a.Provider, a.Class}}
		if seen[key] {
			f.countRow(twice, "%s of %s for %s", classes[a.Class], providers[a.Provider].UUID, a.Consumer)
		}
		seen[key] = true
		used[key.providerClass] += a.Used
	}
	places := make([]providerClass, 0, len(used))
	for where := range used {
		places = append(places, where)
	}
	slices.SortFunc(places,
		func(x, y providerClass) int {
			return cmp.Or(cmp.Compare(x.provider, y.provider), cmp.Compare(x.class, y.class))
		})
	for _, where := range places {
		most, ok := capacity[where]
		name := fmt.Sprintf("%s of %s (%s)", classes[where.class], providers[where.provider].UUID,
			providers[where.provider].Name)
		switch {
		case !ok:
			f.countRow(noInventory, "%s: %d used", name, used[where])
		case used[where] > most:
			f.countRow(overcommit, "%s: %d used of %d", name, used[where], most)
		}
	}
}
