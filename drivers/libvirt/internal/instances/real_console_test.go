// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package instances

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// answering is the start of a disk whose boot sector sends back what comes in on the first serial
// port.
func answering() []byte {
	disk := make([]byte, 1<<20)
	copy(disk, "\xba\xfd\x03\xec\xa8\x01\x74\xf8\xba\xf8\x03\xec\xee\xeb\xf1")
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// TestRealConsole: a guest's console is both ways, for one user at a time, until the guest is
// switched off.
func TestRealConsole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})
	r.shared, r.sites = []int{0}, map[string]assignment.Provider{rootUUID: {Kind: assignment.Root}}
	testproc.Check(t, errors.Join(os.WriteFile(filepath.Join(r.images, "echo"), answering(), 0o644),
		os.Chmod(r.images, 0o755)))
	ctx := t.Context()
	spec := plugins.InstanceSpec{
		UUID: own(1), Name: "web", Image: "echo", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 32, RootGB: 1},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 32, "DISK_GB": 1}},
	}
	testproc.Try(r.Spawn(ctx, node, spec, nil)).Or(t)
	for range 2 {
		c := testproc.Try(r.OpenConsole(ctx, node, spec.UUID)).Or(t)
		var fault *plugins.InstanceFault
		if _, err := r.OpenConsole(ctx, node, spec.UUID); !errors.As(err, &fault) {
			t.Errorf("a second user: %v", err)
		}
		read := make(chan byte, 1000)
		ended := make(chan error, 1)
		go func() {
			for b := make([]byte, 1); ; {
				if _, err := c.Read(b); err != nil {
					ended <- err
					return
				}
				read <- b[0]
			}
		}()
		r.eventually("what was typed comes back", func() bool { // what comes before the guest listens is lost
			if _, err := io.WriteString(c, "x"); err != nil {
				t.Error(err)
			}
			select {
			case b := <-read:
				return b == 'x'
			default:
				return false
			}
		})
		testproc.NoError(t, errors.Join(c.Close(), c.Close()))
		testproc.ErrorIs(t, <-ended, io.ErrClosedPipe, "a console that is closed: %v")
		testproc.Try(io.WriteString(c, "x")).ErrorIs(t, io.ErrClosedPipe, "a console that was closed: %v")
	}
	c := testproc.Try(r.OpenConsole(ctx, node, spec.UUID)).Or(t)
	testproc.Try(r.SetPower(ctx, node, spec.UUID, plugins.PowerShutdown, true)).Or(t)
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("a guest that is off: %v", err)
	}
	testproc.NoError(t, c.Close())
	var fault *plugins.InstanceFault
	if _, err := r.OpenConsole(ctx, node, spec.UUID); !errors.As(err, &fault) || fault.Reason != "it does not run" {
		t.Errorf("a guest that is off: %v", err)
	}
	testproc.NoError(t, r.Manager.Destroy(ctx, node, spec.UUID))
	r.nothingLeft(nil)
}
