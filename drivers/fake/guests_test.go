// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const withGuests = `{"layout":"vgpu-children","nodes":[{"name":"cn1","inventories":{"VGPU":{"total":4},"VCPU":{"total":4}}},{"name":"cn2"}],
	"guest_list":[{"uuid":"AAAAAAAA-0000-0000-0000-000000000000","name":"web","project_id":"p","user_id":"u","node":"cn1",
		"resources":{"":{"VCPU":2},"gpu_1":{"VGPU":1}}},{"uuid":"` + guestB + `","node":"cn1"}]}`

func TestGuestsAreAllOrAnError(t *testing.T) {
	d := configured(t, withGuests)
	tree := newTree(t, "cn1")
	update(t, d, tree, "cn1")
	gpu, _ := tree.ProviderByName("cn1_gpu_1")
	got, err := d.Guests(context.Background(), tree, "cn1")
	testproc.Check(t, err)
	want := []plugins.Guest{
		{UUID: guestA, Name: "web", ProjectID: "p",
			UserID: "u", Resources: providertree.ProviderResources{rootUUID: {"VCPU": 2}, gpu.UUID: {"VGPU": 1}}},
		{UUID: guestB},
	}
	testproc.Same(t, cmp.Diff(want, got))
	if got, err = d.Guests(context.Background(), tree, "cn2"); got == nil || len(got) != 0 || err != nil {
		t.Errorf("the other node: %v, %v", got, err)
	}
	if got, err = d.Guests(context.Background(), newTree(t, "cn1"), "cn1"); got != nil || err == nil {
		t.Errorf("resources of a provider that is not there: %v, %v", got, err)
	}
	if got, err = d.Guests(context.Background(), tree, "cn3"); got != nil || err == nil {
		t.Errorf("a node that is not configured: %v, %v", got, err)
	}
	for raw, is := range map[string]error{
		`{}`: plugins.ErrUnsupported, `{"guest_list":[],"guests_error":"x"}`: nil,
		`{"guest_list":[],"not_ready":"x"}`: plugins.ErrNotReady,
	} {
		got, err := configured(t, raw).Guests(context.Background(), newTree(t, "this-host"), "this-host")
		if got != nil || err == nil || is != nil && !errors.Is(err, is) {
			t.Errorf("%s: %v, %v", raw, got, err)
		}
	}
}
