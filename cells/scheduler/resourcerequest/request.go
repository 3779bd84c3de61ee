// SPDX-License-Identifier: Apache-2.0

package resourcerequest

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// DefaultLimit is how many candidates are asked for, as Nova's [scheduler] max_placement_results.
const DefaultLimit = 1000

// The resource classes that a flavor has amounts of: processors by number, memory in MiB, disk in
// GiB.
const (
	ClassVCPU   = "VCPU"
	ClassPCPU   = "PCPU"
	ClassMemory = "MEMORY_MB"
	ClassDisk   = "DISK_GB"
)

// Request is what a server needs, as GET /allocation_candidates takes it: see [Request.Query].
type Request struct {
	groups       map[string]*requestGroup // by suffix; "" is the group without one
	policy       string                   // group_policy; "": the flavor has none
	flavorGroups int                      // how many suffixed groups the flavor has
	subtrees     map[string][]string      // same_subtree: suffixes, by the name of the set
	root         map[string]bool          // traits of the root; true: required, false: forbidden
	cpus         cpuKinds
	plan         *numaPlan // how hosts with NUMA cells are asked; nil: as all others
	onCells      nestedForm

	// OneOf are aggregates of which the root has to be in one of each list, NoneOf those that it
	// must not be in.
	OneOf  [][]string
	NoneOf []string
	// RootMemberOf asks with root_member_of, an extension, and not with member_of. The client sets
	// it where Placement grants that.
	RootMemberOf bool

	// InTree is the root or any provider of the only tree that counts; "": all do.
	InTree string
	// Limit bounds the candidates; 0 is DefaultLimit.
	Limit int
}

// requestGroup is one request group.
type requestGroup struct {
	resources map[string]int64
	traits    map[string]bool // true: required, false: forbidden
}

// InvalidError is a request or flavor that cannot be scheduled. Its text is for the API client,
// HTTP status 400.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

