// SPDX-License-Identifier: Apache-2.0

package resourcerequest

import (
	"errors"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
)

// Values of hw:cpu_policy, hw:cpu_thread_policy and hw:emulator_threads_policy.
const (
	cpuDedicated = "dedicated"
	cpuMixed     = "mixed"

	threadsIsolate = "isolate"
	threadsRequire = "require"

	emulatorIsolate = "isolate"

	traitHyperthreading = "HW_CPU_HYPERTHREADING"
)

// cpuKinds is which virtual processors are dedicated, beside how many.
type cpuKinds struct {
	mask     []int // those of a mixed guest
	emulator bool  // the emulator has one of its own
}

// addCPUs translates the extra specs of CPU policies, with the checks and in the words of
// nova.virt.hardware.
func (r *Request) addCPUs(f cellwire.Flavor) error {
	specs := f.ExtraSpecs
	policy, threads, emulator := specs["hw:cpu_policy"],
		specs["hw:cpu_thread_policy"], specs["hw:emulator_threads_policy"]
	for _, c := range []struct{ value, format, all string }{
		{policy, "CPU policy requested from 'flavor extra specs' is invalid, given: '%.64s', available: '%s'.",
			"('dedicated', 'mixed', 'shared')"},
		{threads, "CPU thread policy requested from 'flavor extra specs' is invalid, given: '%.64s', available: '%s'.",
			"('prefer', 'isolate', 'require')"},
		{emulator, "CPU emulator threads option requested is invalid, given: '%.64s', available: '%s'.",
			"('isolate', 'share')"},
	} {
		if c.value != "" && !strings.Contains(c.all, "'"+c.value+"'") {
			return invalidf(c.format, c.value, c.all)
		}
	}
	if err := r.checkCPUs(f, policy, threads, emulator); err != nil {
		return err
	}
	dedicated := int64(0)
	switch policy {
	case cpuDedicated:
		dedicated = f.VCPUs
	case cpuMixed:
		mask, err := dedicatedMask(specs["hw:cpu_dedicated_mask"], f.VCPUs)
		if err != nil {
			return err
		}
		dedicated, r.cpus.mask = int64(len(mask)), mask
		r.group("").resources[ClassVCPU] = f.VCPUs - dedicated
	}
	r.cpus.emulator = emulator == emulatorIsolate
	if dedicated > 0 {
		if r.cpus.emulator {
			dedicated++
		}
		r.group("").resources[ClassPCPU] = dedicated
	}
	switch threads {
	case threadsIsolate:
		r.group("").traits[traitHyperthreading] = false
	case threadsRequire:
		r.group("").traits[traitHyperthreading] = true
	}
	return nil
}

// checkCPUs refuses what contradicts itself.
func (r *Request) checkCPUs(f cellwire.Flavor, policy, threads, emulator string) error {
	asked := r.total()
	vcpus, pcpus := asked[ClassVCPU], asked[ClassPCPU]
	_, trait := r.group("").traits[traitHyperthreading]
	wanted := f.VCPUs
	if emulator == emulatorIsolate {
		wanted++
	}
	pinned := policy == cpuDedicated || policy == cpuMixed || (policy == "" && pcpus > 0)
	switch {
	case policy != "" && (vcpus > 0 || pcpus > 0):
		return invalidf(
			"It is not possible to use the 'resources:VCPU' or 'resources:PCPU' extra specs in combination with the " +
				"'hw:cpu_policy' extra spec or 'hw_cpu_policy' image metadata property; use one or the other",
		)
	case vcpus > 0 && pcpus > 0:
		return invalidf(
			"It is not possible to specify both 'resources:VCPU' and 'resources:PCPU' extra specs; use one " +
				"or the other")
	case pcpus > 0 && pcpus != wanted && emulator == emulatorIsolate:
		return invalidf(
			"You have requested 'hw:emulator_threads_policy=isolate' but have not requested sufficient PCPUs to " +
				"handle this policy; you must allocate exactly flavor.vcpus + 1 PCPUs.",
		)
	case pcpus > 0 && pcpus != wanted:
		return invalidf(
			"There is a mismatch between the number of PCPUs requested via 'resourcesNN:PCPU' and the flavor); you " +
				"must allocate exactly flavor.vcpus PCPUs")
	case threads != "" && trait:
		return invalidf(
			"It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' extra spec in combination with the " +
				"'hw:cpu_thread_policy' extra spec or 'hw_cpu_thread_policy' image metadata property; use one " +
				"or the other",
		)
	case threads != "" && !pinned:
		return invalidf("Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy")
	case emulator == emulatorIsolate && !pinned:
		return invalidf("An isolated CPU emulator threads option requires a dedicated CPU policy option.")
	case f.ExtraSpecs["hw:cpu_dedicated_mask"] != "" && policy != cpuMixed:
		return invalidf("Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.")
	case policy == cpuMixed && f.ExtraSpecs["hw:cpu_dedicated_mask"] == "":
		return invalidf(
			"Dedicated CPU set can be specified from either 'hw:cpu_dedicated_mask' or 'hw:cpu_realtime_mask' when " +
				"using 'mixed' CPU policy. 'hw:cpu_dedicated_mask' and 'hw:cpu_realtime_mask' can not be specified " +
				"at the same time, or be specified with none of them.",
		)
	}
	return nil
}

// dedicatedMask are the CPUs of a mask such as "0-3,^1,6": all but those named, if it begins with
// one left out.
func dedicatedMask(mask string, vcpus int64) ([]int, error) {
	cpus, err := extraspecs.VCPUs(mask, vcpus)
	var outside *extraspecs.OutsideError
	switch {
	case errors.As(err, &outside):
		return nil, invalidf(
			"Mixed instance dedicated vCPU(s) mask is not a subset of vCPUs in the flavor. See " +
				"\"hw:cpu_dedicated_mask\"")
	case err != nil:
		return nil, invalidf("%s", err)
	case len(cpus) == 0 || int64(len(cpus)) == vcpus:
		return nil, invalidf(
			"Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See 'hw:cpu_dedicated_mask'.")
	}
	return cpus, nil
}
