// SPDX-License-Identifier: Apache-2.0

package pmem

import (
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Pool are the namespaces of a class that guests can have.
type Pool struct {
	// Class is CUSTOM_PMEM_NAMESPACE_<label>.
	Class string
	// Namespaces are one or more, in the order of the configuration.
	Namespaces []Namespace
}

// Totals are the inventories: the number of namespaces by class.
func Totals(pools []Pool) map[string]int64 {
	totals := make(map[string]int64, len(pools))
	for _, p := range pools {
		totals[p.Class] = int64(len(p.Namespaces))
	}
	return totals
}

// Choose finds the configured namespaces among those that there are. A configured one that is missing or of no use does not count, and comes as
// a doubt; a class without any is left out. The result is in the order of the classes.
//
// Cost: O(configured + found).
func (l Labels) Choose(found []Namespace) ([]Pool, []machine.Doubt) {
	byName := make(map[string][]Namespace, len(found))
	for _, n := range found {
		if n.Label != "" {
			byName[n.Label] = append(byName[n.Label], n)
		}
	}
	var pools []Pool
	var doubts []machine.Doubt
	for _, class := range l.classes {
		pool := Pool{Class: class}
		for _, name := range l.names[class] {
			n, doubt := pick(name, byName[name])
			if doubt != nil {
				doubts = append(doubts, *doubt)
			}
			if n != nil {
				pool.Namespaces = append(pool.Namespaces, *n)
			}
		}
		if len(pool.Namespaces) > 0 {
			pools = append(pools, pool)
		}
	}
	return pools, doubts
}

// pick is the namespace that a name stands for, or nil, and what is wrong with it.
func pick(name string, candidates []Namespace) (*Namespace, *machine.Doubt) {
	doubt := func(format string, args ...any) *machine.Doubt {
		d := machine.Doubtf("pmem-"+name, "%s: namespace %q "+format, append([]any{NamespacesKey, name}, args...)...)
		return &d
	}
	if len(candidates) == 0 {
		return nil, doubt("is not on this host: it does not count. Compare with `ndctl list --idle`, where it is the name")
	}
	for i, n := range candidates {
		if n.useless() == "" {
			if len(candidates) > 1 {
				return &candidates[i], doubt("is the name of %d namespaces: %s counts, the others do not. Give them names of their own", len(candidates), n.Name)
			}
			return &candidates[i], nil
		}
	}
	n := candidates[0]
	return nil, doubt("(%s) %s", n.Name, n.useless())
}

// useless says why a guest cannot have the namespace, or "".
func (n Namespace) useless() string {
	switch {
	case n.Mode != ModeDAX:
		return "is in mode " + n.Mode.ndctl() + ", not devdax: it does not count. Make it anew with `ndctl create-namespace --mode=devdax`, which loses its data"
	case n.Device == "":
		return "has no character device: it does not count. Enable it with `ndctl enable-namespace`"
	case n.Driver == "":
		return "has " + n.Device + ", which no driver serves: it does not count. Enable it with `daxctl enable-device`"
	case n.Driver != serving:
		return "has " + n.Device + ", which is the host's own (driver " + n.Driver + "): it does not count. Give it back with `daxctl reconfigure-device --mode=devdax`"
	}
	return ""
}
