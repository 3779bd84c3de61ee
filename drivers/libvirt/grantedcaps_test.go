// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSavedDomainCapabilities: without write access to libvirt the tree is the one that is reported
// with it, as long as the domain capabilities were saved by a process that has it.
func TestSavedDomainCapabilities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	h.Module, h.SEV = "kvm_amd", &testhost.SEV{SEV: true, ES: true, Guests: 410, ESGuests: 99}
	d := newDaemon(t, h)
	d.guestCaps = sevCapabilities(410, 99)
	r := newRig(t, h, d.open, everything)
	writable := newTree(t)
	r.mustPass(writable)
	file := filepath.Join(t.TempDir(), "saved.json")
	testproc.Check(t, saveDomainCapabilities(d.open, []string{"--file", file}))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}

	d.noCaps = hypervisor.ErrReadOnly
	r = newRig(t, h, d.open, everything)
	r.savedFile = file
	readOnly := newTree(t)
	r.mustPass(readOnly)
	if w := r.Warnings(); len(w) > 0 || !readOnly.Equal(writable) {
		t.Errorf("%+v, and the tree differs like this: %+v", w, providertree.Diff(writable, readOnly))
	}

	good := testproc.Try(os.ReadFile(file)).Or(t)
	for name, c := range map[string]struct{ content, says string }{
		"no file": {"", "no such file"},
		"cut":     {string(good[:20]), "unexpected end of JSON"},
		"of another version": {strings.Replace(string(good), `"libvirt":`, `"libvirt":1`, 1),
			"another version of libvirt or QEMU"},
		"of another emulator": {strings.ReplaceAll(string(good), `"Emulator":"`, `"Emulator":"/opt`),
			"before libvirt knew this kind"},
		"with cut capabilities": {strings.ReplaceAll(string(good), `/domainCapabilities`, `/d`), "XML"},
		"huge":                  {strings.Repeat(" ", maxSaved+1), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, h, d.open, everything)
			if r.savedFile = filepath.Join(t.TempDir(), "saved.json"); c.content != "" {
				testproc.Check(t, os.WriteFile(r.savedFile, []byte(c.content), 0o644))
			}
			tree := writable.Clone()
			r.mustPass(tree)
			i := slices.IndexFunc(r.Warnings(), func(w plugins.Warning) bool { return w.Name == "domain-capabilities" })
			if i < 0 || !strings.Contains(r.Warnings()[i].Text, c.says) ||
				!strings.Contains(r.Warnings()[i].Text, restartHint) {
				t.Errorf("%+v, want %q and %q", r.Warnings(), c.says, restartHint)
			}
			if !tree.Equal(writable) {
				t.Errorf("what is known is not kept: %+v", providertree.Diff(writable, tree))
			}
		})
	}
	if err := saveDomainCapabilities(d.open, []string{"--file", file}); err == nil {
		t.Error("saved without write access")
	}
	invalid := []string{"--file", filepath.Join(t.TempDir(), "none", "f"), "x"}
	if err := saveDomainCapabilities(d.open, invalid); err == nil || !strings.Contains(err.Error(), "usage:") {
		t.Errorf("wrong arguments: %v", err)
	}
}
