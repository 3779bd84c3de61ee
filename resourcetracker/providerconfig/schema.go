// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/providertree"
)

// Nova's rules, by the place of the file that they are about. "Tolerated" properties are ignored.
//
//	/                                required meta; __source_file forbidden; others tolerated
//	/meta                            required schema_version; others tolerated
//	/meta/schema_version             text ^1.([0-9]|[1-9][0-9]+)$; above 1.0 with a warning
//	/providers                       list
//	/providers[]                     required identification; others tolerated
//	/providers[]/identification      exactly one of uuid and name
//	  uuid                           hyphenated, or $COMPUTE_NODE
//	  name                           1 to 200 characters
//	/providers[]/inventories         additional: list of {class: inventory}; others tolerated
//	  class                          ^[A-Z0-9_]{1,255}$ and custom
//	  inventory                      required total; reserved, min_unit, max_unit, step_size,
//	                                 allocation_ratio; no others
//	/providers[]/traits              additional: list of custom ^[A-Z0-9_]{1,255}$;
//	                                 others tolerated

var (
	schemaVersion = regexp.MustCompile(`^([0-9]{1,9})\.(0|[1-9][0-9]{0,8})$`)
)

// file applies the schema to a document.
func (p *parser) file(root *yaml.Node) {
	if !p.mapping(root, "", "the file", "begin it with meta: {schema_version: '1.0'}") {
		return
	}
	var meta, providers *yaml.Node
	for _, q := range p.pairs(root, "") {
		switch q.key.Value {
		case "meta":
			meta = q.value
		case "providers":
			providers = q.value
		case "__source_file":
			p.problemf(q.key, "__source_file", "remove it", "this name is reserved by Nova")
		default:
			p.unknown(q.key, "", "meta", "providers")
		}
	}
	if meta == nil {
		p.problemf(root, "", "begin the file with meta: {schema_version: '1.0'}",
			"meta is missing, which has the version of the schema")
	} else {
		p.meta(meta)
	}
	if providers == nil || !p.list(providers, "providers") {
		return
	}
	for i, item := range p.items(providers) {
		p.provider(item, fmt.Sprintf("providers[%d]", i))
	}
}

func (p *parser) meta(meta *yaml.Node) {
	const write = "write schema_version: '1.0'"
	if !p.mapping(meta, "meta", "meta", write) {
		return
	}
	var version *yaml.Node
	for _, q := range p.pairs(meta, "meta") {
		if q.key.Value == "schema_version" {
			version = q.value
		} else {
			p.unknown(q.key, "meta", "schema_version")
		}
	}
	const path = "meta.schema_version"
	if version == nil {
		p.problemf(meta, path, write, "is missing")
		return
	}
	if !isText(version) {
		p.problemf(version, path, write+", in quotes: as a number, 1.10 would be 1.1",
			"must be a text, not %s", shown(version))
		return
	}
	switch parts := schemaVersion.FindStringSubmatch(version.Value); {
	case parts == nil:
		p.problemf(version, path, write, "%s is not a version", clip(version.Value))
	case parts[1] != "1":
		p.problemf(version, path, write, "unknown major version %s; this agent reads 1", parts[1])
	case parts[2] != "0":
		p.warn(version, path, write+" if the file needs no more",
			fmt.Sprintf("this agent reads version 1.0; what %s added is ignored", clip(version.Value)))
	}
}

// provider reads one entry; one without any items is dropped, as Nova drops it.
func (p *parser) provider(item *yaml.Node, path string) {
	if !p.mapping(item, path, "the entry", "write identification, inventories and traits below it") {
		return
	}
	var identification, inventories, traits *yaml.Node
	for _, q := range p.pairs(item, path) {
		switch q.key.Value {
		case "identification":
			identification = q.value
		case "inventories":
			inventories = q.value
		case "traits":
			traits = q.value
		default:
			p.unknown(q.key, path, "identification", "inventories", "traits")
		}
	}
	e := Entry{Inventories: providertree.Inventories{},
		Traits: []string{}, classAt: map[string]Place{}, traitAt: map[string]Place{}}
	before := len(p.problems)
	if identification == nil {
		p.problemf(item, path, "write identification: {uuid: $COMPUTE_NODE}, or the uuid or name of another provider",
			"identification is missing, which selects the provider")
	} else {
		p.identification(identification, path+".identification", &e)
	}
	additional := p.additional(inventories, path+".inventories")
	for i, one := range additional {
		p.inventories(one, fmt.Sprintf("%s.inventories.additional[%d]", path, i), &e)
	}
	named := p.additional(traits, path+".traits")
	for i, one := range named {
		p.trait(one, fmt.Sprintf("%s.traits.additional[%d]", path, i), &e)
	}
	if len(p.problems) > before || p.stop {
		return
	}
	if len(additional)+len(named) == 0 {
		p.warn(identification, path, "add inventories or traits, or remove the entry",
			fmt.Sprintf("the entry of %s adds nothing and is ignored", clip(e.ID())))
		return
	}
	slices.Sort(e.Traits)
	e.Traits = slices.Compact(e.Traits)
	p.entries, p.ids, p.paths = append(p.entries, e), append(p.ids, identification), append(p.paths, path)
}

