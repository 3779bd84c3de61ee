// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// thief makes writes with the certificate of the attacker, and counts what is taken.
type thief struct {
	*placementOf
	as     identity
	client *http.Client
}

// takes reports whether Placement takes a write; otherwise it is refused with a reason.
func (t thief) takes(a asked) bool {
	t.t.Helper()
	_, answer := send(t.t, t.client, t.url, t.as, a)
	switch {
	case answer.Code < http.StatusBadRequest:
		return true
	// a conflict: it does not fit
	case answer.Code != http.StatusForbidden && answer.Code != http.StatusConflict || reason(answer) == "":
		t.t.Fatalf("%s %s: %s", a.method, a.path, answer)
	}
	return false
}

// largest is the largest amount, up to two thousand million, that is taken.
func (t thief) largest(write func(n int) asked) int {
	t.t.Helper()
	low, high := 0, 2_000_000_001
	for high-low > 1 {
		if n := (low + high) / 2; t.takes(write(n)) {
			low = n
		} else {
			high = n
		}
	}
	return low
}

// generation is that of a provider.
func (t thief) generation(provider string) (n int) {
	t.t.Helper()
	var p struct{ Generation int }
	t.admin(get("/resource_providers/"+provider)).Into(t.t, &p)
	return p.Generation
}

// offer replaces the inventories of its root.
func (t thief) offer(inventories object) asked {
	return put(ownProvider+"/inventories",
		object{"resource_provider_generation": t.generation(attackerNode), "inventories": inventories})
}

// TestWhatAThiefClaims measures what a client with the certificate of a host can claim in
// Placement, each as much as is taken. The host has 10 VCPU and a guest with 4 of them; its first
// hour is over. docs/identity.md has the result.
func TestWhatAThiefClaims(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	as := s.as("other host")
	h := thief{s.servePlacement(t), as, s.client(as)}
	guest := "/allocations/" + attackerGuest
	var text string
	row := func(what string, has, takes any) { text += fmt.Sprintf("| %s | %v | %v |\n", what, has, takes) }

	row("`VCPU` in one inventory", 10,
		h.largest(func(n int) asked { return h.offer(object{"VCPU": object{"total": n}}) }))
	row("`VCPU`, one that counts many times (`allocation_ratio`)", 10, h.largest(func(n int) asked {
		return h.offer(object{"VCPU": object{"total": 4, "allocation_ratio": float64(n) / 4}})
	}))
	h.takes(h.offer(object{"VCPU": vcpus}))
	small := 0
	for n := range 100 {
		child := fmt.Sprintf("22222222-2222-4222-9222-%012d", n)
		h.takes(post("/resource_providers", object{"name": fmt.Sprintf("%s_%d", attacker, n), "uuid": child,
			"parent_provider_uuid": attackerNode}))
		if h.takes(offers("/resource_providers/"+child, 0, object{"total": 1})) {
			small++
		}
	}
	row("`VCPU` in one inventory and 100 small providers", 10, 10+small)
	for n := range 100 {
		h.takes(asked{method: http.MethodDelete,
			path: fmt.Sprintf("/resource_providers/22222222-2222-4222-9222-%012d", n)})
	}
	row("`VGPU`, which the host never had", 0,
		h.largest(func(n int) asked { return h.offer(object{"VCPU": vcpus, "VGPU": object{"total": n}}) }))
	taken := func(traits ...string) (count int) {
		for _, trait := range traits {
			if h.takes(put(ownProvider+"/traits",
				object{"resource_provider_generation": h.generation(attackerNode), "traits": []string{trait}})) {
				count++
			}
		}
		return count
	}
	row("traits of five kinds that the host never had", 0,
		taken("HW_GPU_API_VULKAN", "STORAGE_DISK_SSD", "CUSTOM_SEEN", "COMPUTE_SECURITY_TPM_2_0", "OWNER_CYBORG"))
	row("traits that are free (`COMPUTE_NET_VIRTIO_PACKED`, `OWNER_NOVA`, `HW_NUMA_ROOT`)",
		0, taken("COMPUTE_NET_VIRTIO_PACKED", "OWNER_NOVA", "HW_NUMA_ROOT"))
	most := 10 // what it gave back it does not get again
	for most > 0 && !h.takes(put(guest, holds(attackerNode, most, 1))) {
		most--
	}
	row("`VCPU` that its guest holds", 4, most)
	row("`VCPU` of another project on its own tree, which count for that project's quota",
		0, h.largest(func(n int) asked {
			return put("/allocations/"+newGuest, with(holds(attackerNode, n, nil), object{"project_id": "rich"}))
		}))
	row("`VCPU` on the tree of another host", 0,
		h.largest(func(n int) asked { return put("/allocations/"+newGuest, holds(victimNode, n, nil)) }))

	// It removes all it has and begins again. A host that has come before has no new hour.
	released := 0
	if h.takes(asked{method: http.MethodDelete, path: guest}) {
		released = 4
	}
	row("`VCPU` that its guest holds and that are released, so that they count for no quota any more", 4, released)
	h.takes(asked{method: http.MethodDelete, path: ownProvider})
	h.takes(post("/resource_providers", object{"name": attacker, "uuid": attackerNode}))
	row("`VCPU` in one inventory, after its tree was removed and made again",
		10, h.largest(func(n int) asked { return h.offer(object{"VCPU": object{"total": n}}) }))

	golden.Section(t, "../../docs/identity.md", "<!-- claims of a thief: begin -->", "<!-- claims of a thief: end -->",
		"| what the thief claims | the host has | Placement takes |\n|---|---|---|\n"+text)
}
