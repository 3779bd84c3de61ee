// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// configureEncryption reads a configuration the way the driver does.
func configureEncryption(t testing.TB, text string) (EncryptionLimit, error) {
	var c MemoryEncryptionConfig
	testproc.Check(t, plugins.DecodeConfig(json.RawMessage(text), &c))
	return ParseEncryption(c)
}

// domains makes domains of a short text: "sev sev-es=3".
func domains(t testing.TB, text string) []domain.Domain {
	var out []domain.Domain
	for word := range strings.FieldsSeq(text) {
		security, number, many := strings.Cut(word, "=")
		n := 1
		if many {
			testproc.Try(fmt.Sscan(number, &n)).Or(t)
		}
		for range n {
			out = append(out, domain.Domain{Security: domain.Security(security)})
		}
	}
	return out
}

func shortEncryption(providers []EncryptionProvider) []string {
	var out []string
	for _, p := range providers {
		out = append(out, fmt.Sprintf("%s %d-%d/%d %s %s", p.Name("n"), p.Total, p.Reserved,
			p.MaxUnit, p.Trait, p.Security))
	}
	return out
}

func keys(discrepancies []machine.Discrepancy) []string {
	var out []string
	for _, d := range discrepancies {
		out = append(out, d.Key)
	}
	return out
}

func number(n uint) *uint { return &n }

// epyc is a host with all three kinds.
func epyc() EncryptionHost {
	m := EncryptedGuests{Guests: number(410), ESGuests: number(99)}
	return EncryptionHost{Libvirt: EncryptionByLibvirt{SEV: true, SNP: true, Capabilities: m, Node: m},
		Kernel: &EncryptionByKernel{SEV: true, ES: true, SNP: true, Guests: 410, ESGuests: 99}}
}

