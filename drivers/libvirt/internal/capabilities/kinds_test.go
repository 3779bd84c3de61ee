// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func guest(arch, inside string) string {
	return "<guest><os_type>hvm</os_type><arch name='" +
		arch + "'><wordsize>64</wordsize><emulator>/usr/bin/qemu-system-" + arch +
		"</emulator>" + inside + "</arch></guest>"
}

// pcs are the machine types of a PC, shortened from libvirt 9.0.
const pcs = `
<machine maxCpus='255'>pc-i440fx-7.2</machine>
<machine canonical='pc-i440fx-7.2' maxCpus='255'>pc</machine>
<machine maxCpus='288'>pc-q35-7.2</machine>
<machine canonical='pc-q35-7.2' maxCpus='288'>q35</machine>
<machine maxCpus='288'>microvm</machine>`

func TestKinds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	x86 := "/usr/bin/qemu-system-x86_64"
	for name, tc := range map[string]struct {
		guests string
		want   []Kind
	}{
		"nothing": {"", nil},
		"emulated": {guest("x86_64", pcs+"<domain type='qemu'/>"),
			[]Kind{{x86, "x86_64", "pc", "qemu"}, {x86, "x86_64", "q35", "qemu"}}},
		"KVM": {guest("x86_64", pcs+"<domain type='qemu'/><domain type='kvm'/>"),
			[]Kind{{x86, "x86_64", "pc", "kvm"}, {x86, "x86_64", "q35", "kvm"}}},
		"KVM with a program and machines of its own": {
			guest("x86_64", pcs+
				"<domain type='qemu'/><domain type='kvm'><emulator>/usr/bin/kvm</emulator><machine "+
				"canonical='pc-q35-2.0'>q35</machine></domain>"),
			[]Kind{{"/usr/bin/kvm", "x86_64", "q35", "kvm"}},
		},
		"no families": {guest("s390x", "<machine>virt</machine><domain type='qemu'/>"),
			[]Kind{{"/usr/bin/qemu-system-s390x", "s390x", "", "qemu"}}},
		"not wanted":    {guest("sparc", "<domain type='qemu'/>"), nil},
		"no way to run": {guest("x86_64", pcs), nil},
		"the same again": {strings.Repeat(guest("s390x", "<domain type='qemu'/>"), 2),
			[]Kind{{"/usr/bin/qemu-system-s390x", "s390x", "", "qemu"}}},
		"containers": {strings.ReplaceAll(guest("x86_64", pcs+"<domain type='lxc'/>"), "hvm", "exe"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHost("<capabilities><host><cpu><arch>x86_64</arch></cpu></host>" +
				tc.guests + "</capabilities>")
			got := h.Kinds(func(arch string) bool { return arch != "sparc" })
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}
