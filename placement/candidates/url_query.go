// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// URLQuery is the query of GET /allocation_candidates.
type URLQuery struct {
	Request
	Limit int64 // 0: none
}

// groupParameters are the parameters of each request group. In a query, the name
// is followed by the suffix of the group.
var groupParameters = [...]struct {
	wire.Parameter
	values func(*groupValues) *[]string
}{
	{wire.Parameter{Name: "resources", Grouped: true, Origin: wire.Origin{Since: wire.AllocationCandidates},
		Text: "CLASS:AMOUNT,…: what the group needs."},
		func(g *groupValues) *[]string { return &g.resources }},
	{wire.Parameter{Name: "required", Grouped: true, Origin: wire.Origin{Since: wire.CandidatesRequired},
		Repeated: wire.AnyTraits, Text: wire.TextRequired},
		func(g *groupValues) *[]string { return &g.required }},
	{wire.Parameter{Name: "member_of", Grouped: true, Origin: wire.Origin{Since: wire.CandidatesMemberOf},
		Repeated: wire.RepeatedMemberOf, Text: wire.TextMemberOf},
		func(g *groupValues) *[]string { return &g.memberOf }},
	{wire.Parameter{Name: "in_tree", Grouped: true, Origin: wire.Origin{Since: wire.CandidatesInTree},
		Text: "Those in the tree that has this resource provider."},
		func(g *groupValues) *[]string { return &g.inTree }},
}

// wideParameters are the parameters of the whole request.
var wideParameters = [...]struct {
	wire.Parameter
	values func(*queryValues) *[]string
}{
	{wire.Parameter{Name: "limit", Origin: wire.Origin{Since: wire.CandidatesLimit},
		Text: "At most this many candidates."},
		func(c *queryValues) *[]string { return &c.limit }},
	{wire.Parameter{Name: "group_policy", Origin: wire.Origin{Since: wire.GranularGroups},
		Text: "Whether groups with suffixes are served by different resource providers. Required if there are " +
			"several, unless the extension group_policy is granted."},
		func(c *queryValues) *[]string { return &c.groupPolicy }},
	{wire.Parameter{Name: "root_required", Origin: wire.Origin{Since: wire.RootRequired},
		Text: "TRAIT,!TRAIT,…: traits that the root of the tree has, or not."},
		func(c *queryValues) *[]string { return &c.rootRequired }},
	{wire.Parameter{Name: "same_subtree", Origin: wire.Origin{Since: wire.SameSubtree}, Repeated: wire.SameSubtree,
		Text: "_SUFFIX,_SUFFIX,…: one of the resource providers that serve these groups is the ancestor of the " +
			"others, or the same."},
		func(c *queryValues) *[]string { return &c.sameSubtree }},
	{wire.Parameter{Name: "root_member_of", Origin: wire.Origin{Extension: wire.ExtRootMemberOf},
		Repeated: wire.RepeatedMemberOf, Text: "As member_of, of the root of the tree."},
		func(c *queryValues) *[]string { return &c.rootMemberOf }},
	{wire.Parameter{Name: "isolate", Origin: wire.Origin{Extension: wire.ExtIsolate}, Repeated: wire.GranularGroups,
		Text: "_SUFFIX,_SUFFIX,…: groups whose resource providers serve no other group."},
		func(c *queryValues) *[]string { return &c.isolate }},
}

// URLParameters are the parameters of GET /allocation_candidates.
func URLParameters() (all []wire.Parameter) {
	for i := range groupParameters {
		all = append(all, groupParameters[i].Parameter)
	}
	for i := range wideParameters {
		all = append(all, wideParameters[i].Parameter)
	}
	return all
}

// queryValues are the unparsed values of a query, by parameter.
type queryValues struct {
	limit, groupPolicy, rootRequired, sameSubtree, rootMemberOf, isolate []string

	groups []groupValues  // in the order in which their suffixes appear
	at     map[string]int // the place of a group by its suffix
}

type groupValues struct {
	suffix                                string
	resources, required, memberOf, inTree []string
}

