// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// hundredGiB takes the disk of this machine out of the tree.
func (r *rig) hundredGiB() *rig {
	r.disks.measure = func(string) (discovery.Filesystem, error) {
		return discovery.Filesystem{Bytes: diskGiB << 30},
			nil
	}
	return r
}

// TestTheTreeEqualsTheModel: for any host and any configuration that fits it, the tree is what the
// model says; from there to the other layout and back, with nothing allocated, it is that of the
// other layout, and the first one again.
func TestTheTreeEqualsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		h := testhost.Random().Draw(rt, "host")
		w := drawWish(rt, h)
		d := newDaemon(t, h)
		d.domains = w.domains()
		if w.encrypted = rapid.Bool().Draw(rt, "libvirt offers encryption"); w.encrypted && h.SEV != nil && h.SEV.SEV {
			d.guestCaps = sevCapabilities(h.SEV.Guests, h.SEV.ESGuests)
		}
		r := newRig(t, h, d.open, w.config()).hundredGiB()
		defer func() { _ = r.Shutdown(context.Background()) }()
		tree := newTree(t)
		traits := map[bool][]string{}
		for _, nested := range []bool{w.nested, !w.nested, w.nested} {
			w.nested = nested
			testproc.Check(rt, r.configure(w.config()))
			if _, err := r.UpdateProviderTree(t.Context(), tree, nodeName, providertree.Allocations{}); err != nil {
				rt.Fatalf("%v of %+v", err, w)
			}
			before := tree.Clone()
			if _, err := r.pass(tree); err != nil || !tree.Equal(before) {
				rt.Fatalf("a second pass changes the tree (%v): %+v", err, providertree.Diff(before, tree))
			}
			if d := compareTo(h, w, tree, nodeName); d != "" {
				rt.Fatalf("nested %v, of %+v (-model +tree):\n%s", nested, w, d)
			}
			root, _ := tree.ProviderByName(nodeName)
			traits[nested] = root.Traits
			if got := root.HasTrait("HW_CPU_HYPERTHREADING"); got != threads(h) {
				rt.Fatalf("hyperthreading %v, want %v", got, threads(h))
			}
		}
		diff(t, "traits of the root, nested and flat", traits[true], traits[false])
		for _, line := range strings.Split(r.log.String(), "\n") {
			if disagreement.MatchString(line) {
				rt.Fatalf("witnesses of the same host disagree: %s", line)
			}
		}
	})
}

// disagreement is a warning that two who look at the same host differ, but for ghw, which sees no
// devices if one of them has no modalias.
var disagreement = regexp.MustCompile(
	`"warning":"(cpu-count|cpu-sysfs|memory|threads|numa-|huge-pages|pci-(devices|identity|driver|numa|sriov)|mdev-` +
		`parents|mdev-types|mdevs")`)

// threads reports whether some core has several threads online.
func threads(h testhost.Host) bool {
	for _, c := range h.CPUs {
		if !c.Offline && len(h.Siblings(c)) > 1 {
			return true
		}
	}
	return false
}
