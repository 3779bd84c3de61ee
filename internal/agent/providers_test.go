// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// provide writes a provider.yaml that adds so many licences and a trait to the node.
func (e *env) provide(licences int, trait string) {
	e.t.Helper()
	dir := filepath.Join(e.dir, "provider_config")
	check(e.t, os.MkdirAll(dir, 0o700))
	check(e.t, os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(fmt.Sprintf(`meta: {schema_version: '1.0'}
providers:
  - identification: {uuid: $COMPUTE_NODE}
    inventories: {additional: [{CUSTOM_LICENSE: {total: %d}}]}
    traits: {additional: [%s]}
`, licences, trait)), 0o600))
}

// TestProviderConfig: what the files say is added at the start, changed by a reload at once and
// without one at a later pass, kept while they are invalid, and taken back when they go.
func TestProviderConfig(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.provide(4, "CUSTOM_RACK_7")
	h.start()
	<-h.ready
	h.await(0, "Read the provider.yaml files", "site.yaml")
	h.await(0, `"operation":"`, "CUSTOM_LICENSE")

	mark := h.mark()
	h.provide(5, "CUSTOM_RACK_8")
	h.reload <- syscall.SIGHUP
	h.await(mark, "Reload: the provider.yaml files changed")
	h.await(mark, "CUSTOM_LICENSE total 4→5")
	h.await(mark, "CUSTOM_RACK_7")

	mark = h.mark()
	h.provide(60, "CUSTOM_RACK_8")
	h.await(mark, "Reloaded the changed provider.yaml files")
	h.await(mark, "CUSTOM_LICENSE total 5→60")

	mark = h.mark()
	h.provide(0, "CUSTOM_RACK_8")
	h.await(mark, "The provider.yaml files changed and are invalid", "out of bounds", "site.yaml:4:57")
	mark = h.mark()
	h.reload <- syscall.SIGHUP
	h.await(mark, "Reload: the provider.yaml files are invalid")
	mark = h.mark()
	h.provide(61, "CUSTOM_RACK_8")
	h.await(mark, "CUSTOM_LICENSE total 60→61") // so it was 60 meanwhile

	mark = h.mark()
	check(t, os.RemoveAll(filepath.Join(h.dir, "provider_config")))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, "CUSTOM_LICENSE")
}

// TestProviderConfigInvalidAtTheStart: to go on without would take back what the files added
// before.
func TestProviderConfigInvalidAtTheStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.provide(-1, "CUSTOM_RACK_7")
	cfg := testproc.Try(config.Load(config.Options{File: filepath.Join(h.dir, "agent.toml")})).Or(t)
	testproc.Try(agent.New(agent.Options{Config: cfg, Logger: zerolog.Nop()})).ErrorIs(t, config.ErrInvalid, "New: %v")
}

func TestUnknownStandardNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := agent.UnknownStandardNames([]string{"VCPUS", "VCPU", "CUSTOM_VCPUS", "ZZZ", "VCPUS"},
		[]string{"HW_CPU_X86_AVX9", "CUSTOM_X", "COMPUTE_NODE", "XYZZY_PLUGH"})
	want := []string{
		"the resource class VCPUS is not in os-resource-classes 1.1.0, and a Placement without it rejects the " +
			"provider's inventory; did you mean VCPU?",
		"the resource class ZZZ is not in os-resource-classes 1.1.0, and a Placement without it rejects the " +
			"provider's inventory; custom names begin with CUSTOM_",
		"the trait HW_CPU_X86_AVX9 is not in os-traits 3.9.0, and it is omitted if Placement does not have it; did " +
			"you mean HW_CPU_X86_AVX?",
		"the trait XYZZY_PLUGH is not in os-traits 3.9.0, and it is omitted if Placement does not have it; custom " +
			"names begin with CUSTOM_",
	}
	testproc.Same(t, cmp.Diff(want, got))
	if got := agent.UnknownStandardNames(ledger.StandardClasses(), ledger.StandardTraits()); len(got) > 0 {
		t.Errorf("standard names: %v", got)
	}
}