func TestChooseEncryption(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		sev = "n_amd_sev 410-0/1 HW_CPU_X86_AMD_SEV sev"
		es  = "n_amd_sev_es 99-0/1 HW_CPU_X86_AMD_SEV_ES sev-es"
		snp = "n_amd_sev_snp 99-0/1 HW_CPU_X86_AMD_SEV_SNP sev-snp"
	)
	for name, tc := range map[string]struct {
		config              string
		change              func(h *EncryptionHost)
		domains             string
		want, discrepancies []string
	}{
		"nothing": {change: func(h *EncryptionHost) { *h = EncryptionHost{} }},
		"a host with SEV-SNP, as Nova has it": {
			domains: "sev sev-snp=12  tdx", want: []string{sev, snp},
		},
		"before SEV-SNP": {
			change: func(h *EncryptionHost) { h.Kernel.SNP, h.Libvirt.SNP = false, false },
			want:   []string{sev, es},
		},
		"SEV alone": {
			change: func(h *EncryptionHost) {
				*h = EncryptionHost{Libvirt: EncryptionByLibvirt{SEV: true,
					Capabilities: EncryptedGuests{number(15), number(0)}}, Kernel: &EncryptionByKernel{SEV: true}}
			},
			want: []string{"n_amd_sev 15-0/1 HW_CPU_X86_AMD_SEV sev"},
		},
		"all numbers given to SEV-ES": {
			change: func(h *EncryptionHost) {
				none := EncryptedGuests{number(0), number(509)}
				h.Libvirt.Capabilities, h.Libvirt.Node, h.Kernel.Guests, h.Kernel.ESGuests = none, none, 0, 509
			},
			want: []string{"n_amd_sev_snp 509-0/1 HW_CPU_X86_AMD_SEV_SNP sev-snp"},
		},
		// One pool.
		"SEV-ES guests on a host that got SEV-SNP keep what they hold": {
			domains: "sev-es=9 sev-snp=20",
			want: []string{sev, "n_amd_sev_es 99-90/1 HW_CPU_X86_AMD_SEV_ES sev-es",
				"n_amd_sev_snp 99-9/1 HW_CPU_X86_AMD_SEV_SNP sev-snp"},
		},
		"more guests than contexts": {
			domains: "sev-es=60 sev-snp=120",
			want: []string{sev, "n_amd_sev_es 99-39/1 HW_CPU_X86_AMD_SEV_ES sev-es",
				"n_amd_sev_snp 99-60/1 HW_CPU_X86_AMD_SEV_SNP sev-snp"},
			discrepancies: []string{"sev-es-shared: 60 SEV-ES and 120 SEV-SNP domains share 99 contexts: they " +
				"cannot all run at once; move some to another host"},
		},
		"SEV-SNP guests on a host that lost SEV-SNP": {
			change:  func(h *EncryptionHost) { h.Kernel.SNP, h.Libvirt.SNP = false, false },
			domains: "sev-snp=2",
			want:    []string{sev, "n_amd_sev_es 99-2/1 HW_CPU_X86_AMD_SEV_ES sev-es"},
			discrepancies: []string{"sev-guests-sev-snp: 2 domain(s) use SEV-SNP, but no contexts are reported for " +
				"it: the host cannot run them, or the configuration allows none"},
		},
		// The configured limit.
		"a limit below the hardware's is for SEV alone": {
			config: `{"num_memory_encrypted_guests": 16}`,
			want:   []string{"n_amd_sev 16-0/1 HW_CPU_X86_AMD_SEV sev", snp},
		},
		"a limit above the hardware's": {
			config: `{"num_memory_encrypted_guests": 500}`, want: []string{sev, snp},
			discrepancies: []string{"sev-limit: num_memory_encrypted_guests is 500, but the host can run 410 such " +
				"guests: 410 are reported"},
		},
		"none allowed": {config: `{"num_memory_encrypted_guests": 0}`, want: []string{snp}},
		"null is no limit": {
			config: `{"num_memory_encrypted_guests": null}`, want: []string{sev, snp},
		},
		"a limit without SEV": {
			config: `{"num_memory_encrypted_guests": 16}`,
			change: func(h *EncryptionHost) { *h = EncryptionHost{} }, domains: "sev",
			discrepancies: []string{
				"sev-unusable: num_memory_encrypted_guests is 16, but this host runs no guests with encrypted " +
					"memory: nothing is reported",
				"sev-guests-sev: 1 domain(s) use SEV, but no contexts are reported for it: the host cannot run " +
					"them, or the configuration allows none",
			},
		},
		// libvirt before 8.0.
		"no maximum": {
			change: func(h *EncryptionHost) {
				*h = EncryptionHost{Libvirt: EncryptionByLibvirt{SEV: true}, Kernel: &EncryptionByKernel{SEV: true}}
			},
			want: []string{"n_amd_sev 2147483647-0/1 HW_CPU_X86_AMD_SEV sev"},
			discrepancies: []string{"sev-unlimited: libvirt does not report how many SEV guests can run (8.0 and " +
				"later do): no limit is reported, and guests above it fail to start; set num_memory_encrypted_guests"},
		},
		"no maximum, but the kernel knows": {
			change: func(h *EncryptionHost) { h.Libvirt = EncryptionByLibvirt{SEV: true} },
			want:   []string{"n_amd_sev 2147483647-0/1 HW_CPU_X86_AMD_SEV sev"},
			discrepancies: []string{
				"sev-es: the kernel has enabled SEV-ES (/sys/module/kvm_amd/parameters/sev_es), but libvirt does " +
					"not report how many such guests can run (8.0 and later do): it is not reported",
				"sev-snp: the kernel has enabled SEV-SNP (/sys/module/kvm_amd/parameters/sev_snp), but libvirt does " +
					"not report how many such guests can run (8.0 and later do): it is not reported",
				"sev-unlimited: libvirt does not report how many SEV guests can run " +
					"(8.0 and later do): no limit is reported, and guests above it fail " +
					"to start; set num_memory_encrypted_guests = 410, the kernel's number",
			},
		},
		"no maximum, but a limit": {
			config: `{"num_memory_encrypted_guests": 16}`,
			change: func(h *EncryptionHost) {
				h.Libvirt, h.Kernel.ES, h.Kernel.SNP = EncryptionByLibvirt{SEV: true}, false, false
			},
			want: []string{"n_amd_sev 16-0/1 HW_CPU_X86_AMD_SEV sev"},
		},
		"no maximum, and a limit that the kernel contradicts": {
			config: `{"num_memory_encrypted_guests": 500}`,
			change: func(h *EncryptionHost) {
				h.Libvirt, h.Kernel.ES, h.Kernel.SNP = EncryptionByLibvirt{SEV: true}, false, false
			},
			want: []string{"n_amd_sev 500-0/1 HW_CPU_X86_AMD_SEV sev"},
			discrepancies: []string{"sev-limit: num_memory_encrypted_guests is 500, but the kernel can run 410 such " +
				"guests (/sys/fs/cgroup/misc.capacity): lower it, or guests fail to start"},
		},
		// Disagreements.
		"libvirt, not the kernel": {
			change: func(h *EncryptionHost) { h.Kernel = nil },
			discrepancies: []string{"sev: libvirt offers SEV, but the kernel has not enabled it " +
				"(/sys/module/kvm_amd/parameters/sev): it is not reported. " +
				"Load kvm_amd with sev=1, or restart libvirtd so that it probes again"},
		},
		"the kernel, not libvirt": {
			change: func(h *EncryptionHost) { h.Libvirt.SEV = false; *h.Libvirt.Node.Guests = 3 },
			discrepancies: []string{"sev: the kernel has enabled SEV (/sys/module/kvm_amd/parameters/sev), but " +
				"libvirt does not offer it: it is not reported. " +
				"The firmware may have no contexts for it, QEMU may be too old, or libvirt may have cached an " +
				"earlier probe: then remove its capabilities cache and restart it"},
		},
		"SEV-ES and SEV-SNP by libvirt, not the kernel": {
			change: func(h *EncryptionHost) { h.Kernel.ES, h.Kernel.SNP = false, false },
			want:   []string{sev},
			discrepancies: []string{
				"sev-es: libvirt offers SEV-ES, but the kernel has not enabled it " +
					"(/sys/module/kvm_amd/parameters/sev_es): it is not reported. Load kvm_amd with sev_es=1, or " +
					"restart libvirtd so that it probes again",
				"sev-snp: libvirt offers SEV-SNP, but the kernel has not enabled it " +
					"(/sys/module/kvm_amd/parameters/sev_snp): it is not reported. Load kvm_amd with sev_snp=1, or " +
					"restart libvirtd so that it probes again",
			},
		},
		"SEV-SNP by the kernel, not libvirt": {
			change: func(h *EncryptionHost) { h.Libvirt.SNP = false },
			want:   []string{sev, es},
			discrepancies: []string{"sev-snp: the kernel has enabled SEV-SNP " +
				"(/sys/module/kvm_amd/parameters/sev_snp), but libvirt does not offer it: it is not reported. " +
				"The firmware may have no contexts for it, QEMU may be too old, or libvirt may have cached an " +
				"earlier probe: then remove its capabilities cache and restart it"},
		},
		"three numbers": {
			change: func(h *EncryptionHost) {
				h.Libvirt.Node, h.Kernel.ESGuests = EncryptedGuests{number(400), number(99)}, 100
			},
			want: []string{sev, snp},
			discrepancies: []string{
				"sev-maximum: libvirt reports that 410 SEV guests can run, but it is 400 in its node information: " +
					"410 is used, and if that is too many, guests fail to start",
				"sev-es-maximum: libvirt reports that 99 SEV-ES and SEV-SNP guests can run, but it is 100 by the " +
					"kernel (/sys/fs/cgroup/misc.capacity): 99 is used, and if that is too many, guests fail to start",
			},
		},
		"the node information alone": {
			change: func(h *EncryptionHost) { h.Libvirt.Capabilities = EncryptedGuests{} }, want: []string{sev, snp},
		},
		"a number that Placement cannot store": {
			change: func(h *EncryptionHost) {
				h.Libvirt.Capabilities, h.Libvirt.Node =
					EncryptedGuests{number(1<<32 - 1), number(99)}, EncryptedGuests{}
				h.Kernel.Guests = 0
			},
			want: []string{"n_amd_sev 2147483647-0/1 HW_CPU_X86_AMD_SEV sev", snp},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := epyc()
			if tc.change != nil {
				tc.change(&h)
			}
			if tc.config == "" {
				tc.config = "{}"
			}
			l := testproc.Try(configureEncryption(t, tc.config)).Or(t)
			got, discrepancies := l.Choose(h, domains(t, tc.domains))
			testproc.Samef(t, cmp.Diff(tc.want, shortEncryption(got)), "providers")
			var texts []string
			for _, d := range discrepancies {
				texts = append(texts, d.Key+": "+d.Text)
			}
			testproc.Samef(t, cmp.Diff(tc.discrepancies, texts), "discrepancies")
		})
	}
}

