// SPDX-License-Identifier: Apache-2.0

package encryption

import "github.com/compute-agent/compute-agent/providertree"

// Held are the providers of a tree as they are, for when nobody can say what the host has. stock is the inventory of a provider by the end of its
// name; false if there is none.
func Held(stock func(suffix string) (providertree.Inventory, bool)) []Provider {
	var out []Provider
	for _, k := range all {
		if inv, has := stock(k.Suffix); has {
			p := k.Provider
			p.Total, p.Reserved, p.MaxUnit = inv.Total, inv.Reserved, inv.MaxUnit
			out = append(out, p)
		}
	}
	return out
}