// ReadURLQuery reads a query string at a microversion and with extensions. The order of the
// checks is Placement's, so that a query with two errors gets the same error code. The error is a
// *wire.QueryError.
//
// Cost: linear in the length of the query.
func ReadURLQuery(raw string, v wire.Version, ext wire.ExtensionSet) (cq URLQuery, err error) {
	values, err := sortQuery(raw, v, ext)
	if err != nil {
		return cq, err
	}
	if err := cq.readWide(values, v); err != nil {
		return cq, err
	}
	cq.Groups = make([]Group, len(values.groups))
	for i := range values.groups {
		if err := readGroup(&values.groups[i], v, &cq.Groups[i]); err != nil {
			return cq, err
		}
	}
	if err := cq.check(values, v, ext); err != nil {
		return cq, err
	}
	cq.Flat, cq.Resourceless = !v.Has(wire.NestedCandidates), ext.Has(wire.ExtResourceless)
	return cq, nil
}

// sortQuery groups the parameters, and runs the checks of single values.
func sortQuery(raw string, v wire.Version, ext wire.ExtensionSet) (*queryValues, error) {
	q, err := wire.ReadQuery(raw)
	if err != nil {
		return nil, err
	}
	c := &queryValues{at: map[string]int{}}
	for i := range q {
		values := c.valuesOf(q[i].Key, v, ext)
		if values == nil {
			return nil, wire.UnknownParameter(q[i].Key, wideOrigin(q[i].Key), v)
		}
		*values = append(*values, q[i].Value)
	}
	if !v.Has(wire.GranularGroups) && (len(c.groups) == 0 || c.groups[0].resources == nil) {
		return nil, wire.BadQuery("Invalid query string parameters: 'resources' is a required property.")
	}
	// Of several values, Placement checks the form of the last and uses the first.
	for i, limit := range c.limit {
		if (i == 0 || i == len(c.limit)-1) && !isPositive(limit) {
			return nil, wire.BadQuery(
				"Invalid query string parameters: limit must be a whole number of at least 1. Got: %s.",
				jsonkit.Shortened(limit))
		}
	}
	if n := len(c.groupPolicy); n > 0 && c.groupPolicy[n-1] != "none" && c.groupPolicy[n-1] != "isolate" {
		return nil, wire.BadQuery("Invalid query string parameters: group_policy must be none or isolate. Got: %s.",
			jsonkit.Shortened(c.groupPolicy[n-1]))
	}
	return c, nil
}

// valuesOf returns the list for the values of a parameter; nil for an unknown parameter.
func (q *queryValues) valuesOf(key string, v wire.Version, ext wire.ExtensionSet) *[]string {
	for i := range wideParameters {
		p := &wideParameters[i]
		if p.Name != key {
			continue
		}
		if !p.ExistsAt(v, func() wire.ExtensionSet { return ext }) {
			return nil
		}
		return p.values(q)
	}
	for i := range groupParameters {
		p := &groupParameters[i]
		suffix, ok := strings.CutPrefix(key, p.Name)
		if !ok || !v.Has(p.Since) || suffix != "" && !isSuffix(suffix, v) {
			continue
		}
		at, ok := q.at[suffix]
		if !ok {
			at = len(q.groups)
			q.at[suffix] = at
			q.groups = append(q.groups, groupValues{suffix: suffix})
		}
		return p.values(&q.groups[at])
	}
	return nil
}

// wideOrigin is what introduced a parameter of the whole request; nothing for an unknown one.
func wideOrigin(key string) wire.Origin {
	for i := range wideParameters {
		if wideParameters[i].Name == key {
			return wideParameters[i].Origin
		}
	}
	return wire.Origin{}
}

// isSuffix reports whether s can be the suffix of a granular group: a number from 1.25, almost any
// short text from 1.33.
func isSuffix(s string, v wire.Version) bool {
	if !v.Has(wire.NamedSuffixes) {
		return v.Has(wire.GranularGroups) && isPositive(s)
	}
	const longest = 64
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}

// isPositive reports whether s is [1-9][0-9]*.
func isPositive(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < '0' || c > '9' {
			return false
		}
	}
	return s != "" && s[0] != '0'
}

// readWide reads the parameters of the whole request.
func (u *URLQuery) readWide(c *queryValues, v wire.Version) (err error) {
	if len(c.limit) > 0 {
		u.Limit, _ = wire.ParseInt(c.limit[0])
	}
	if len(c.groupPolicy) > 0 && c.groupPolicy[0] == "isolate" {
		u.GroupPolicy = Isolate
	}
	if err := u.readRootRequired(c.rootRequired, v); err != nil {
		return err
	}
	for _, value := range c.sameSubtree {
		set, err := readSuffixes("same_subtree", value)
		if err != nil {
			return err
		}
		u.SameSubtree = append(u.SameSubtree, set)
	}
	if len(c.rootMemberOf) > 0 {
		u.Root.MemberOf, u.Root.NotMemberOf, err = wire.ReadMemberOf(c.rootMemberOf, "root_member_of", v)
		if err != nil {
			return err
		}
		u.Root.MemberOf, u.Root.NotMemberOf = wire.UniqueSets(u.Root.MemberOf), wire.Unique(u.Root.NotMemberOf)
	}
	for _, value := range c.isolate {
		set, err := readSuffixes("isolate", value)
		if err != nil {
			return err
		}
		u.Isolate = append(u.Isolate, set...)
	}
	u.SameSubtree, u.Isolate = wire.UniqueSets(u.SameSubtree), wire.Unique(u.Isolate)
	return nil
}

