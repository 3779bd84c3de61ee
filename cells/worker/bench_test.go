// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// BenchmarkHost is what a host with ten thousand guests costs: to take over all of them, to take
// over one more, and to compare all with the driver's list when nothing changed.
func BenchmarkHost(b *testing.B) {
	const n, node = 10_000, "11111111-1111-4111-8111-111111111111"
	work := cellwire.Work{Epoch: "e", Revision: n, Complete: true}
	var listed []plugins.Instance
	for i := range n {
		uuid := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i)
		work.Items = append(work.Items,
			cellwire.WorkItem{Want: cellwire.WantPresent,
				Server: cellwire.Server{UUID: uuid, NodeUUID: node, VMState: cellwire.VMActive,
					PowerState: plugins.PowerRunning, Revision: int64(i)}})
		listed = append(listed, plugins.Instance{UUID: uuid, Power: plugins.PowerRunning})
	}
	w := New(Config{Logger: zerolog.Nop()})
	state := &nodeState{Node: Node{UUID: node}}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			w.merge(b.Context(), work)
		}
	})
	b.Run("one", func(b *testing.B) {
		one := cellwire.Work{Epoch: "e", Revision: n, Items: work.Items[:1]}
		for b.Loop() {
			w.merge(b.Context(), one)
		}
	})
	b.Run("compare", func(b *testing.B) {
		before := map[string]int{}
		for uuid := range w.servers {
			before[uuid] = 0
		}
		for b.Loop() {
			w.compare(b.Context(), state, listed, before)
		}
	})
	if w.outbox.len() > 0 {
		b.Error("something was reported, and nothing changed")
	}
}
