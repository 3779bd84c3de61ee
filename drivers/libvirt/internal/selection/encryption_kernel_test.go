// SPDX-License-Identifier: Apache-2.0

package selection_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestKernelFromSysfs: the parameters of kvm_amd, as the reader of /sys gives them, are what Choose
// wants of the kernel.
func TestKernelFromSysfs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sys/module/kvm_amd/parameters/nested": "1\n", "sys/module/kvm_amd/parameters/sev": "Y\n",
		"sys/module/kvm_amd/parameters/sev_es":  "Y\n",
		"sys/module/kvm_amd/parameters/sev_snp": "N\n", "sys/fs/cgroup/misc.capacity": "sev 410\nsev_es 99\n",
	} {
		name = filepath.Join(dir, name)
		testproc.Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		testproc.Check(t, os.WriteFile(name, []byte(text), 0o644))
	}
	r := testproc.Try(discovery.Open(dir)).Or(t)
	defer r.Close()
	kvm := testproc.Try(r.KVM()).Or(t)
	guests, esGuests := uint(410), uint(99)
	kernel := selection.EncryptionByKernel(*kvm.SEV)
	host := selection.EncryptionHost{
		Libvirt: selection.EncryptionByLibvirt{SEV: true,
			Capabilities: selection.EncryptedGuests{Guests: &guests, ESGuests: &esGuests}},
		Kernel: &kernel,
	}
	got, discrepancies := selection.EncryptionLimit{}.Choose(host, nil)
	if len(discrepancies) > 0 {
		t.Error(discrepancies)
	}
	var names []string
	for _, p := range got {
		names = append(names, p.Name("host"))
	}
	testproc.Samef(t, cmp.Diff([]string{"host_amd_sev", "host_amd_sev_es"}, names), "providers")
}