// readRootRequired reads root_required: as required, but once, and without "in:".
func (u *URLQuery) readRootRequired(values []string, v wire.Version) error {
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 {
		f := wire.BadQuery("Query parameter 'root_required' may be specified only once.")
		f.Code = wire.CodeDuplicateQueryKey
		return f
	}
	if strings.HasPrefix(values[0], "in:") {
		return wire.BadQuery(
			"Invalid query string parameters: root_required does not support the format "+
				"'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'. Got: %s.", jsonkit.Shortened(values[0]))
	}
	required, forbidden, err := wire.ReadRequired(values, v)
	if err != nil {
		return err
	}
	if conflicts := conflicting(required, forbidden); len(conflicts) > 0 {
		return badValue("Conflicting required and forbidden traits found in root_required: %s.",
			jsonkit.Shortened(strings.Join(conflicts, ", ")))
	}
	for _, set := range required {
		u.Root.Required = append(u.Root.Required, set...)
	}
	u.Root.Required, u.Root.Forbidden = wire.Unique(u.Root.Required), wire.Unique(forbidden)
	return nil
}

// badValue is the error for a value of the right form.
func badValue(format string, args ...any) *wire.QueryError {
	f := wire.BadQuery(format, args...)
	f.Code = wire.CodeBadQueryValue
	return f
}

// readSuffixes reads "_A,_B" without duplicates.
func readSuffixes(key, value string) ([]string, error) {
	list := strings.Split(value, ",")
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, badValue("Empty string (unsuffixed group) can not be specified in `%s`.", key)
		}
	}
	return wire.Unique(list), nil
}

// readGroup reads the parameters of one group.
func readGroup(values *groupValues, v wire.Version, g *Group) (err error) {
	g.Suffix = values.suffix
	for _, value := range values.resources { // all must be valid; the last one counts
		amounts, err := wire.ReadResources(value)
		if err != nil {
			return err
		}
		g.Resources = make([]Resource, len(amounts))
		for i, a := range amounts {
			g.Resources[i] = Resource{Class: a.Class, Amount: a.Count}
		}
	}
	if required := values.required; len(required) > 0 {
		if !v.Has(wire.AnyTraits) {
			required = required[len(required)-1:]
		}
		if g.Required, g.Forbidden, err = wire.ReadRequired(required, v); err != nil {
			return err
		}
		g.Required, g.Forbidden = wire.UniqueSets(g.Required), wire.Unique(g.Forbidden)
	}
	if len(values.memberOf) > 0 {
		g.MemberOf, g.NotMemberOf, err = wire.ReadMemberOf(values.memberOf, "member_of"+values.suffix, v)
		if err != nil {
			return err
		}
		g.MemberOf, g.NotMemberOf = wire.UniqueSets(g.MemberOf), wire.Unique(g.NotMemberOf)
	}
	for _, value := range values.inTree {
		if g.InTree = strings.TrimSpace(value); !providertree.IsUUID(g.InTree) {
			return wire.BadQuery("Invalid query string parameters: in_tree%s must be a UUID. Got: %s.",
				values.suffix, jsonkit.Shortened(value))
		}
	}
	return nil
}

// check checks the groups together.
func (u *URLQuery) check(c *queryValues, v wire.Version, ext wire.ExtensionSet) error {
	if v.Has(wire.SameSubtree) {
		if err := u.checkResourceless(c, ext); err != nil {
			return err
		}
	} else if err := u.checkOrphans(); err != nil {
		return err
	}
	for i := range u.Groups {
		g := &u.Groups[i]
		if conflicts := conflicting(g.Required, g.Forbidden); len(conflicts) > 0 {
			return wire.BadQuery(
				"Conflicting required and forbidden traits found in the following traits keys: required%s: (%s).",
				g.Suffix, jsonkit.Shortened(strings.Join(conflicts, ", ")))
		}
	}
	return u.checkPolicy(c, ext)
}