func invalidf(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

// extraSpec is the form of an extra spec that is about resources or traits:
// nova.scheduler.utils.ResourceRequest.XS_KEYPAT.
var extraSpec = regexp.MustCompile(`^(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$`)

// New makes the request of a flavor, as nova.scheduler.utils.ResourceRequest does: VCPU, MEMORY_MB
// and DISK_GB (root, ephemeral and swap, rounded up) unless an extra spec says otherwise, 0 takes a
// class away; resources[N]:, trait[N]: and group_policy; PCI devices by their aliases; and what the
// extra specs of CPU policies stand for. Disabled nodes are left out.
//
// This is what hosts without NUMA cells are asked for. See [Request.Stages] for the others.
//
// Several groups without a group_policy are a request all the same: whether it is served is up to
// the Placement that is asked, see [Request.LacksPolicy].
//
// The error is an *[InvalidError]. Nova is laxer with some extra specs, which it warns about and
// leaves out. Here nothing that was asked for is dropped: what package extraspecs refuses is
// refused. What images ask for is not known here.
func New(f cellwire.Flavor, aliases extraspecs.Aliases) (Request, error) {
	var err error
	if f.ExtraSpecs, err = aliases.Expand(f.ExtraSpecs); err != nil {
		return Request{}, invalidf("%s", err)
	}
	r := Request{groups: map[string]*requestGroup{}, subtrees: map[string][]string{},
		root: map[string]bool{providertree.TraitStatusDisabled: false}}
	if err := r.addHardware(f); err != nil {
		return Request{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(f.ExtraSpecs)) {
		if err := r.addExtraSpec(key, f.ExtraSpecs[key]); err != nil {
			return Request{}, err
		}
	}
	if err := r.addCPUs(f); err != nil {
		return Request{}, err
	}
	named := r.total() // with the zeros
	if _, v := named[ClassVCPU]; !v {
		if _, p := named[ClassPCPU]; !p {
			r.group("").resources[ClassVCPU] = f.VCPUs
		}
	}
	if _, set := named[ClassMemory]; !set {
		r.group("").resources[ClassMemory] = f.MemoryMB
	}
	if _, set := named[ClassDisk]; !set {
		r.group("").resources[ClassDisk] = f.RootGB + f.EphemeralGB + (f.SwapMB+1023)/1024
	}
	if err := r.finish(); err != nil {
		return r, err
	}
	return r, r.addPlan(f)
}

// finish takes out zeros and what is empty then, and checks what is left.
func (r *Request) finish() error {
	asked := false
	for suffix, g := range r.groups {
		maps.DeleteFunc(g.resources, func(_ string, amount int64) bool { return amount == 0 })
		switch {
		case len(g.resources) == 0 && len(g.traits) == 0:
			delete(r.groups, suffix)
		case suffix != "" && len(g.resources) == 0 && r.inSubtree(suffix): // a place that others are below
		case suffix != "" && len(g.resources) == 0:
			return invalidf(
				"Validation failed; the extra specs 'trait%s:' have no 'resources%[1]s:' that they could be about.",
				suffix)
		default:
			asked = asked || len(g.resources) > 0
		}
	}
	if g := r.groups[""]; g != nil && len(g.resources) == 0 {
		return invalidf(
			"Validation failed; the extra specs 'trait:' have no resources that they could be about; use a group, " +
				"as in 'trait1:'.")
	}
	if !asked {
		return invalidf("The flavor asks for no resources.")
	}
	r.flavorGroups = r.suffixed()
	return nil
}

// inSubtree reports whether a set of same_subtree names a group.
func (r *Request) inSubtree(suffix string) bool {
	for _, suffixes := range r.subtrees {
		if slices.Contains(suffixes, suffix) {
			return true
		}
	}
	return false
}

// suffixed is how many groups have a suffix.
func (r *Request) suffixed() int {
	n := len(r.groups)
	if r.groups[""] != nil {
		n--
	}
	return n
}

// LacksPolicy reports whether the flavor has several groups and does not say how they may share
// providers. OpenStack's Placement refuses it.
func (r *Request) LacksPolicy() bool { return r.policy == "" && r.flavorGroups > 1 }

// Extensions are the extensions of Placement that the request asks for, in this order. Without
// wire.ExtRootMemberOf it can be asked in another way; the others it needs.
func (r *Request) Extensions() []string {
	var names []string
	if r.LacksPolicy() {
		names = append(names, wire.ExtGroupPolicy)
	}
	if r.RootMemberOf {
		names = append(names, wire.ExtRootMemberOf)
	}
	if r.forbidsOnly() { // without the extension it finds nothing, by Placement's rules
		names = append(names, wire.ExtResourceless)
	}
	return names
}

// forbidsOnly reports whether a group without resources has traits to avoid and no others: a place
// without them, which Placement does not look for.
func (r *Request) forbidsOnly() bool {
	for suffix, g := range r.groups {
		if suffix != "" && len(g.resources) == 0 && !slices.Contains(slices.Collect(maps.Values(g.traits)), true) {
			return true
		}
	}
	return false
}

// PolicyRequired is the refusal of a request that lacks a group_policy, an *[InvalidError].
func (r *Request) PolicyRequired() error {
	return invalidf("The flavor has %d groups of 'resources' extra specs, and needs the extra spec 'group_policy' "+
		"then: isolate or none.", r.flavorGroups)
}

func (r *Request) group(suffix string) *requestGroup {
	g := r.groups[suffix]
	if g == nil {
		g = &requestGroup{resources: map[string]int64{}, traits: map[string]bool{}}
		r.groups[suffix] = g
	}
	return g
}

// total sums the resources of all groups.
func (r *Request) total() map[string]int64 {
	sum := map[string]int64{}
	for _, g := range r.groups {
		for class, amount := range g.resources {
			sum[class] += amount
		}
	}
	return sum
}

func (r *Request) addExtraSpec(key, value string) error {
	if key == "group_policy" {
		if value != "none" && value != "isolate" {
			return invalidf("Validation failed; '%.64s' is not one of: isolate, none.", value)
		}
		r.policy = value
		return nil
	}
	if name, is := strings.CutPrefix(key, "same_subtree:"); is {
		return r.addSubtree(name, value)
	}
	match := extraSpec.FindStringSubmatch(key)
	if match == nil {
		if strings.HasPrefix(key, "resources:") || strings.HasPrefix(key, "trait:") {
			return unknownSpec(key)
		}
		return nil
	}
	kind, suffix, name := match[1], match[2], match[3]
	if !providertree.IsSymbol(name) {
		return unknownSpec(key)
	}
	if kind == "trait" {
		if value != "required" && value != "forbidden" {
			return invalidf("Validation failed; '%.64s' is not one of: required, forbidden.", value)
		}
		r.group(suffix).traits[name] = value == "required"
		return nil
	}
	amount, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	switch {
	case err != nil:
		return invalidf("Validation failed; '%.64s' is not a valid integer value.", value)
	case amount < 0:
		return invalidf("Validation failed; '%d' is less than the min value of '0'.", amount)
	case amount > providertree.MaxUnit:
		return invalidf("Validation failed; '%d' is greater than the max value of '%d'.", amount, providertree.MaxUnit)
	}
	r.group(suffix).resources[name] = amount
	return nil
}

func unknownSpec(key string) error {
	return invalidf("Validation failed; extra spec '%.300s' does not appear to be a valid extra spec.", key)
}

// MaxCandidates is how many candidates the request asks for: Limit, or its default.
func (r *Request) MaxCandidates() int {
	if r.Limit <= 0 {
		return DefaultLimit
	}
	return r.Limit
}

// Query is the request in the form of GET /allocation_candidates.
func (r Request) Query() url.Values {
	q := url.Values{"limit": {strconv.Itoa(r.MaxCandidates())}, "root_required": {traitList(r.root)}}
	if r.policy != "" {
		q.Set("group_policy", r.policy)
	}
	for _, name := range slices.Sorted(maps.Keys(r.subtrees)) {
		q.Add("same_subtree", strings.Join(r.subtrees[name], ","))
	}
	r.addAggregates(q)
	for suffix, g := range r.groups {
		if r.InTree != "" && r.marksTree(suffix) {
			q.Set("in_tree"+suffix, r.InTree)
		}
		var resources []string
		for _, class := range slices.Sorted(maps.Keys(g.resources)) {
			resources = append(resources, class+":"+strconv.FormatInt(g.resources[class], 10))
		}
		if len(resources) > 0 {
			q.Set("resources"+suffix, strings.Join(resources, ","))
		}
		if len(g.traits) > 0 {
			q.Set("required"+suffix, traitList(g.traits))
		}
	}
	return q
}

// maxQueryLength is how long a query is at most that an administrator is given to paste, in bytes.
const maxQueryLength = 2000

// Explain is how an administrator finds out what each host lacks for the request; "" if its query
// is too long to paste.
func (r Request) Explain() string {
	r.RootMemberOf = r.Confined()
	query := r.Query()
	query.Del("limit")
	text := strings.NewReplacer("%3A", ":", "%2C", ",", "%21", "!").Replace(query.Encode())
	if len(text) > maxQueryLength {
		return ""
	}
	kind := "hosts"
	switch {
	case r.onCells.cells > 0:
		kind = "hosts with NUMA cells"
	case r.plan != nil && !r.plan.onlyWithoutCells:
		kind = "hosts without NUMA cells"
	}
	return fmt.Sprintf("What %s lack, the bundled Placement says: compute-agent placement explain '%s'.", kind, text)
}

// Confined reports whether aggregates say where the server may be.
func (r *Request) Confined() bool { return len(r.OneOf)+len(r.NoneOf) > 0 }

// addAggregates adds the aggregates to the query: as member_of of the unsuffixed group, as in Nova,
// or as root_member_of. The providers that serve other groups are in no aggregates. Beyond
// maxAggregates, lists are left out; the scheduler checks all of them on the hosts.
func (r *Request) addAggregates(q url.Values) {
	name := "member_of"
	switch {
	case r.RootMemberOf:
		name = "root_member_of"
	case r.groups[""] == nil:
		return
	}
	listed := 0
	add := func(operator string, list []string) {
		if len(list) > 0 && listed+len(list) <= maxAggregates {
			q.Add(name, operator+strings.Join(list, ","))
			listed += len(list)
		}
	}
	for _, list := range r.OneOf {
		add("in:", list)
	}
	add("!in:", r.NoneOf)
}

// maxAggregates bounds the aggregates in a query, which has no bound in itself: servers and
// proxies refuse one of more than some KiB.
const maxAggregates = 80

// RequiredTraits are the traits that the request requires of any group, or of the root.
func (r *Request) RequiredTraits() map[string]bool {
	traits := map[string]bool{}
	add := func(from map[string]bool) {
		for trait, required := range from {
			if required {
				traits[trait] = true
			}
		}
	}
	add(r.root)
	for _, g := range r.groups {
		add(g.traits)
	}
	return traits
}

// marksTree reports whether a group says in which tree a candidate is. As Nova, it is the group
// without a suffix, where there is one: the others may use what is shared with the tree. Where
// cells are asked for it is those.
func (r *Request) marksTree(suffix string) bool {
	switch {
	case r.onCells.cells > 0:
		return isCellGroup(suffix)
	case r.groups[""] != nil:
		return suffix == ""
	}
	return len(r.groups[suffix].resources) > 0
}

// traitList is the value of required: required ones, and then forbidden ones.
func traitList(traits map[string]bool) string {
	var required, forbidden []string
	for _, trait := range slices.Sorted(maps.Keys(traits)) {
		if traits[trait] {
			required = append(required, trait)
		} else {
			forbidden = append(forbidden, "!"+trait)
		}
	}
	return strings.Join(append(required, forbidden...), ",")
}

// addHardware refuses what no server can have, and requires the traits of what a flavor asks for
// beside resources: secure boot, TPMs and the like. They are facts about a host, so its root has
// them, whichever providers the resources are from. (Nova requires them in the group without a
// suffix, which is the same where the root has processors and memory.) Encrypted memory is a
// resource as well.
func (r *Request) addHardware(f cellwire.Flavor) error {
	hardware, err := extraspecs.Request{Flavor: f.Name, VCPUs: f.VCPUs, ExtraSpecs: f.ExtraSpecs}.Hardware()
	if err != nil {
		return invalidf("%s", err)
	}
	for _, trait := range hardware.Traits() {
		r.root[trait] = true
	}
	if hardware.Encryption != "" {
		// The providers of contexts have the trait of their kind: there may be several.
		r.group("").resources[classEncryption] = 1
		r.group("").traits[encryptionTraits[hardware.Encryption]] = true
	}
	return nil
}

const classEncryption = "MEM_ENCRYPTION_CONTEXT"

// encryptionTraits has the trait that a kind of memory encryption requires.
var encryptionTraits = map[string]string{
	extraspecs.AMDSEV: "HW_CPU_X86_AMD_SEV", extraspecs.AMDSEVES: "HW_CPU_X86_AMD_SEV_ES",
	extraspecs.AMDSEVSNP: "HW_CPU_X86_AMD_SEV_SNP",
}
