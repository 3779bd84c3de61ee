// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"embed"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// testdata has what libvirt 9.0 says of QEMU 7.2 on an x86_64 machine without UEFI firmware and
// swtpm.
//
//go:embed testdata
var testdata embed.FS

func captured(t testing.TB, name string) string {
	t.Helper()
	text := testproc.Try(testdata.ReadFile("testdata/" + name + ".xml")).Or(t)
	return string(text)
}

func TestParseOfWhatLibvirtSays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	pc := Domain{
		Emulator: "/usr/bin/qemu-system-x86_64", Type: "qemu", Arch: "x86_64", Machine: "pc-i440fx-7.2", MaxVCPUs: 255,
		Loader:      Loader{Types: []string{"pflash", "rom"}},
		DiskBuses:   []string{"fdc", "ide", "sata", "scsi", "usb", "virtio"},
		VideoModels: []string{"bochs", "cirrus", "none", "qxl", "ramfb", "vga", "virtio", "vmvga"},
		Filesystems: []string{"handle", "path", "virtiofs"},
		TPM:         TPM{Models: []string{"tpm-crb", "tpm-tis"}, Backends: []string{"passthrough"}},
	}
	q35 := pc
	q35.Machine, q35.MaxVCPUs = "pc-q35-7.2", 288
	q35.DiskBuses = []string{"fdc", "sata", "scsi", "usb", "virtio"}
	kvm := pc
	kvm.Type = "kvm"
	for name, want := range map[string]Domain{"qemu-7.2-pc": pc, "qemu-7.2-q35": q35, "qemu-7.2-pc-kvm": kvm} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDomain(captured(t, name))
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

// minimal is a document with something in it.
func minimal(inside string) string {
	return "<domainCapabilities><domain>kvm</domain><arch>x86_64</arch>" + inside + "</domainCapabilities>"
}

func TestParseOfOtherHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		inside string
		want   Domain
	}{
		"nothing": {"", Domain{}},
		"AMD's encryption": {
			`<features><sev supported='yes'><cbitpos>51</cbitpos><reducedPhysBits>1</reducedPhysBits><maxGuests>493</maxGuests><maxESGuests>16</maxESGuests></sev>
			 <launchSecurity supported='yes'><enum name='sectype'><value>sev</value><value>sev-snp</value></enum></launchSecurity></features>`,
			Domain{SEV: SEV{Supported: true, MaxGuests: 493, MaxESGuests: 16}, Security: []string{"sev", "sev-snp"}},
		},
		"AMD's encryption, before libvirt 8.0": {
			"<features><sev supported='yes'><cbitpos>47</cbitpos><reducedPhysBits>1</reducedPhysBits></sev></features>",
			Domain{SEV: SEV{Supported: true}},
		},
		"encryption that there is not": {
			"<features><sev supported='no'><maxGuests>5</maxGuests></sev><launchSecurity supported='no'><enum " +
				"name='sectype'><value>sev</value></enum></launchSecurity></features>",
			Domain{},
		},
		"a TPM with swtpm": {
			"<devices><tpm supported='yes'><enum name='model'><value>tpm-crb</value></enum><enum " +
				"name='backendModel'><value>passthrough</value><value>emulator</value></enum><enum " +
				"name='backendVersion'><value>2.0</value></enum></tpm></devices>",
			Domain{TPM: TPM{Models: []string{"tpm-crb"},
				Backends: []string{"emulator", "passthrough"}, Versions: []string{"2.0"}}},
		},
		"no TPM": {"<devices><tpm supported='no'><enum name='model'><value>tpm-crb</value></enum></tpm></devices>",
			Domain{}},
		"firmware with secure boot": {
			"<os supported='yes'><enum name='firmware'><value>efi</value></enum><loader " +
				"supported='yes'><value>/usr/share/OVMF/OVMF_CODE_4M.fd</value><enum " +
				"name='type'><value>rom</value><value>pflash</value></enum><enum " +
				"name='secure'><value>yes</value><value>no</value></enum></loader></os>",
			Domain{Loader: Loader{Types: []string{"pflash", "rom"},
				Firmware: []string{"efi"}, Files: true, Secure: true}},
		},
		"secure boot of a system that cannot be booted": {
			"<os supported='no'><loader supported='yes'><enum name='secure'><value>yes</value></enum></loader></os>",
			Domain{},
		},
		"secure boot of a loader that there is not": {
			"<os supported='yes'><loader supported='no'><value>/x</value><enum " +
				"name='secure'><value>yes</value></enum></loader></os>", Domain{},
		},
		"values twice, empty, with spaces": {
			"<devices><disk supported='yes'><enum name='bus'><value> virtio " +
				"</value><value/><value>virtio</value><value>sata</value></enum><enum " +
				"name='model'><value>x</value></enum></disk></devices>",
			Domain{DiskBuses: []string{"sata", "virtio"}},
		},
		"processors without end": {"<vcpu max='99999999999'/>", Domain{MaxVCPUs: maxCount}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Type, tc.want.Arch = "kvm", "x86_64"
			got, err := ParseDomain(minimal(tc.inside))
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

func TestParseDomainRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":           {"", "is empty"},
		"another document":  {"<capabilities/>", "expected element type <domainCapabilities>"},
		"half a document":   {minimal("")[:40], "unexpected EOF"},
		"half a CPU":        {"<domainCapabilities><cpu><mode>", "unexpected EOF"},
		"no architecture":   {"<domainCapabilities><domain>kvm</domain></domainCapabilities>", "no <arch>"},
		"no type":           {"<domainCapabilities><arch>x86_64</arch></domainCapabilities>", "no <domain>"},
		"large":             {minimal(strings.Repeat(" ", MaxXML)), "bytes, more than"},
		"no number":         {minimal("<vcpu max='many'/>"), "invalid syntax"},
		"less than nothing": {minimal("<vcpu max='-1'/>"), "invalid syntax"},
		"fewer guests than 0": {minimal("<features><sev supported='yes'><maxGuests>-1</maxGuests></sev></features>"),
			"invalid syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDomain(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.HasPrefix(err.Error(), "libvirt's domain capabilities: ") {
				t.Errorf("%v", err)
			}
			testproc.Same(t, cmp.Diff(Domain{}, got))
		})
	}
}

func FuzzParseDomain(f *testing.F) {
	f.Add(captured(f, "qemu-7.2-pc"))
	f.Add(minimal("<features><sev supported='yes'><maxGuests>1</maxGuests></sev></features>"))
	f.Add(minimal("<cpu></x></cpu><os supported='yes'><loader supported='yes'><value>a</value></loader></os>"))
	f.Add("<domainCapabilities><cpu></cpu></cpu><arch>a</arch><domain>b</domain></domainCapabilities>")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseDomain(text)
		if err != nil {
			return
		}
		if c.Arch == "" || c.Type == "" || c.MaxVCPUs < 0 || c.SEV.MaxGuests < 0 || c.SEV.MaxESGuests < 0 ||
			!c.SEV.Supported && c.SEV != (SEV{}) {
			t.Fatalf("%+v", c)
		}
		for _, list := range [][]string{c.DiskBuses, c.VideoModels, c.Filesystems, c.TPM.Models, c.TPM.Backends,
			c.TPM.Versions, c.Security, c.Loader.Types, c.Loader.Firmware} {
			if !slices.IsSorted(list) || slices.Contains(list, "") ||
				len(slices.Compact(slices.Clone(list))) != len(list) {
				t.Fatalf("%q", list)
			}
		}
	})
}

func BenchmarkParseDomain(b *testing.B) {
	text := captured(b, "qemu-7.2-pc")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(ParseDomain(text)).Or(b)
	}
}