func TestWrongLimits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, want := range map[string]string{
		`{"num_memory_encrypted_guests": -1}`: "configuration: num_memory_encrypted_guests: -1 must be from " +
			"0 to 2147483647; without the key the hardware's limit applies",
		`{"num_memory_encrypted_guests": 2147483648}`: "configuration: num_memory_encrypted_guests: 2147483648 must " +
			"be from 0 to 2147483647; without the key the hardware's limit applies",
	} {
		_, err := configureEncryption(t, text)
		var wrong *plugins.ConfigError
		if !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%s: %v, want\n%s", text, err, want)
		}
	}
}

// anyHost is one on which the three kinds are on or off, with a pool of few contexts.
func anyHost(t *rapid.T) EncryptionHost {
	maximum := func(label string) *uint {
		if rapid.IntRange(0, 5).Draw(t, label+" said") == 0 {
			return nil
		}
		return number(rapid.UintRange(0, 12).Draw(t, label))
	}
	on := rapid.SampledFrom([]bool{true, true, true, false})
	h := EncryptionHost{
		Libvirt: EncryptionByLibvirt{
			SEV: on.Draw(t, "SEV"), SNP: on.Draw(t, "SNP"),
			Capabilities: EncryptedGuests{maximum("guests"), maximum("ES guests")},
			Node:         EncryptedGuests{maximum("node's guests"), maximum("node's ES guests")},
		},
	}
	if on.Draw(t, "kernel") {
		h.Kernel = &EncryptionByKernel{SEV: on.Draw(t, "kernel's SEV"), ES: on.Draw(t, "kernel's ES"),
			SNP: on.Draw(t, "kernel's SNP"), Guests: rapid.IntRange(0, 12).Draw(t, "kernel's guests"), ESGuests: 3}
	}
	return h
}

