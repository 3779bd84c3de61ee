// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCapabilityTraitsFollowTheConfiguration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := real(t)
	if got := h.Capabilities(); len(got) != 0 {
		t.Errorf("by default no trait is reported, so that Nova's traits stay: %v", got)
	}
	h.Config.Overrides = map[string]bool{"COMPUTE_TRUSTED_CERTS": false, "COMPUTE_MEM_BACKING_FILE": true}
	testproc.Same(t, cmp.Diff(h.Config.Overrides, h.Capabilities()))
	h.Config.Service = ReportTrait
	got := h.Capabilities()
	for trait, want := range map[string]bool{
		"COMPUTE_NET_ATTACH_INTERFACE": true, "COMPUTE_IMAGE_TYPE_QCOW2": true, "COMPUTE_REMOTE_MANAGED_PORTS": true,
		"COMPUTE_STORAGE_VIRTIO_FS": true,
		"COMPUTE_IMAGE_TYPE_VMDK":   false, "COMPUTE_SAME_HOST_COLD_MIGRATE": false, "COMPUTE_TRUSTED_CERTS": false,
		"COMPUTE_MEM_BACKING_FILE": true,
	} {
		if is, named := got[trait]; is != want || !named {
			t.Errorf("report: %s is %v, named %v", trait, is, named)
		}
	}
	if _, named := got["COMPUTE_EPHEMERAL_ENCRYPTION"]; named {
		t.Error("report: what Nova says about ephemeral encryption depends on its configuration, which is unknown here")
	}
	h.Domains = []capabilities.Domain{{Type: "xen", Arch: "x86_64"}}
	if _, named := h.Capabilities()["COMPUTE_REMOTE_MANAGED_PORTS"]; named {
		t.Error("report: a version of libvirt says nothing about Xen")
	}
	h.Config.Service = RemoveTrait
	for trait, is := range h.Capabilities() {
		testproc.Equal(t, is, trait == "COMPUTE_MEM_BACKING_FILE", "remove: %s is %v", trait)
	}
	if len(h.Capabilities()) != len(service) {
		t.Errorf("remove: %d of %d traits", len(h.Capabilities()), len(service))
	}
}

func TestMoreTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := real(t)
	for choice, want := range map[TraitChoice][2]bool{"": {false, false}, KeepTrait: {false, false},
		ReportTrait: {true, true}, RemoveTrait: {true, false}} {
		h.Config.More = choice
		is, named := h.Verdicts()["COMPUTE_FIRMWARE_BIOS"]
		testproc.Samef(t, cmp.Diff(want, [2]bool{named, is}), "%q", choice)
	}
}

func TestCheck(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, good := range []TraitConfig{{}, {Service: KeepTrait, More: RemoveTrait, SWTPM: true},
		{Service: ReportTrait, Overrides: map[string]bool{"COMPUTE_VOLUME_EXTEND": false}}} {
		testproc.NoError(t, good.Check())
	}
	for _, tc := range []struct {
		bad  TraitConfig
		key  string
		want string
	}{
		{TraitConfig{Service: "nova"}, "compute_capabilities", `"nova" is not one of`},
		{TraitConfig{More: "yes"}, "more_traits", `"yes" is not one of`},
		{TraitConfig{Overrides: map[string]bool{"COMPUTE_NODE": true}}, "compute_capability_overrides",
			`"COMPUTE_NODE" is not a compute capability trait`},
		{TraitConfig{Overrides: map[string]bool{strings.Repeat("X", 1000): true}}, "compute_capability_overrides",
			"is not a compute capability trait"},
	} {
		var config *plugins.ConfigError
		if err := tc.bad.Check(); !errors.As(err, &config) || config.Key != tc.key ||
			!strings.Contains(config.Problem, tc.want) || len(config.Problem) > 300 {
			t.Errorf("%v", err)
		}
	}
}
