// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCheckCapabilities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	announced := []string{protocol.CapabilityCapabilities}
	for _, c := range []struct {
		name         string
		traits       map[string]bool
		capabilities []string
		want         map[string]bool
		problem      string
	}{
		{"does not tell", nil, nil, nil, ""},
		{"nothing", nil, announced, map[string]bool{}, ""},
		{"some", map[string]bool{"COMPUTE_A": true, "CUSTOM_B": false}, announced,
			map[string]bool{"COMPUTE_A": true, "CUSTOM_B": false}, ""},
		{"not announced", map[string]bool{"COMPUTE_A": true}, nil, nil, "does not announce"},
		{"no trait", map[string]bool{"compute": true}, announced, nil, `"compute"`},
		{"the agent's", map[string]bool{"COMPUTE_NODE": false}, announced, nil,
			"the agent's: a driver must not report it"},
	} {
		got, err := checkCapabilities(c.traits, c.capabilities)
		if (c.problem == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: want %q, got %v", c.name, c.problem, err)
		}
		testproc.Samef(t, cmp.Diff(c.want, got), "%s", c.name)
	}
}

func TestCheckProductNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	announced := []string{protocol.CapabilityProductNames}
	long := strings.Repeat("x", maxProductName)
	for _, c := range []struct {
		name         string
		names        map[string]string
		capabilities []string
		want         map[string]string
	}{
		{"none", nil, announced, nil},
		{"not announced", map[string]string{"cn1": "Acme"}, nil, nil},
		{"some", map[string]string{"cn1": "Acme"}, announced, map[string]string{"cn1": "Acme"}},
		{"of another tree", map[string]string{"cn2": "Acme"}, announced, map[string]string{}},
		{"blank", map[string]string{"cn1": " \n"}, announced, map[string]string{}},
		{"unprintable", map[string]string{"cn1": "a\x1b[2J\nb\u202ec"}, announced,
			map[string]string{"cn1": `a\u001b[2J; b\u202ec`}},
		{"long", map[string]string{"cn1": long}, announced, map[string]string{"cn1": long}},
		{"too long", map[string]string{"cn1": long + "y"}, announced, map[string]string{"cn1": long + "..."}},
	} {
		testproc.Samef(t, cmp.Diff(c.want, checkProductNames(oneNode(t), c.names, c.capabilities)), "%s", c.name)
	}
}

func TestCheckHypervisor(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	announced := []string{protocol.CapabilityHypervisor}
	for _, c := range []struct {
		name         string
		got          *driverv1.Hypervisor
		capabilities []string
		want         plugins.Hypervisor
	}{
		{"none", nil, announced, plugins.Hypervisor{}},
		{"not announced", &driverv1.Hypervisor{Type: "QEMU", Version: 1}, nil, plugins.Hypervisor{}},
		{"QEMU", &driverv1.Hypervisor{Type: "QEMU", Version: 7002001}, announced,
			plugins.Hypervisor{Type: "QEMU", Version: 7002001}},
		{"a version alone", &driverv1.Hypervisor{Version: 1}, announced, plugins.Hypervisor{Version: 1}},
		{"a negative version", &driverv1.Hypervisor{Type: "QEMU", Version: -1}, announced,
			plugins.Hypervisor{Type: "QEMU"}},
		{"more than 32 bits", &driverv1.Hypervisor{Type: "QEMU", Version: 1 << 31}, announced,
			plugins.Hypervisor{Type: "QEMU"}},
		{"unprintable", &driverv1.Hypervisor{Type: " a\x1b[2J"}, announced, plugins.Hypervisor{Type: `a\u001b[2J`}},
		{"too long", &driverv1.Hypervisor{Type: strings.Repeat("x", maxHypervisorType+1)}, announced,
			plugins.Hypervisor{Type: strings.Repeat("x", maxHypervisorType) + "..."}},
	} {
		testproc.Equal(t, checkHypervisor(c.got, c.capabilities), c.want, "%s: %+v", c.name)
	}
}

func TestCheckLayout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	announced := []string{protocol.CapabilityLayouts}
	for _, c := range []struct {
		version      int32
		capabilities []string
		good         bool
	}{{0, nil, true}, {0, announced, true}, {1, announced, true}, {9999, announced, true}, {10000, announced, false},
		{-1, announced, false}, {1, nil, false}} {
		if err := checkLayout(c.version, c.capabilities); (err == nil) != c.good {
			t.Errorf("checkLayout(%d, %v): got %v", c.version, c.capabilities, err)
		}
	}
}
