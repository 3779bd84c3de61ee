// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// AliasSpec is the extra spec that asks for PCI devices by their aliases: a1:2,a2:1.
const AliasSpec = "pci_passthrough:alias"

// maxAliased is how many devices a flavor may ask for by aliases.
const maxAliased = 64

// Aliases are names for kinds of PCI devices: Nova's [pci] alias. Placement knows the devices by
// resource class and traits.
type Aliases map[string]Alias

// Alias is one of them.
type Alias struct {
	Class  string
	Traits []string
}

// pciID is the number of a vendor or a product.
var pciID = regexp.MustCompile(`^[0-9A-Fa-f]{4}$`)

// ParseAliases reads aliases as nova.conf has them, a JSON object each: name, and resource_class,
// or vendor_id and product_id, of which the class follows as for devices without resource_class;
// and traits, separated by commas. device_type is checked and says nothing more: the class is that
// of functions of one type. Devices near the processors are asked for by
// hw:pci_numa_affinity_policy, so numa_policy may only be legacy or preferred.
func ParseAliases(texts []string) (Aliases, error) {
	out := Aliases{}
	for _, text := range texts {
		name, alias, err := parseAlias(text)
		if err == nil && out[name].Class != "" {
			err = errors.New("there is another alias of the name; give the devices one resource class")
		}
		if err != nil {
			return nil, fmt.Errorf("the alias %.200q: %w", text, err)
		}
		out[name] = alias
	}
	return out, nil
}

// parseAlias reads one.
func parseAlias(text string) (name string, a Alias, err error) {
	value, err := jsonkit.Decode([]byte(text))
	if err != nil {
		return "", a, err
	}
	object, is := value.(*jsonkit.Object)
	if !is {
		return "", a, errors.New("it is no JSON object")
	}
	members := map[string]string{}
	for _, key := range object.Names() {
		value, _ := object.Get(key)
		text, is := value.(string)
		if !is {
			return "", a, fmt.Errorf("%.60q is not a string", key)
		}
		members[key] = text
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		allowed, known := aliasMembers[key]
		if !known {
			return "", a, fmt.Errorf("%.60q is no member of an alias", key)
		}
		if problem := allowed.problem(members[key]); problem != "" {
			return "", a, fmt.Errorf("%s is %.60q; %s", key, members[key], problem)
		}
	}
	if name = strings.TrimSpace(members["name"]); name == "" || len(name) > 256 || strings.ContainsAny(name, ":,") {
		return "", a, fmt.Errorf("the name %.60q must have 1 to 256 characters, and neither a colon nor a comma", name)
	}
	vendor, product := members["vendor_id"], members["product_id"]
	switch {
	case members["resource_class"] != "":
		a.Class, err = ClassName(members["resource_class"])
	case pciID.MatchString(vendor) && pciID.MatchString(product):
		a.Class = strings.ToUpper("CUSTOM_PCI_" + vendor + "_" + product)
	default:
		err = errors.New("it must have resource_class, or vendor_id and product_id of four hexadecimal digits each")
	}
	if err == nil {
		a.Traits, err = TraitNames(strings.Split(members["traits"], ","))
	}
	return name, a, err
}

// aliasMembers are the members that an alias may have.
var aliasMembers = map[string]Values{
	"name": {}, "vendor_id": {}, "product_id": {}, "resource_class": {}, "traits": {}, "live_migratable": oneOf(no...),
	"capability_type": oneOf("pci"), "device_type": oneOf("type-PCI", "type-PF", "type-VF"),
	"numa_policy": oneOf("legacy", "preferred"),
}

// Expand replaces the aliases in the extra specs of a flavor by a request group for each device, as
// Nova does. The groups may share providers unless the flavor's own group_policy says otherwise.
// Without aliases in it, it returns specs itself.
//
// Errors: [*ConflictError].
func (a Aliases) Expand(specs map[string]string) (map[string]string, error) {
	text, asked := specs[AliasSpec]
	if !asked {
		return specs, nil
	}
	out := maps.Clone(specs)
	delete(out, AliasSpec)
	devices := int64(0)
	for _, one := range strings.Split(text, ",") {
		name, count, found := strings.Cut(one, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 32)
		if !found || err != nil || n < 0 {
			return nil, conflictf(
				"Validation failed; '%.64s' is not of the format '[^:]+:\\d+(?:\\s*,\\s*[^:]+:\\d+)*'.", text)
		}
		alias, known := a[strings.TrimSpace(name)]
		if !known {
			return nil, conflictf("PCI alias %.64s is not defined", strings.TrimSpace(name))
		}
		if devices += n; devices > maxAliased {
			return nil, conflictf("The extra spec %s of the flavor asks for more than %d devices.",
				AliasSpec, maxAliased)
		}
		for range n {
			suffix := freeSuffix(out)
			out["resources"+suffix+":"+alias.Class] = "1"
			for _, trait := range alias.Traits {
				out["trait"+suffix+":"+trait] = "required"
			}
		}
	}
	if _, given := out["group_policy"]; !given && devices > 0 {
		out["group_policy"] = "none"
	}
	return out, nil
}

// freeSuffix returns the first suffix _PCI0, _PCI1, … that no request group in the extra specs has.
func freeSuffix(specs map[string]string) string {
	for i := 0; ; i++ {
		suffix := "_PCI" + strconv.Itoa(i)
		taken := func(name string) bool {
			return strings.HasPrefix(name, "resources"+suffix+":") || strings.HasPrefix(name, "trait"+suffix+":")
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(specs)), taken) {
			return suffix
		}
	}
}