func (p *parser) identification(n *yaml.Node, path string, e *Entry) {
	const write = "write uuid: $COMPUTE_NODE, or uuid: or name: of another provider"
	if !p.mapping(n, path, "identification", write) {
		return
	}
	e.Place = p.place(n)
	known := 0
	for _, q := range p.pairs(n, path) {
		switch q.key.Value {
		case "uuid":
			known++
			p.uuid(q.value, path+".uuid", e)
		case "name":
			known++
			p.providerName(q.value, path+".name", e)
		default:
			p.problemf(q.key, path, write, "%s is not a way to identify a provider", clip(q.key.Value))
		}
	}
	switch {
	case known == 2:
		p.problemf(n, path, "keep one of them", "uuid and name are both given")
	case known == 0 && len(n.Content) == 0:
		p.problemf(n, path, write, "is empty")
	}
}

func (p *parser) uuid(n *yaml.Node, path string, e *Entry) {
	const write = "write a uuid such as 4e6a7d0a-0f6b-4f0c-9d5e-2f8f2f1c9a55, or $COMPUTE_NODE"
	if !isText(n) {
		p.problemf(n, path, write+", in quotes", "must be a text, not %s", shown(n))
		return
	}
	if n.Value == ComputeNode {
		e.UUID = ComputeNode
		return
	}
	canonical, err := providertree.CanonicalUUID(n.Value)
	switch {
	case err != nil:
		hint := write
		if textutil.Suggest(strings.ToUpper(n.Value), []string{ComputeNode}, 3) != "" {
			hint = "write $COMPUTE_NODE"
		}
		p.problemf(n, path, hint, "%s is not a uuid", clip(n.Value))
	case !strings.EqualFold(n.Value, canonical): // Nova wants the hyphens
		p.problemf(n, path, "write "+canonical, "%s is not a uuid in the form that Nova accepts", clip(n.Value))
	default:
		e.UUID = canonical
	}
}

func (p *parser) providerName(n *yaml.Node, path string, e *Entry) {
	const write = "write the name of a resource provider, of 1 to 200 characters"
	if !isText(n) {
		p.problemf(n, path, write+"; put it into quotes", "must be a text, not %s", shown(n))
		return
	}
	if err := providertree.ValidateProviderName(n.Value); err != nil {
		p.problemf(n, path, write, "%s cannot be a provider's name", clip(n.Value))
		return
	}
	if n.Value == ComputeNode { // to Nova it is the same
		p.warn(n, path, "write uuid: $COMPUTE_NODE", "no provider has this name; it is read as the uuid $COMPUTE_NODE")
		e.UUID = ComputeNode
		return
	}
	e.Name = n.Value
}

// additional is the list of that name below inventories or traits.
func (p *parser) additional(n *yaml.Node, path string) []*yaml.Node {
	if n == nil || !p.mapping(n, path, "it", "write additional: and a list below it") {
		return nil
	}
	var items []*yaml.Node
	for _, q := range p.pairs(n, path) {
		if q.key.Value != "additional" {
			p.unknown(q.key, path, "additional")
		} else if p.list(q.value, path+".additional") {
			items = p.items(q.value)
		}
	}
	return items
}

// inventories reads one mapping of classes to inventories.
func (p *parser) inventories(n *yaml.Node, path string, e *Entry) {
	if !p.mapping(n, path, "the inventory", "write CUSTOM_CLASS: {total: 1}") {
		return
	}
	for _, q := range p.pairs(n, path) {
		class := q.key.Value
		if !p.symbol(q.key, path, "resource class", class) {
			continue
		}
		at := path + "." + class
		if was, twice := e.classAt[class]; twice {
			p.problemf(q.key, at, "keep one of them", "the entry already has this class, in line %d", was.Line)
			continue
		}
		e.classAt[class] = p.place(q.key)
		e.Inventories[class] = p.inventory(q.value, at)
	}
}

