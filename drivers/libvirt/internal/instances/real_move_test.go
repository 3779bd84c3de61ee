// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// realReading reads the files of an instance on a host with a real daemon.
type realReading struct {
	*realRig
	uuid  string
	files int
}

func (r *realReading) ReadFile(ctx context.Context, name string, offset int64, each plugins.ChunkFunc) error {
	r.files++
	return r.Manager.ReadFile(ctx, node, r.uuid, name, offset, each)
}

// machineOf is the machine type of a domain, and whether it starts with its host.
func (r *realRig) machineOf(uuid string) string {
	r.t.Helper()
	text, err := hypervisor.Call(r.t.Context(), r.links[0],
		"a domain", func(c hypervisor.Conn) (string, error) { return c.DomainXML(uuid) })
	board, failed := domain.ReadBoard([]byte(text))
	testproc.Check(r.t, errors.Join(err, failed))
	return board.Machine
}

// said waits for a word of the guest on its serial console.
func (r *realRig) said(uuid, word string) {
	r.t.Helper()
	r.eventually("a word of the guest", func() bool {
		text, _ := os.ReadFile(filepath.Join(r.dir, domain.Name(uuid), consoleLog))
		return strings.Contains(string(text), word)
	})
}

// TestRealInstanceMoves: a guest moves between two daemons, there and back, with a directory that
// both share and without: it boots from its disk on the other host, and nothing is left where it
// was. Then its host is lost, and it is made on the other one.
func TestRealInstanceMoves(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for i, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			hosts := []*realRig{realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true}),
				realHost(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})}
			from, to := hosts[0], hosts[1]
			if shared {
				to.dir, to.images = from.dir, from.images
			}
			settings, err := Parse(Config{ImagesPath: to.images, VirtType: "qemu", ShutdownTimeout: "300ms"})
			testproc.Check(t, err)
			to.SetSetup(&Setup{
				Settings: settings, Node: func(context.Context) (string, error) { return otherNode, nil },
				Directory: func(context.Context) (string, error) { return to.dir, nil }, Discover: to.look,
				Read: to.links[0], Write: to.links[1:],
			})
			for _, h := range hosts {
				h.shared, h.sites = []int{0}, map[string]assignment.Provider{rootUUID: {Kind: assignment.Root}}
				testproc.Check(t,
					errors.Join(os.WriteFile(filepath.Join(h.images, "hello"), bootable("hello, world"), 0o644),
						os.Chmod(h.images, 0o755)))
			}
			ctx := t.Context()
			spec := plugins.InstanceSpec{
				UUID: own(30 + i), Name: "web", Image: "hello", UserData: []byte("#cloud-config\n"),
				Flavor:      plugins.Flavor{Name: "tiny", VCPUs: 1, MemoryMB: 32, RootGB: 1, SwapMB: 16},
				Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 32, "DISK_GB": 2}},
			}
			testproc.Try(from.Spawn(ctx, node, spec, nil)).Or(t)
			from.said(spec.UUID, "hello, world")
			machine := from.machineOf(spec.UUID)

			// There, and back.
			move := func() {
				t.Helper()
				offer := testproc.Try(from.Depart(ctx, node, spec.UUID)).Or(t)
				from.power(spec.UUID, plugins.PowerShutdown)
				source := &realReading{realRig: from, uuid: spec.UUID}
				is, err := to.Arrive(ctx, otherNode, spec,
					nil, plugins.Arrival{Node: node, Offer: offer, Files: source})
				if err != nil || is.Power != plugins.PowerShutdown {
					t.Fatalf("%+v, %v", is, err)
				}
				if want := map[bool]int{false: 3, true: 0}[shared]; source.files != want {
					t.Errorf("%d files were copied, want %d", source.files, want)
				}
				if got := to.machineOf(spec.UUID); got != machine {
					t.Errorf("the machine type is %s, and was %s", got, machine)
				}
				if !shared {
					_ = os.Remove(filepath.Join(to.dir, domain.Name(spec.UUID), consoleLog)) // of an earlier time
				}
				if is, err = to.SetPower(ctx, otherNode, spec.UUID, plugins.PowerRunning, false); err != nil ||
					is.Power != plugins.PowerRunning {
					t.Fatalf("%+v, %v", is, err)
				}
				to.said(spec.UUID, "hello, world")
			}
			move()
			testproc.Check(t, to.Leave(ctx, otherNode, spec.UUID))
			if left := to.domains(); len(left) > 0 {
				t.Errorf("left on the destination: %+v", left)
			}
			if is, err := from.SetPower(ctx, node, spec.UUID, plugins.PowerRunning, false); err != nil ||
				is.Power != plugins.PowerRunning {
				t.Fatalf("%+v, %v", is, err)
			}

			// There for good.
			move()
			testproc.Check(t, from.Leave(ctx, node, spec.UUID))
			if left := from.domains(); len(left) > 0 {
				t.Errorf("left on the source: %+v", left)
			}
			if !shared {
				from.nothingLeft(nil)
			}
			if is, err := to.SetPower(ctx, otherNode, spec.UUID, plugins.PowerShutdown, true); err != nil ||
				is.Power != plugins.PowerShutdown {
				t.Errorf("%+v, %v", is, err)
			}

			// Its host is lost: it is made where it was at first, and the host comes back.
			is, err := from.Arrive(ctx, node, spec, nil, plugins.Arrival{Node: otherNode, Evacuation: true})
			if err != nil || is.Power != plugins.PowerShutdown {
				t.Fatalf("%+v, %v", is, err)
			}
			if is, err = from.SetPower(ctx, node, spec.UUID, plugins.PowerRunning, false); err != nil ||
				is.Power != plugins.PowerRunning {
				t.Fatalf("%+v, %v", is, err)
			}
			from.said(spec.UUID, "hello, world")
			testproc.Check(t, to.Leave(ctx, otherNode, spec.UUID))
			if left := to.domains(); len(left) > 0 {
				t.Errorf("left on the host that was lost: %+v", left)
			}
			from.power(spec.UUID, plugins.PowerRunning)
			testproc.Check(t, from.Manager.Destroy(ctx, node, spec.UUID))
			for _, h := range hosts {
				h.nothingLeft(nil)
			}
		})
	}
}
