// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCheckOfAnInstanceThatExists: what it has itself is not in the way, it stays as it is, and
// what the host cannot make of its new image or flavor is a fault.
func TestCheckOfAnInstanceThatExists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		in := func(name string) string { return filepath.Join(r.images, name) }
		r.mustSpawn(request(1)) // it has the processors and the virtual GPU
		writes, left := len(r.writes), r.left()
		r.write(in("debian"), "hello")
		layer(t, in("large"), 1<<30+512, true)
		for name, c := range map[string]struct {
			change func(spec *plugins.InstanceSpec)
			reason string // "" for none
		}{
			"the same":      {change: func(*plugins.InstanceSpec) {}},
			"another image": {change: func(s *plugins.InstanceSpec) { s.Image = "debian" }},
			"no such image": {change: func(s *plugins.InstanceSpec) { s.Image = "debain" },
				reason: `there is no image "debain"`},
			"an image too large": {change: func(s *plugins.InstanceSpec) { s.Image = "large" },
				reason: "its image has a disk of 1073742336 bytes"},
			"another architecture": {change: property("hw_architecture", "aarch64"),
				reason: "its image is for the architecture"},
			"an unknown machine":     {change: property("hw_firmware_type", "coreboot"), reason: "coreboot"},
			"encryption without any": {change: property("hw_mem_encryption", "true"), reason: "encrypt"},
		} {
			spec := request(1)
			c.change(&spec)
			err := r.check(spec)
			if c.reason == "" && err != nil || c.reason != "" &&
				(!isFault(err) || !strings.Contains(err.Error(), c.reason)) {
				t.Errorf("%s: %v, want a fault with %q", name, err, c.reason)
			}
		}
		if len(r.writes) != writes {
			t.Errorf("writes: %v", r.writes[writes:])
		}
		diff(t, "left", left, r.left())
		if err := r.CheckSpawn(t.Context(), "another", request(1), nil); err == nil || isFault(err) {
			t.Errorf("another node: %v", err)
		}
	})
}

func property(name, value string) func(*plugins.InstanceSpec) {
	return func(s *plugins.InstanceSpec) { s.ImageProperties = map[string]string{name: value} }
}

// TestCheckWithoutTheHost: a host that cannot be looked at says nothing about the instance.
func TestCheckWithoutTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.SetSetup(nil)
		testproc.ErrorIs(t, r.check(request(1)), plugins.ErrUnsupported, "without a configuration: %v")
		if err := r.CheckSpawn(t.Context(), node, plugins.InstanceSpec{UUID: "x"},
			&providertree.Tree{}); !isFault(err) {
			t.Errorf("no uuid: %v", err)
		}
	})
}
