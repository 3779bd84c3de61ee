// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// byNova is a host as nova-compute, neutron and an administrator leave it. The scenarios have the
// same with the devices' children.
var byNova = []string{
	"cn1 VCPU=8*4/8 MEMORY_MB=8192-512/8192 DISK_GB=100-10/100 CUSTOM_LICENSE=5 +COMPUTE_NODE +OWNER_NOVA " +
		"+HW_CPU_X86_AVX +HW_CPU_X86_AVX2 +CUSTOM_GOLD @az1",
	"cn1:NIC_Switch_agent <cn1 +CUSTOM_VNIC_TYPE_DIRECT",
	"cn1:NIC_Switch_agent:ens5 <cn1:NIC_Switch_agent NET_BW_EGR_KILOBIT_PER_SEC=10000 " +
		"NET_BW_IGR_KILOBIT_PER_SEC=10000 +CUSTOM_PHYSNET_A @physnet",
	"claim alice cn1:VCPU=2 cn1:MEMORY_MB=1024 cn1:CUSTOM_LICENSE=1 " +
		"cn1:NIC_Switch_agent:ens5:NET_BW_EGR_KILOBIT_PER_SEC=1000",
}

const sameAsNova = `nodes = [{name = "cn1", traits = ["HW_CPU_X86_AVX", "HW_CPU_X86_AVX2"], inventories = {
  VCPU = {total = 8, max_unit = 8, allocation_ratio = 4.0}, MEMORY_MB = {total = 8192, max_unit = 8192, reserved = 512}, DISK_GB = {total = 100, max_unit = 100, reserved = 10}}}]`

const otherThanNova = `nodes = [{name = "cn1", traits = ["HW_CPU_X86_AVX"], inventories = {
  VCPU = {total = 8, max_unit = 8, allocation_ratio = 4.0}, MEMORY_MB = {total = 8192, max_unit = 8192, reserved = 512}},
  children = [{name = "gpu", inventories = {VGPU = {total = 2}}}]}]`

// TestAdoption: the agent as a whole takes over a host that nova-compute reported, without a write,
// and later changes only what is the driver's.
func TestAdoption(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kind, empty := range placements(t) {
		t.Run(kind, func(t *testing.T) {
			p := newPlay(t, empty(t))
			p.others(byNova)
			check(t, os.MkdirAll(p.state(), 0o700))
			check(t, os.WriteFile(filepath.Join(p.state(), resourcetracker.IdentityFile), []byte(nodeUUID+"\n"), 0o600))
			before := p.look()
			p.write(sameAsNova, "")
			for _, start := range []string{"first", "second"} {
				if n := p.settle(); n != 0 {
					t.Errorf("%d writes at the %s start", n, start)
				}
			}
			testproc.Samef(t, cmp.Diff(before, p.look()), "the agent changed something")
			agent := p.run() // the fake driver does not know from one start to the next what it said
			agent.awaitAny(passDone)
			p.write(otherThanNova, "")
			mark := agent.Mark()
			agent.signal(syscall.SIGHUP)
			agent.await(mark, wrote, "Set the traits of cn1: -HW_CPU_X86_AVX2")
			agent.await(mark, passDone)
			agent.stop()
			want := []string{
				"cn1 CUSTOM_LICENSE=5 MEMORY_MB=8192-512/8192 VCPU=8*4/8 +COMPUTE_NODE +CUSTOM_GOLD +HW_CPU_X86_AVX " +
					"+OWNER_NOVA @az1",
				"  cn1:NIC_Switch_agent +CUSTOM_VNIC_TYPE_DIRECT",
				"    cn1:NIC_Switch_agent:ens5 NET_BW_EGR_KILOBIT_PER_SEC=10000 NET_BW_IGR_KILOBIT_PER_SEC=10000 " +
					"+CUSTOM_PHYSNET_A @physnet",
				"  cn1_gpu VGPU=2",
				"alice cn1:CUSTOM_LICENSE=1 cn1:MEMORY_MB=1024 cn1:VCPU=2 " +
					"cn1:NIC_Switch_agent:ens5:NET_BW_EGR_KILOBIT_PER_SEC=1000",
			}
			testproc.Samef(t, cmp.Diff(want, p.look().draw(p.names)), "after a change")
		})
	}
}
