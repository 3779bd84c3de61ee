// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"sync"
	"testing"
)

// TestConcurrentBoots: servers that are asked for at the same time are all made, each once; quotas
// are not exceeded by asking at the same time; and a cell that dies in the middle costs none of
// them.
func TestConcurrentBoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{cells: []string{"cell1", "cell2", "cell3"}})
	defer func() { w.close(t, t.Failed()) }()
	w.api.ask(t, admin, "2.69", "PUT", "/os-quota-sets/bounded", record{"quota_set": record{"instances": 5}}).status(t, 200)
	const free, bounded, doomed = 24, 12, 10
	ask := func(project string, n int) (names []string, refused int) {
		var all sync.WaitGroup
		answers := make([]*answer, n)
		for i := range n {
			all.Go(func() { answers[i] = w.api.post(t, of(project), fmt.Sprintf("%s%d", project, i), nil) })
		}
		all.Wait()
		for i, a := range answers {
			name := fmt.Sprintf("%s%d", project, i)
			if a != nil && a.code == 403 {
				a.fault(t, "forbidden", 403)
				refused++
				continue
			}
			w.accepted(t, a, name)
			names = append(names, name)
		}
		return names, refused
	}
	var made, few []string
	var refused int
	var both sync.WaitGroup
	both.Go(func() { made, _ = ask("free", free) })
	both.Go(func() { few, refused = ask("bounded", bounded) })
	both.Wait()
	if len(few) != 5 || refused != bounded-5 {
		t.Errorf("%d were accepted and %d refused, of %d with a quota of 5", len(few), refused, bounded)
	}
	w.settled(t, "ACTIVE", append(made, few...)...)

	// These are on their way when cell1 dies. Those that it has are made when it is back.
	late, _ := ask("doomed", doomed)
	w.down(t, "cell1")
	w.up(t)
	w.settled(t, "ACTIVE", late...)
	for _, names := range [][]string{made, few, late} {
		for _, name := range names {
			host, _ := w.show(t, admin, "2.69", name).server(t)["OS-EXT-SRV-ATTR:host"].(string)
			w.builtOn(t, w.id(t, name), name, host)
		}
	}

	// And all of it goes again, at the same time.
	var all sync.WaitGroup
	for _, name := range append(made, late...) {
		all.Go(func() { w.api.ask(t, admin, "2.69", "DELETE", "/servers/"+w.id(t, name), nil).status(t, 204) })
	}
	all.Wait()
	for _, name := range append(made, late...) {
		w.gone(t, name)
		w.free(t, w.id(t, name))
	}
	if left := w.written(t)["allocations"]; left != len(few) {
		t.Errorf("Placement has allocations of %d servers, and there are %d", left, len(few))
	}
	w.soundly(t)
}