// checkOrphans is the rule before 1.36: every group has resources.
func (u *URLQuery) checkOrphans() error {
	if len(u.Groups) == 0 {
		return wire.BadQuery("At least one request group (`resources` or `resources{$S}`) is required.")
	}
	for i := range u.Groups {
		g := &u.Groups[i]
		switch {
		case len(g.Resources) > 0:
		case len(g.Required) > 0:
			return wire.BadQuery(
				"All traits parameters must be associated with resources. Found the following orphaned traits keys: "+
					"required%s.", g.Suffix)
		case len(g.MemberOf)+len(g.NotMemberOf) > 0:
			return wire.BadQuery(
				"All member_of parameters must be associated with resources. Found the following orphaned member_of "+
					"keys: member_of%s.", g.Suffix)
		default:
			return wire.BadQuery("All request groups must specify resources; the group with the suffix %q has none.",
				g.Suffix)
		}
	}
	return nil
}

// checkResourceless are the rules from 1.36 on: a group without resources must be in a
// same_subtree, and same_subtree must name groups. The unsuffixed group, which same_subtree cannot
// name, has resources, unless an extension makes them optional.
func (u *URLQuery) checkResourceless(c *queryValues, ext wire.ExtensionSet) error {
	resources := slices.ContainsFunc(u.Groups, func(g Group) bool { return len(g.Resources) > 0 })
	if !resources {
		f := wire.BadQuery("There must be at least one resources or resources[$S] parameter.")
		f.Code = wire.CodeMissingQueryValue
		return f
	}
	related := map[string]bool{}
	for _, set := range u.SameSubtree {
		for _, suffix := range set {
			related[suffix] = true
		}
	}
	for i := range u.Groups {
		g := &u.Groups[i]
		switch {
		case len(g.Resources) > 0 || related[g.Suffix] || g.Suffix == "" && ext.Has(wire.ExtResourceless):
		case g.Suffix == "":
			return badValue(
				"The group without a suffix has no resources, which is an extension: "+
					"it needs microversion %s or later and the header %s: %[3]s, or "+
					"[placement] extensions = [%[3]q] in the configuration of the server.",
				wire.Version(wire.RequestedExtensions), wire.HeaderExtensions, wire.ExtResourceless)
		default:
			return badValue(
				"Resourceless suffixed group request should be specified in `same_subtree` query param: bad "+
					"group - %q.", g.Suffix)
		}
	}
	for _, set := range u.SameSubtree {
		if err := c.checkSuffixes("same_subtree", set); err != nil {
			return err
		}
	}
	return nil
}

// checkSuffixes returns an error unless groups with the suffixes exist.
func (q *queryValues) checkSuffixes(key string, suffixes []string) error {
	for _, suffix := range suffixes {
		if _, ok := q.at[suffix]; !ok {
			return badValue("Real suffixes should be specified in `%s`: no group has the suffix %q.",
				key, jsonkit.Shortened(suffix))
		}
	}
	return nil
}

// checkPolicy checks that a request with several suffixed groups has a group_policy, unless an
// extension makes it optional.
func (u *URLQuery) checkPolicy(c *queryValues, ext wire.ExtensionSet) error {
	given := len(c.groupPolicy) > 0 && c.groupPolicy[0] != ""
	if len(c.isolate) > 0 {
		if len(c.groupPolicy) > 0 {
			return badValue(
				"`isolate` and `group_policy` can not be specified together: `isolate` says for each group what " +
					"`group_policy` says for all.")
		}
		return c.checkSuffixes("isolate", u.Isolate)
	}
	suffixed := len(u.Groups)
	if _, ok := c.at[""]; ok {
		suffixed--
	}
	if suffixed > 1 && !given && !ext.Has(wire.ExtGroupPolicy) {
		return wire.BadQuery(
			"The \"group_policy\" parameter is required when specifying more than one \"resources{N}\" parameter. " +
				"Add group_policy=none or group_policy=isolate.")
	}
	return nil
}

// conflicting finds the first required set of traits that is entirely forbidden.
func conflicting(required [][]string, forbidden []string) []string {
	if len(forbidden) == 0 {
		return nil
	}
	no := make(map[string]struct{}, len(forbidden))
	for _, trait := range forbidden {
		no[trait] = struct{}{}
	}
	for _, set := range required {
		allowed := func(trait string) bool { _, ok := no[trait]; return !ok }
		if !slices.ContainsFunc(set, allowed) {
			return set
		}
	}
	return nil
}
