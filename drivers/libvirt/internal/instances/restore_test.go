// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// vanish removes a domain as virsh does, with its guest off and its disks left.
func (r *rig) vanish(n int) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	delete(r.domains, id(n))
}

func (r *rig) restore(spec plugins.InstanceSpec) (plugins.Instance, error) {
	return r.Restore(r.t.Context(), node, spec, nil)
}

// TestRestoreKeepsTheDisks: an instance whose domain was removed with another tool is there again
// over the same disks, off, as often as it is asked for; only what cloud-init asks for is written
// again.
func TestRestoreKeepsTheDisks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		image := filepath.Join(r.images, "debian")
		r.write(image, strings.Repeat("image", 1000))
		spec := request(1)
		spec.Image = "debian"
		r.mustSpawn(spec)
		scribble(t, r.dir)
		before := disksIn(t, r.dir)
		r.vanish(1)
		testproc.Check(t, os.Remove(filepath.Join(r.dir, domain.Name(id(1)), seedDisk)))
		for range 2 {
			is, err := r.restore(spec)
			if err != nil || is.UUID != id(1) || is.Power != plugins.PowerShutdown || is.Name != spec.Name {
				t.Fatalf("%+v, %v", is, err)
			}
		}
		diff(t, "disks", before, disksIn(t, r.dir))
		r.mustBe(spec, plugins.PowerShutdown)
		is, err := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false)
		if err != nil || is.Power != plugins.PowerRunning {
			t.Errorf("it does not start: %+v, %v", is, err)
		}
		r.mustSpawn(spec) // a repeated Spawn leaves it as it is
		diff(t, "disks", before, disksIn(t, r.dir))
	})
}

// mustBe checks that a Spawn, which starts what never ran, leaves an instance that was restored as
// it is.
func (r *rig) mustBe(spec plugins.InstanceSpec, power plugins.PowerState) {
	r.t.Helper()
	is, err := r.spawn(spec)
	if err != nil || is.Power != power {
		r.t.Errorf("after another Spawn: %+v, %v", is, err)
	}
}

// TestRestoreRefuses what it cannot make as it was, and changes nothing.
func TestRestoreRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before func(r *rig)
		change func(*plugins.InstanceSpec)
		reason string
	}{
		"no disks": {before: func(r *rig) { _ = os.RemoveAll(filepath.Join(r.dir, domain.Name(id(1)))) },
			reason: "its disks are not on its host"},
		"one disk less": {before: func(r *rig) { _ = os.Remove(filepath.Join(r.dir, domain.Name(id(1)), swapDisk)) },
			reason: "its disks are not on its host"},
		"another's guest": {before: func(r *rig) { r.unmanaged(1) },
			reason: "a guest with this uuid that the driver did not create"},
		"another host's disks": {before: func(r *rig) {
			d := directory{path: r.dir, name: domain.Name(id(1))}
			_ = os.Remove(d.claimOf(node))
			_ = d.claim(otherNode)
		}, reason: "its disks belong to another host"},
		"a qcow2 disk where disks are raw": {before: func(r *rig) {
			layer(r.t, filepath.Join(r.dir, domain.Name(id(1)), rootDisk), 1<<30, true)
		}, reason: otherFormat},
		"a layer where disks are raw": {before: func(r *rig) {
			layer(r.t, filepath.Join(r.dir, domain.Name(id(1)), rootDisk), 1<<30, false)
		}, reason: otherFormat},
		"a raw disk where disks are layers": {
			before: func(r *rig) { r.write(filepath.Join(r.images, "debian"), "image") },
			change: func(s *plugins.InstanceSpec) { s.Image = "debian" }, reason: otherFormat,
		},
		"a TPM": {change: property("hw_tpm_version", "2.0"), reason: "TPM"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{})
				spec := request(1)
				r.mustSpawn(spec)
				r.vanish(1)
				if c.before != nil {
					c.before(r)
				}
				if c.change != nil {
					c.change(&spec)
				}
				left, disks, writes := r.left(), disksIn(t, r.dir), len(r.writes)
				_, err := r.restore(spec)
				if !isFault(err) || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("%v, want a fault with %q", err, c.reason)
				}
				diff(t, "left", left, r.left())
				diff(t, "disks", disks, disksIn(t, r.dir))
				if len(r.writes) != writes {
					t.Errorf("writes: %v", r.writes[writes:])
				}
			})
		})
	}
}

// TestRenamedNode: a guest that was made by a node is the node's when that has another name, with
// its disks, whatever is asked first.
func TestRenamedNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const renamed = "renamed"
	for name, ask := range map[string]func(*rig) error{
		"a list": func(r *rig) error { return nil },
		"power": func(r *rig) error {
			_, err := r.SetPower(r.t.Context(), renamed, id(1), plugins.PowerShutdown, true)
			return err
		},
		"a guest that disappeared": func(r *rig) error {
			r.vanish(1)
			_, err := r.Restore(r.t.Context(), renamed, request(1), nil)
			return err
		},
		"its end": func(r *rig) error { return r.Destroy(r.t.Context(), renamed, id(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{})
				r.mustSpawn(request(1))
				r.rename(renamed, map[string]string{node: renamed, otherNode: "else"})
				testproc.Check(t, ask(r))
				list := testproc.Try(r.Instances(t.Context(), renamed)).Or(t)
				if name == "its end" {
					diff(t, "left", 0, len(list))
					diff(t, "disks", 0, len(disksIn(t, r.dir)))
					return
				}
				diff(t, "guests", 1, len(list))
				d := directory{path: r.dir, name: domain.Name(id(1))}
				diff(t, "claims", []bool{true, false}, []bool{d.claimedBy(renamed), d.claimedBy(node)})
			})
		})
	}
}

// TestClaimByAFormerName: the claim that a node has by its former name becomes one by its present
// name. Beside a claim of the node it is another host's, which has the former name now.
func TestClaimByAFormerName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := &setup{Setup: Setup{Former: map[string]string{"cn1": "rack9"},
		Directory: func(context.Context) (string, error) { return dir, nil }}}
	for n, has := range [][]string{{"cn1"}, {"cn1", "rack9"}} {
		d := directory{path: dir, name: domain.Name(id(n))}
		testproc.NoError(t, os.Mkdir(filepath.Join(dir, d.name), 0o700))
		for _, name := range has {
			testproc.NoError(t, d.claim(name))
		}
		s.renameClaim(t.Context(), "rack9", id(n))
		if !d.claimedBy("rack9") || d.claimedBy("cn1") != (len(has) == 2) {
			t.Errorf("%v: claimed by rack9 %v, by cn1 %v", has, d.claimedBy("rack9"), d.claimedBy("cn1"))
		}
	}
}
