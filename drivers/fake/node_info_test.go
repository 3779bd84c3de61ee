// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCapabilitiesAreThoseConfigured(t *testing.T) {
	d := configured(t, `{"capabilities":{"COMPUTE_NET_ATTACH_INTERFACE":true,"CUSTOM_X":false}}`)
	testproc.Same(t, cmp.Diff(map[string]bool{"COMPUTE_NET_ATTACH_INTERFACE": true, "CUSTOM_X": false},
		d.Capabilities("this-host")))
}

func TestProductNamesAreThoseConfigured(t *testing.T) {
	d := configured(t, `{"product_names":{"gpu_0":"Acme 9000","":"Acme Server"}}`)
	testproc.Same(t, cmp.Diff(map[string]string{"cn1_gpu_0": "Acme 9000", "cn1": "Acme Server"}, d.ProductNames("cn1")))
}

func TestHypervisorIsThatOfNovasFakeDriver(t *testing.T) {
	testproc.Equal(t, New().Hypervisor("cn1"), plugins.Hypervisor{Type: "fake", Version: 1000}, "it is %+v")
}

func TestWarningsAreThoseConfigured(t *testing.T) {
	if got := New().Warnings(); len(got) != 0 {
		t.Errorf("before it is configured: %v", got)
	}
	d := configured(t, `{"warnings":{"numa-memory":"it differs","gpu-clock-0000:82:00.0":"it is `+
		`slow"},"health":"tired"}`)
	want := []plugins.Warning{{Name: "gpu-clock-0000:82:00.0", Text: "it is slow"},
		{Name: "numa-memory", Text: "it differs"}}
	testproc.Same(t, cmp.Diff(want, d.Warnings()))
	many := map[string]string{}
	for i := range maxWarnings + 1 {
		many[fmt.Sprint(i)] = "x"
	}
	for key, warnings := range map[string]map[string]string{
		"warnings": many, "warnings.Fan": {"Fan": "x"}, "warnings.": {"": "x"}, "warnings.fan": {"fan": ""},
		"warnings.a": {"a": strings.Repeat("ä", 2001)},
	} {
		raw := testproc.Try(json.Marshal(map[string]any{"warnings": warnings})).Or(t)
		var wrong *plugins.ConfigError
		if err := New().Configure(context.Background(), raw, plugins.HostInfo{Name: "cn1"}); !errors.As(err, &wrong) ||
			wrong.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestDeletedNodes(t *testing.T) {
	d := configured(t, `{"deleted_nodes":["cn7"]}`)
	for node, want := range map[string]bool{"cn7": true, "cn8": false, "this-host": false} {
		if got, err := d.NodeDeleted(context.Background(), plugins.Node{Name: node}); got != want || err != nil {
			t.Errorf("%s: %v, %v", node, got, err)
		}
	}
	if got, err := configured(t, `{"deleted_nodes":["cn7"],"not_ready":"x"}`).
		NodeDeleted(context.Background(), plugins.Node{Name: "cn7"}); got || err == nil {
		t.Errorf("not ready: %v, %v", got, err)
	}
}

func TestMistakesAboutAbilitiesAreNamedByTheirKey(t *testing.T) {
	for raw, key := range map[string]string{
		`{"capabilities":{"lower":true}}`:                                                "capabilities.lower",
		`{"deleted_nodes":["a","h"]}`:                                                    "deleted_nodes[1]",
		`{"guest_list":[{"uuid":"x"}]}`:                                                  "guest_list[0].uuid",
		`{"guest_list":[{"uuid":"` + guestA + `"},{"uuid":"` + guestA + `"}]}`:           "guest_list[1].uuid",
		`{"guest_list":[{"uuid":"` + guestA + `","node":"x"}]}`:                          "guest_list[0].node",
		`{"nodes":[{"name":"a"},{"name":"b"}],"guest_list":[{"uuid":"` + guestA + `"}]}`: "guest_list[0].node",
		`{"guest_list":[{"uuid":"` + guestA +
			`","resources":{"gpu_0":{"VGPU":0}}}]}`: "guest_list[0].resources.gpu_0.VGPU",
		`{"guest_list":[{"uuid":"` + guestA + `","resources":{"":{"vcpu":1}}}]}`: "guest_list[0].resources.",
	} {
		var config *plugins.ConfigError
		if err := New().Configure(context.Background(),
			json.RawMessage(raw), plugins.HostInfo{Name: "h"}); !errors.As(err, &config) || config.Key != key {
			t.Errorf("%s: want key %s, got %v", raw, key, err)
		}
	}
}
