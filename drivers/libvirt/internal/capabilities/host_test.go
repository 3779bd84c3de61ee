// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// real is shortened from libvirt 9.0 on a machine with one CPU offline.
const real = `<capabilities>

  <host>
    <uuid>97c7afe0-fca3-4fd9-a30f-6296f78a3972</uuid>
    <cpu>
      <arch>x86_64</arch>
      <model>EPYC-Rome</model>
      <vendor>AMD</vendor>
      <topology sockets='1' dies='1' cores='2' threads='1'/>
      <feature name='ht'/>
      <feature name='vaes'/>
      <pages unit='KiB' size='4'/>
    </cpu>
    <power_management/>
    <topology>
      <cells num='1'>
        <cell id='0'>
          <memory unit='KiB'>5859540</memory>
          <pages unit='KiB' size='4'>1464885</pages>
          <pages unit='KiB' size='2048'>16</pages>
          <distances><sibling id='0' value='10'/><sibling id='1' value='21'/></distances>
          <cpus num='3'>
            <cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0'/>
            <cpu id='1' socket_id='0' die_id='0' core_id='1' siblings='1-2'/>
            <cpu id='2'/>
          </cpus>
        </cell>
      </cells>
    </topology>
  </host>
  <guest><os_type>hvm</os_type><arch name='x86_64'><wordsize>64</wordsize></arch></guest>
  <guest><os_type>hvm</os_type><arch name='i686'/></guest>
  <guest><os_type>hvm</os_type><arch name='x86_64'/></guest>
  <guest><os_type>exe</os_type><arch name='s390x'/></guest>
</capabilities>
`

func TestParseOfARealHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testproc.Try(ParseHost(real)).Or(t)
	if !strings.HasPrefix(h.CPU, "<cpu>") || !strings.HasSuffix(h.CPU, "</cpu>") ||
		!strings.Contains(h.CPU, "<topology sockets='1'") {
		t.Errorf("the CPU is not passed on as it stands: %s", h.CPU)
	}
	h.CPU = ""
	want := Host{
		Arch: "x86_64", Model: "EPYC-Rome", Features: []string{"ht", "vaes"}, GuestArches: []string{"i686", "x86_64"},
		Cells: []Cell{{
			ID: 0, MemoryKiB: 5859540,
			CPUs:  []CPU{{0, 0, 0, []int{0}}, {1, 0, 1, []int{1, 2}}, {2, Unknown, Unknown, nil}},
			Pages: []Pages{{4, 1464885}, {2048, 16}}, Distances: map[int]int{0: 10, 1: 21},
		}},
	}
	testproc.Same(t, cmp.Diff(want, h, cmpopts.IgnoreUnexported(Host{})))
	if !h.Threaded() {
		t.Error("CPUs 1 and 2 share a core")
	}
}

func TestParseReadsTheModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	model := testhost.Sample()
	model.CPUs[1].Offline, model.CPUs[12].Offline = true, true
	h := testproc.Try(ParseHost(model.Capabilities("x86_64"))).Or(t)
	var memory uint64
	cpus := 0
	for _, c := range h.Cells {
		memory += c.MemoryKiB
		cpus += len(c.CPUs)
	}
	if len(h.Cells) != 2 || memory != model.MemoryKiB() ||
		cpus != 14 || !slices.Equal(h.Cells[1].CPUs[0].Siblings, []int{4}) ||
		!slices.Equal(h.Cells[1].CPUs[1].Siblings, []int{5, 13}) {
		t.Errorf("%+v", h)
	}
}

func TestParseCPU(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got, err := ParseCPU(
		`<cpu mode='custom'><model>x</model><feature policy='require' name='b'/><feature policy='disable' ` +
			`name='c'/><feature policy='forbid' name='d'/><feature name='a'/><feature name='a'/><feature/></cpu>`)
	if diff := cmp.Diff([]string{"a", "b"}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add(real)
	f.Add("<capabilities><host><cpu><arch>x</arch></cpu><topology><cells><cell id='1'><cpus><cpu id='-1' " +
		"siblings='0-9'/></cpus></cell></cells></topology></host></capabilities>")
	f.Add("<cpu><feature name='&lt;'/></cpu>")
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := ParseHost(text); err == nil && h.Arch == "" {
			t.Fatal("a host without an architecture")
		}
		if names, err := ParseCPU(text); err == nil && slices.Contains(names, "") {
			t.Fatal("a feature without a name")
		}
	})
}

func BenchmarkParseHost(b *testing.B) {
	h := testhost.Sample()
	h.CPUs, h.Cells = testhost.Grid{Packages: 8, CoresPerDie: 32, ThreadsPerCore: 2,
		Interleaved: true, MemoryKiB: 16 << 20}.Build()
	text := h.Capabilities("x86_64")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(ParseHost(text)).Or(b)
	}
}

// TestUserOfQEMU: the DAC label is the user of emulators. Without one, as in a session daemon, it
// is not known.
func TestUserOfQEMU(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for labels, want := range map[string]*Label{
		`<secmodel><model>none</model><doi>0</doi></secmodel>
		<secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+64055:+108</baselabel><baselabel type='qemu'>+64055:+108</baselabel></secmodel>`: {64055, 108},
		`<secmodel><model>dac</model><baselabel type='kvm'>+0:+0</baselabel></secmodel>`: {0,
			0},
		`<secmodel><model>selinux</model>` +
			`<baselabel type='kvm'>system_u:system_r:svirt_t:s0</baselabel></secmodel>`: nil,
		`<secmodel><model>dac</model><baselabel type='kvm'>libvirt-qemu:kvm</baselabel></secmodel>`: nil,
		`<secmodel><model>dac</model><baselabel ` +
			`type='xen'>+1:+1</baselabel></secmodel><secmodel><model>none</model></secmodel>`: nil,
	} {
		h, err := ParseHost(strings.Replace(real, "<power_management/>", labels, 1))
		if d := cmp.Diff(want, h.QEMU); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", labels, err, d)
		}
	}
}
