// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTheOperatorSeesWhyAStartFailed: what libvirt says of a start that failed is for the operator:
// around the fault, and not in its reason, which the owner reads.
func TestTheOperatorSeesWhyAStartFailed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.fail, r.how = 3, refuses // the start
		_, err := r.spawn(request(1))
		var fault *plugins.InstanceFault
		if !errors.As(err, &fault) || strings.Contains(fault.Reason, "internal error") ||
			!strings.Contains(err.Error(), "internal error: no") {
			t.Errorf("the owner sees %+v, the operator %v", fault, err)
		}
		r.fail = 0
		r.mustSpawn(request(2))
		r.domains[id(2)].off(offShutdown)
		r.fail = len(r.writes) + 1
		_, err = r.SetPower(t.Context(), node, id(2), plugins.PowerRunning, false)
		if !errors.As(err, &fault) || strings.Contains(fault.Reason, "internal error") ||
			!strings.Contains(err.Error(), "internal error: no") {
			t.Errorf("of a later start the owner sees %+v, the operator %v", fault, err)
		}
	})
}

// TestAnInstanceWhoseFilesAreClosedToQEMU: a directory that QEMU's user cannot enter, and an image
// that it cannot read, are found before anything is made.
func TestAnInstanceWhoseFilesAreClosedToQEMU(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const image = "image"
	for name, c := range map[string]struct {
		config       Config
		qemu         int
		image        string
		close        func(r *rig) (path string, mode os.FileMode)
		reason, hint string // "": it is made, also if libvirt could not give the image to QEMU's user
	}{
		"images": {Config{}, 64055, image,
			func(r *rig) (string, os.FileMode) { return r.images, 0o750 },
			"the hypervisor cannot access its image", "chmod o+x "},
		"above images": {Config{}, 64055, image,
			func(r *rig) (string, os.FileMode) { return filepath.Dir(r.images), 0o750 },
			"the hypervisor cannot access its image", "chmod o+x "},
		"the image": {Config{}, 64055, image,
			func(r *rig) (string, os.FileMode) { return filepath.Join(r.images, image), 0o640 }, "", ""},
		"disks": {Config{}, 64055, "", func(r *rig) (string, os.FileMode) { return r.dir, 0o750 },
			"the hypervisor cannot access its disks", "chmod o+x "},
		"nothing": {Config{}, 64055, image,
			func(r *rig) (string, os.FileMode) { return r.images, 0o755 }, "", ""},
		"images, without one": {Config{}, 64055,
			"", func(r *rig) (string, os.FileMode) { return r.images, 0o750 }, "", ""},
		"images that are copied": {Config{ImagesType: "raw"}, 64055, image,
			func(r *rig) (string, os.FileMode) { return r.images, 0o750 }, "", ""},
		"images, for root": {Config{}, 0, image,
			func(r *rig) (string, os.FileMode) { return r.images, 0o750 }, "", ""},
		"images, for others": {Config{}, -1, image,
			func(r *rig) (string, os.FileMode) { return r.images, 0o750 }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.config)
				if c.qemu >= 0 {
					r.qemu = &User{UID: c.qemu, GID: c.qemu}
				}
				for dir := r.images; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
					testproc.Check(t, os.Chmod(dir, 0o755))
				}
				testproc.Check(t, os.Chmod(r.dir, 0o755))
				r.write(filepath.Join(r.images, image), strings.Repeat("\x00", 1<<20))
				testproc.Check(t, os.Chmod(filepath.Join(r.images, image), 0o644))
				path, mode := c.close(r)
				testproc.Check(t, os.Chmod(path, mode))
				spec := request(1)
				spec.Image = c.image
				_, err := r.spawn(spec)
				var fault *plugins.InstanceFault
				switch {
				case c.reason == "" && err != nil:
					t.Error(err)
				case c.reason != "" &&
					(!errors.As(err, &fault) || fault.Reason != c.reason ||
						!strings.Contains(err.Error(), " "+path+" (mode ") ||
						!strings.Contains(err.Error(), c.hint+path)):
					t.Errorf("the owner sees %+v, the operator %v", fault, err)
				case c.reason != "" && len(r.writes)+len(r.left()) > 0:
					t.Errorf("before it was found: %v, left: %v", r.writes, r.left())
				}
				if name == "the image" { // and libvirt does not make QEMU's user its owner
					spec.UUID, r.fail, r.how = id(2), len(r.writes)+3, refuses
					if _, err := r.spawn(spec); err == nil ||
						!strings.Contains(err.Error(), "internal error: no; QEMU's user") ||
						!strings.Contains(err.Error(), "chmod o+r "+path) {
						t.Errorf("the operator sees %v", err)
					}
				}
			})
		})
	}
}
