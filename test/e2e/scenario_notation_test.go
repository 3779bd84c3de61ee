// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// The notation of scenarios. A resource provider is a line:
//
//	cn1_gpu_0 <cn1 VGPU=4-1*2.5/2 +CUSTOM_FAST @rack
//
// which is: its name, that of its parent, then inventories (total, reserved, allocation ratio,
// max_unit), traits and aggregates. What a consumer holds is a line too:
//
//	alice cn1:VCPU=2 cn1_gpu_0:VGPU=1

// noted is a provider as a line says it.
type noted struct {
	name, parent       string
	inventories        map[string]inventory
	traits, aggregates []string
	gone               []string // classes, traits and aggregates that are taken away: -VGPU, -CUSTOM_FAST, -@rack
}

var (
	inventoryToken = regexp.MustCompile(`^([A-Z0-9_]+)=(\d+)(?:-(\d+))?(?:\*([\d.]+))?(?:/(\d+))?$`)
	amountToken    = regexp.MustCompile(`^(.+):([A-Z0-9_]+)=(\d+)$`)
)

func parseProvider(line string) (noted, error) {
	p := noted{inventories: map[string]inventory{}}
	for i, token := range strings.Fields(line) {
		inv := inventoryToken.FindStringSubmatch(token)
		switch {
		case i == 0:
			p.name = token
		case token[0] == '<':
			p.parent = token[1:]
		case token[0] == '+':
			p.traits = append(p.traits, token[1:])
		case token[0] == '@':
			p.aggregates = append(p.aggregates, token[1:])
		case token[0] == '-':
			p.gone = append(p.gone, token[1:])
		case inv != nil:
			p.inventories[inv[1]] = inventory{
				Total: number(inv[2], 0), Reserved: number(inv[3], 0), Ratio: ratio(inv[4]), MinUnit: 1,
				MaxUnit: number(inv[5], mostUnits), StepSize: 1,
			}
		default:
			return p, fmt.Errorf("%q in %q is no inventory, trait or aggregate", token, line)
		}
	}
	return p, nil
}

// mostUnits is Placement's default for max_unit.
const mostUnits = 1<<31 - 1

func number(s string, otherwise int64) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func ratio(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 1
	}
	return f
}

func (i inventory) String() string {
	s := strconv.FormatInt(i.Total, 10)
	if i.Reserved != 0 {
		s += fmt.Sprintf("-%d", i.Reserved)
	}
	if i.Ratio != 1 {
		s += fmt.Sprintf("*%v", i.Ratio)
	}
	if i.MaxUnit != mostUnits {
		s += fmt.Sprintf("/%d", i.MaxUnit)
	}
	return s
}

// parseHolding reads what stands behind the name of a consumer: amounts by provider and class.
func parseHolding(tokens []string) (map[string]map[string]int64, error) {
	out := map[string]map[string]int64{}
	for _, token := range tokens {
		m := amountToken.FindStringSubmatch(token)
		if m == nil {
			return nil, fmt.Errorf("%q is not PROVIDER:CLASS=AMOUNT", token)
		}
		if out[m[1]] == nil {
			out[m[1]] = map[string]int64{}
		}
		out[m[1]][m[2]] = number(m[3], 0)
	}
	return out, nil
}

// uuidFor is the uuid of what scenarios call by a name: a provider that others make, an aggregate,
// a consumer.
func uuidFor(name string) string {
	if name == "cn1" {
		return nodeUUID
	}
	sum := sha1.Sum([]byte(name))
	return uuid.Must(uuid.FromBytes(sum[:16])).String()
}

// draw writes a picture in the notation. names are those of aggregates and consumers, by uuid.
func (p picture) draw(names map[string]string) []string {
	var out []string
	children := map[string][]string{}
	for name, parent := range p.Parents {
		children[parent] = append(children[parent], name)
	}
	var below func(parent, indent string)
	below = func(parent, indent string) {
		slices.Sort(children[parent])
		for _, name := range children[parent] {
			words := []string{indent + name}
			for _, class := range slices.Sorted(maps.Keys(p.Inventories[name])) {
				words = append(words, class+"="+p.Inventories[name][class].String())
			}
			for _, trait := range p.Traits[name] {
				words = append(words, "+"+trait)
			}
			for _, aggregate := range inNames(p.Aggregates[name], names) {
				words = append(words, "@"+aggregate)
			}
			out = append(out, strings.Join(words, " "))
			below(name, indent+"  ")
		}
	}
	below("", "")
	var holders []string
	for consumer, held := range p.Holding {
		words := []string{names[consumer]}
		for _, provider := range slices.Sorted(maps.Keys(held)) {
			for _, class := range slices.Sorted(maps.Keys(held[provider])) {
				words = append(words, fmt.Sprintf("%s:%s=%d", provider, class, held[provider][class]))
			}
		}
		holders = append(holders, strings.Join(words, " "))
	}
	slices.Sort(holders)
	return append(out, holders...)
}

func inNames(uuids []string, names map[string]string) []string {
	var out []string
	for _, u := range uuids {
		out = append(out, names[u])
	}
	slices.Sort(out)
	return out
}