// inventory reads one inventory. Fields that are absent have Placement's defaults, as with Nova.
func (p *parser) inventory(n *yaml.Node, path string) providertree.Inventory {
	inv := providertree.Inventory{}
	if !p.mapping(n, path, "the inventory", "write {total: 1}") {
		return inv
	}
	fields := []string{"total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"}
	at := map[string]*yaml.Node{}
	whole := func(q pair, field *int64, low int64) {
		if v, ok := p.integer(q.value, path+"."+q.key.Value, low); ok {
			*field, at[q.key.Value] = v, q.value
		}
	}
	total := false
	for _, q := range p.pairs(n, path) {
		switch q.key.Value {
		case "total":
			total = true
			whole(q, &inv.Total, 1)
		case "reserved":
			whole(q, &inv.Reserved, 0)
		case "min_unit":
			whole(q, &inv.MinUnit, 1)
		case "max_unit":
			whole(q, &inv.MaxUnit, 1)
		case "step_size":
			whole(q, &inv.StepSize, 1)
		case "allocation_ratio":
			if v, ok := p.ratio(q.value, path+".allocation_ratio"); ok {
				inv.AllocationRatio = v
			}
		default:
			p.problemf(q.key, path, didYouMean(q.key.Value, fields), "an inventory has no field %s", clip(q.key.Value))
		}
	}
	if !total {
		p.problemf(n, path, "write total: and a whole number", "total is missing")
	}
	inv = inv.Normalize()
	for _, v := range inv.Check() {
		// without one it was reported above, or is a default
		if n := at[v.Field]; n != nil && v.Field != "min_unit" {
			p.problemf(n, path+"."+v.Field, v.Hint, "%s", v.Problem)
		}
	}
	// Nova takes it
	if at["min_unit"] != nil && (inv.MinUnit > inv.MaxUnit || at["total"] != nil && inv.MinUnit > inv.Capacity()) {
		p.warn(at["min_unit"], path+".min_unit",
			"lower it", fmt.Sprintf("no allocation is possible: %d is more than max_unit or the total", inv.MinUnit))
	}
	return inv
}

func (p *parser) trait(n *yaml.Node, path string, e *Entry) {
	if !isText(n) {
		p.problemf(n, path, "write a trait, such as CUSTOM_RACK_7", "must be a text, not %s", shown(n))
		return
	}
	if p.symbol(n, path, "trait", n.Value) {
		e.Traits = append(e.Traits, n.Value)
		if _, twice := e.traitAt[n.Value]; !twice {
			e.traitAt[n.Value] = p.place(n)
		}
	}
}

var notSymbol = regexp.MustCompile(`[^A-Z0-9_]+`)

// symbol checks the name of a class or trait. Only custom ones may be added: the standard ones are
// the driver's.
func (p *parser) symbol(n *yaml.Node, path, kind, name string) bool {
	err := providertree.ValidateClass(name) // traits have the same form
	switch {
	case err != nil:
		write := strings.Trim(notSymbol.ReplaceAllString(strings.ToUpper(name), "_"), "_")
		hint := "write CUSTOM_ and 1 to 248 of A-Z, 0-9 and _"
		if write = strings.TrimPrefix(write, providertree.CustomPrefix); write != "" &&
			write != "CUSTOM" && len(write) <= 80 {
			hint = "write CUSTOM_" + write
		}
		p.problemf(n, path, hint, "%s cannot be the name of a %s", clip(name), kind)
	case !providertree.IsCustom(name):
		p.problemf(n, path, "remove it, or write one that begins with CUSTOM_",
			"%s is not a custom %s: only custom ones can be added here, the driver reports the standard ones",
			clip(name), kind)
	default:
		return true
	}
	return false
}

// mapping reports what is not a mapping.
func (p *parser) mapping(n *yaml.Node, path, what, hint string) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	p.problemf(n, path, hint, "%s must be a mapping, not %s", what, shown(n))
	return false
}

// list reports what is not a list.
func (p *parser) list(n *yaml.Node, path string) bool {
	if n.Kind == yaml.SequenceNode {
		return true
	}
	p.problemf(n, path, "write a list, or remove the line", "must be a list, not %s", shown(n))
	return false
}

// unknown warns about a property that Nova ignores.
func (p *parser) unknown(key *yaml.Node, path string, known ...string) {
	if path != "" {
		path += "."
	}
	hint := didYouMean(key.Value, known)
	p.warn(key, path+strings.Trim(clip(key.Value), `"`), hint, "unknown property; it is ignored")
}

// didYouMean names the known word that was probably meant, or all of them.
func didYouMean(word string, known []string) string {
	if near := textutil.Suggest(strings.ToLower(word), known, max(1, len(word)/3)); near != "" {
		return "did you mean " + near + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}
