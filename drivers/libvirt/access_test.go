// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDirectoriesThatAreClosedToQEMU: a pass warns of the directories of guests that QEMU's user
// cannot enter, before the first guest is made.
func TestDirectoriesThatAreClosedToQEMU(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	dir := t.TempDir()
	for p := dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		testproc.Check(t, os.Chmod(p, 0o755))
	}
	state, images, guests := filepath.Join(dir, "state"),
		filepath.Join(dir, "state", "images"), filepath.Join(dir, "guests")
	for _, d := range []string{state, images, guests} {
		testproc.Check(t, os.Mkdir(d, 0o755))
	}
	d := newDaemon(t, h)
	d.caps = strings.Replace(d.caps, "</cpu>",
		"</cpu><secmodel><model>dac</model><baselabel type='kvm'>+64055:+64055</baselabel></secmodel>", 1)
	r := newRig(t, h, d.open,
		map[string]any{"instances_path": guests, "instances": map[string]any{"images_path": images}})
	tree := newTree(t)
	warned := func(name string) string {
		i := slices.IndexFunc(r.Warnings(), func(w plugins.Warning) bool { return w.Name == name })
		if i < 0 {
			return ""
		}
		return r.Warnings()[i].Text
	}
	for closed, name := range map[string]string{state: "images-path", guests: "instances-path"} {
		r.mustPass(tree)
		testproc.Equal(t, warned(name), "", "warned of directories that are open: %s")
		testproc.Check(t, os.Chmod(closed, 0o750))
		r.mustPass(tree)
		if got := warned(name); !strings.Contains(got, "cannot enter "+closed+" (mode 0750") ||
			!strings.Contains(got, "chmod o+x "+closed) {
			t.Errorf("%s: %q", name, got)
		}
		testproc.Check(t, os.Chmod(closed, 0o755))
	}
}
