// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/textutil"
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

// addCPUs translates the extra specs of CPU policies, with the checks and in the words of
// nova.virt.hardware.
func (r *CandidateRequest) addCPUs(f cellwire.Flavor) error {
	specs := f.ExtraSpecs
	policy, threads, emulator := specs["hw:cpu_policy"], specs["hw:cpu_thread_policy"], specs["hw:emulator_threads_policy"]
	for _, c := range []struct{ value, format, all string }{
		{policy, "CPU policy requested from 'flavor extra specs' is invalid, given: '%.64s', available: '%s'.", "('dedicated', 'mixed', 'shared')"},
		{threads, "CPU thread policy requested from 'flavor extra specs' is invalid, given: '%.64s', available: '%s'.", "('prefer', 'isolate', 'require')"},
		{emulator, "CPU emulator threads option requested is invalid, given: '%.64s', available: '%s'.", "('isolate', 'share')"},
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
		dedicated = mask
		r.group("").resources[classVCPU] = f.VCPUs - mask
	}
	if dedicated > 0 {
		if emulator == emulatorIsolate {
			dedicated++
		}
		r.group("").resources[classPCPU] = dedicated
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
func (r *CandidateRequest) checkCPUs(f cellwire.Flavor, policy, threads, emulator string) error {
	asked := r.total()
	vcpus, pcpus := asked[classVCPU], asked[classPCPU]
	_, trait := r.group("").traits[traitHyperthreading]
	wanted := f.VCPUs
	if emulator == emulatorIsolate {
		wanted++
	}
	pinned := policy == cpuDedicated || policy == cpuMixed || (policy == "" && pcpus > 0)
	switch {
	case policy != "" && (vcpus > 0 || pcpus > 0):
		return invalidf(
			"It is not possible to use the 'resources:VCPU' or 'resources:PCPU' extra specs in combination with the 'hw:cpu_policy' extra spec or 'hw_cpu_policy' image metadata property; use one or the other",
		)
	case vcpus > 0 && pcpus > 0:
		return invalidf("It is not possible to specify both 'resources:VCPU' and 'resources:PCPU' extra specs; use one or the other")
	case pcpus > 0 && pcpus != wanted && emulator == emulatorIsolate:
		return invalidf(
			"You have requested 'hw:emulator_threads_policy=isolate' but have not requested sufficient PCPUs to handle this policy; you must allocate exactly flavor.vcpus + 1 PCPUs.",
		)
	case pcpus > 0 && pcpus != wanted:
		return invalidf("There is a mismatch between the number of PCPUs requested via 'resourcesNN:PCPU' and the flavor); you must allocate exactly flavor.vcpus PCPUs")
	case threads != "" && trait:
		return invalidf(
			"It is not possible to use the 'trait:HW_CPU_HYPERTHREADING' extra spec in combination with the 'hw:cpu_thread_policy' extra spec or 'hw_cpu_thread_policy' image metadata property; use one or the other",
		)
	case threads != "" && !pinned:
		return invalidf("Cannot set cpu thread pinning policy in a non dedicated cpu pinning policy")
	case emulator == emulatorIsolate && !pinned:
		return invalidf("An isolated CPU emulator threads option requires a dedicated CPU policy option.")
	case f.ExtraSpecs["hw:cpu_dedicated_mask"] != "" && policy != cpuMixed:
		return invalidf("Cannot specify 'hw:cpu_dedicated_mask' without the 'mixed' policy.")
	case policy == cpuMixed && f.ExtraSpecs["hw:cpu_dedicated_mask"] == "":
		return invalidf(
			"Dedicated CPU set can be specified from either 'hw:cpu_dedicated_mask' or 'hw:cpu_realtime_mask' when using 'mixed' CPU policy. 'hw:cpu_dedicated_mask' and 'hw:cpu_realtime_mask' can not be specified at the same time, or be specified with none of them.",
		)
	}
	return nil
}

// dedicatedMask counts the CPUs of a mask such as "0-3,^1,6": all but those named, if it begins
// with one left out.
func dedicatedMask(mask string, vcpus int64) (int64, error) {
	const most = 1 << 16
	outside := invalidf("Mixed instance dedicated vCPU(s) mask is not a subset of vCPUs in the flavor. See \"hw:cpu_dedicated_mask\"")
	if vcpus > most {
		return 0, outside
	}
	mask = strings.TrimSpace(mask)
	if strings.HasPrefix(mask, "^") {
		mask = "0-" + strconv.FormatInt(vcpus-1, 10) + "," + mask
	}
	in, out := map[int64]bool{}, map[int64]bool{}
	for _, rule := range strings.Split(mask, ",") {
		set := in
		rule = strings.TrimSpace(rule)
		if rest, left := strings.CutPrefix(rule, "^"); left {
			set, rule = out, rest
		}
		if rule == "" {
			continue
		}
		first, last, ranged := strings.Cut(rule, "-")
		if !ranged {
			last = first
		}
		low, err1 := strconv.ParseInt(strings.TrimSpace(first), 10, 32)
		high, err2 := strconv.ParseInt(strings.TrimSpace(last), 10, 32)
		switch {
		case err1 != nil || err2 != nil || low < 0:
			return 0, invalidf("Invalid range expression %q", textutil.Clip(rule, 64))
		case low > high:
			return 0, invalidf("Invalid range expression %q", textutil.Clip(rule, 64))
		case high >= vcpus:
			return 0, outside
		}
		for cpu := low; cpu <= high; cpu++ {
			set[cpu] = true
		}
	}
	n := int64(0)
	for cpu := range in {
		if !out[cpu] {
			n++
		}
	}
	if n == 0 || n == vcpus {
		return 0, invalidf("Mixed instance must have at least 1 pinned vCPU and 1 unpinned vCPU. See 'hw:cpu_dedicated_mask'.")
	}
	return n, nil
}
