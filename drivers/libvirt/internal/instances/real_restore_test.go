// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package instances

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealInstanceIsRestored: a guest whose domain was destroyed and undefined with another tool
// boots again from its own disk, after it was restored, and is removed as any other.
func TestRealInstanceIsRestored(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})
	r.shared, r.sites = []int{0}, map[string]assignment.Provider{rootUUID: {Kind: assignment.Root}}
	testproc.Check(t, errors.Join(os.WriteFile(filepath.Join(r.images, "hello"), bootable("hello, world"), 0o644),
		os.Chmod(r.images, 0o755)))
	ctx := t.Context()
	spec := plugins.InstanceSpec{
		UUID: own(40), Name: "web", Image: "hello", UserData: []byte("#cloud-config\n"),
		Flavor:      plugins.Flavor{Name: "tiny", VCPUs: 1, MemoryMB: 32, RootGB: 1, SwapMB: 16},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 32, "DISK_GB": 2}},
	}
	testproc.Try(r.Spawn(ctx, node, spec, nil)).Or(t)
	r.said(spec.UUID, "hello, world")
	_, err := hypervisor.Call(ctx, r.links[1], "removing its domain", func(c hypervisor.Conn) (struct{}, error) {
		return struct{}{}, errors.Join(c.DestroyDomain(spec.UUID), c.UndefineDomain(spec.UUID))
	})
	testproc.Check(t, err)
	if _, err := r.SetPower(ctx, node, spec.UUID, plugins.PowerRunning, true); !errors.Is(err,
		plugins.ErrInstanceNotFound) {
		t.Fatalf("without its domain: %v", err)
	}
	testproc.Check(t, os.WriteFile(filepath.Join(r.dir, domain.Name(spec.UUID), consoleLog), nil, 0o600))
	for range 2 {
		is, err := r.Restore(ctx, node, spec, nil)
		if err != nil || is.Power != plugins.PowerShutdown || is.Name != spec.Name {
			t.Fatalf("%+v, %v", is, err)
		}
	}
	testproc.Try(r.SetPower(ctx, node, spec.UUID, plugins.PowerRunning, false)).Or(t)
	r.said(spec.UUID, "hello, world")
	testproc.Check(t, r.Manager.Destroy(ctx, node, spec.UUID))
	r.nothingLeft(nil)
}
