// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// novaMetadata is as Nova 26.2.2's own code writes it.
const novaMetadata = `<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
  <nova:package version="26.2.2"/>
  <nova:name>web</nova:name>
  <nova:creationTime>2023-11-14 22:13:20</nova:creationTime>
  <nova:flavor name="m1.tiny">
    <nova:memory>64</nova:memory>
    <nova:disk>1</nova:disk>
    <nova:swap>100</nova:swap>
    <nova:ephemeral>0</nova:ephemeral>
    <nova:vcpus>2</nova:vcpus>
  </nova:flavor>
  <nova:owner>
    <nova:user uuid="a1d2f3b4c5e64f7a8b9c0d1e2f3a4b5c">demo</nova:user>
    <nova:project uuid="0f1e2d3c4b5a69788796a5b4c3d2e1f0">demo</nova:project>
  </nova:owner>
  <nova:root type="image" uuid="5b2c3d4e-0001-4000-8000-000000000001"/>
</nova:instance>`

// TestHealNovaGuests: guests of Nova on a real libvirtd without allocations in Placement get those
// of their flavors. The log names those that have more than a flavor's sizes, with Nova's command.
func TestHealNovaGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	uri := defineGuests(t)
	for kind, empty := range placements(t) {
		t.Run(kind, func(t *testing.T) {
			p := newPlay(t, empty(t))
			check(t, os.MkdirAll(p.state(), 0o700))
			check(t, os.WriteFile(filepath.Join(p.state(), resourcetracker.IdentityFile), []byte(nodeUUID+"\n"), 0o600))
			check(t, os.WriteFile(p.config,
				[]byte(hastyAgent(p.dir, p.url)+
					fmt.Sprintf(
						"[reshape]\non_failure = \"exit\"\n[drivers.libvirt.config]\nuri = %q\ninstances_path = %q\n",
						uri, t.TempDir())), 0o600))
			if code := p.run().exit(); code != 3 { // guests of a cloud, on a node that is new to Placement
				t.Fatalf("the agent ended with %d", code)
			}
			if out, code := command(t, "adopt", "--as-new", "--yes", "--config", p.config); code != 0 {
				t.Fatalf("adopt --as-new ended with %d: %s", code, out)
			}
			p.settle()
			before := p.look()
			for _, how := range []string{"--dry-run", "--output=text"} {
				out, code := command(t, "allocations", "heal", how, "--config", p.config)
				if code != 1 { // there are guests that are not healed
					t.Errorf("heal ended with %d:\n%s", code, out)
				}
				for name, why := range map[string]string{"iris": "dedicated processors",
					"jack": "its root disk is a volume", "kate": "PCI devices"} {
					if !strings.Contains(out, why) ||
						!strings.Contains(out, "nova-manage placement heal_allocations --instance "+uuidFor(name)) {
						t.Errorf("no message says of %s that %s, and what to do:\n%s", name, why, out)
					}
				}
				if how == "--dry-run" && !cmp.Equal(before, p.look()) {
					t.Error("the dry run wrote")
				}
			}
			got, henry := p.look(), uuidFor("henry")
			want := holding{henry: {"cn1": {"VCPU": 2, "MEMORY_MB": 64, "DISK_GB": 2}}} // 1 GiB and 100 MiB of swap
			testproc.Samef(t, cmp.Diff(want, got.Holding), "allocations")
			if owner := got.Owners[henry]; !strings.HasPrefix(owner,
				"0f1e2d3c4b5a69788796a5b4c3d2e1f0 a1d2f3b4c5e64f7a8b9c0d1e2f3a4b5c") {
				t.Errorf("the owner is %q", owner)
			}
			if out, code := command(t, "allocations", "audit", "--config", p.config); strings.Contains(out, "henry") {
				t.Errorf("the audit, which ended with %d, still reports it:\n%s", code, out)
			}
		})
	}
}

// defineGuests starts a libvirtd, with guests that are off, and returns its address.
func defineGuests(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"virsh", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(program); err != nil {
			testproc.NotRun(t, err.Error())
		}
	}
	run, err := os.MkdirTemp("", "hn") // short: it has sockets
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(run)) })
	daemon, err := libvirtd.StartPrivate(t.Context(),
		libvirtd.Options{Dir: filepath.Join(t.TempDir(), "s"), RuntimeDir: run, Logger: zerolog.Nop()})
	if errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		check(t, daemon.Stop(ctx))
	})
	fromVolume := strings.Replace(novaMetadata,
		`<nova:root type="image" uuid="5b2c3d4e-0001-4000-8000-000000000001"/>`, "", 1)
	for _, guest := range []testhost.Domain{
		{Name: "henry", VCPUs: 2, MemoryMiB: 64, Metadata: novaMetadata},
		{Name: "iris", VCPUs: 1, MemoryMiB: 64, Metadata: novaMetadata,
			Pins: []testhost.Pin{{VCPU: 0, CPUs: []int{0}}}},
		{Name: "jack", VCPUs: 2, MemoryMiB: 64, Metadata: fromVolume},
		{Name: "kate", VCPUs: 2, MemoryMiB: 64, Metadata: novaMetadata, PCI: []string{"0000:06:00.3"}},
	} {
		guest.UUID = uuidFor(guest.Name)
		file := filepath.Join(t.TempDir(), "domain.xml")
		check(t, os.WriteFile(file, []byte(guest.XML("qemu")), 0o600))
		if out, err := exec.CommandContext(t.Context(), "virsh", "-c", daemon.URI(), "define", file).
			CombinedOutput(); err != nil {
			t.Fatalf("defining %s: %v: %s", guest.Name, err, out)
		}
	}
	return daemon.URI()
}