func named(providers []EncryptionProvider, s domain.Security) EncryptionProvider {
	for _, p := range providers {
		if p.Security == s {
			return p
		}
	}
	return EncryptionProvider{}
}

// TestAnyHost: what a provider says is always an inventory that Placement takes, and each
// discrepancy has a name of its own.
func TestAnyHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		h := anyHost(t)
		var l EncryptionLimit
		if rapid.Bool().Draw(t, "limited") {
			l = EncryptionLimit{guests: rapid.Int64Range(0, 15).Draw(t, "limit"), set: true}
		}
		var guests []domain.Domain
		held := map[domain.Security]int64{}
		for _, s := range rapid.SliceOfN(rapid.SampledFrom(
			[]domain.Security{"", domain.SEV, domain.SEVES, domain.SEVSNP, "tdx"}), 0, 30).Draw(t, "domains") {
			guests = append(guests, domain.Domain{Security: s})
			held[s]++
		}
		got, discrepancies := l.Choose(h, guests)
		for _, p := range got {
			inventory := providertree.Inventory{Total: p.Total, Reserved: p.Reserved, MinUnit: 1, MaxUnit: p.MaxUnit,
				StepSize: 1, AllocationRatio: 1}
			testproc.Checkf(t, inventory.Validate(), "%+v", p)
			if p.MaxUnit != 1 || p.Total < 1 || p.Reserved > p.Total {
				t.Fatalf("%+v", p)
			}
			if p.Security == domain.SEV && l.set && p.Total > l.guests {
				t.Fatalf("%+v is above the limit of %d", p, l.guests)
			}
		}
		named := map[string]bool{}
		for _, key := range keys(discrepancies) {
			if named[key] {
				t.Fatalf("two discrepancies are called %s", key)
			}
			named[key] = true
		}
		if h.Kernel == nil && len(got) > 0 || !h.Libvirt.SEV && len(got) > 0 {
			t.Fatalf("one deviceComparison is enough for %+v", got)
		}
		for s, n := range held {
			if strings.HasPrefix(string(s), "sev") && n > 0 && !provides(got, s) && !named["sev-guests-"+string(s)] {
				t.Fatalf("%d domains have %s, which has no provider, without a discrepancy", n, s)
			}
		}
	})
}

func provides(providers []EncryptionProvider, s domain.Security) bool {
	return named(providers, s).Total > 0
}

// TestEncryptionContextsAreNotSharedTwice: guests come and go by what Placement lets through; after
// each there is a pass. The pool is never overdrawn, and never lies idle: if a context is free, a
// guest can have it.
func TestEncryptionContextsAreNotSharedTwice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		pool := rapid.UintRange(1, 12).Draw(t, "pool")
		h := EncryptionHost{
			Libvirt: EncryptionByLibvirt{SEV: true, SNP: true, Capabilities: EncryptedGuests{number(5), &pool}},
			Kernel:  &EncryptionByKernel{SEV: true, ES: true, SNP: true},
		}
		held := map[domain.Security]int64{domain.SEVES: rapid.Int64Range(0, int64(pool)).
			Draw(t, "SEV-ES guests from before")}
		for range 40 {
			var guests []domain.Domain
			for s, n := range held {
				for range n {
					guests = append(guests, domain.Domain{Security: s})
				}
			}
			providers, _ := EncryptionLimit{}.Choose(h, guests)
			room := func(s domain.Security) int64 {
				p := named(providers, s)
				return p.Total - p.Reserved - held[s]
			}
			es, snp := room(domain.SEVES), room(domain.SEVSNP)
			left := int64(pool) - held[domain.SEVES] - held[domain.SEVSNP]
			if left < 0 || snp != left {
				t.Fatalf("%v of %d are held, and %d are offered for SEV-SNP", held, pool, snp)
			}
			if es != 0 {
				t.Fatalf("%v of %d are held, and %d are offered for SEV-ES", held, pool, es)
			}
			s := rapid.SampledFrom([]domain.Security{domain.SEVES, domain.SEVSNP}).Draw(t, "kind")
			if comes := rapid.Bool().Draw(t, "comes"); comes && room(s) > 0 {
				held[s]++
			} else if !comes && held[s] > 0 {
				held[s]--
			}
		}
	})
}
