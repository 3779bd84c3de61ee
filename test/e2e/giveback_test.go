// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// byNova26 is a host as Nova 26 leaves it: no provider has OWNER_NOVA.
var byNova26 = slices.Concat([]string{strings.Replace(byNova[0], " +OWNER_NOVA", "", 1),
	"cn1_gpu1 <cn1 VGPU=4/4 +CUSTOM_GPU_A"}, byNova[1:])

// TestGiveBack: the agent adopts a tree of Nova's, changes each kind of thing in it, and gives it
// back as it was.
func TestGiveBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kind, empty := range placements(t) {
		t.Run(kind, func(t *testing.T) {
			p := newPlay(t, empty(t))
			p.others(byNova26)
			check(t, os.MkdirAll(p.state(), 0o700))
			check(t, os.WriteFile(filepath.Join(p.state(), resourcetracker.IdentityFile), []byte(nodeUUID+"\n"), 0o600))
			before := p.look()
			giveBack := func(want int, says string, args ...string) {
				t.Helper()
				out, code := command(t, append([]string{"adopt", "--give-back", "--config", p.config}, args...)...)
				if code != want || !strings.Contains(out, says) {
					t.Errorf("give back %q: exit code %d, want %d and %q:\n%s", args, code, want, says, out)
				}
			}
			p.write(sameAsNova, "")
			testproc.Equal(t, p.settle(), 0, "the adoption takes %d writes")
			agent := p.run() // the fake driver does not know from one start to the next what it said
			agent.awaitAny(passDone)
			p.write(otherThanNova, "") // less traits and classes, and a GPU of its own
			mark := agent.Mark()
			agent.signal(syscall.SIGHUP)
			agent.await(mark, wrote, "Set the traits of cn1: -HW_CPU_X86_AVX2")
			agent.await(mark, passDone)
			giveBack(3, "the agent runs", "--yes")
			agent.stop()
			changed := p.look()
			if cmp.Equal(before, changed) {
				t.Fatal("the agent changed nothing")
			}

			// What is allocated keeps the node from being given back.
			p.others([]string{"claim bob cn1_gpu:VGPU=1"})
			giveBack(3, "1 VGPU of cn1_gpu by ", "--yes")
			p.others([]string{"free bob"})

			changed = p.look()
			giveBack(0, "delete resource provider cn1_gpu", "--dry-run")
			testproc.Samef(t, cmp.Diff(changed, p.look()), "the dry run wrote")
			giveBack(0, "Done:", "--yes")
			after := p.look()
			before.Generations, after.Generations = nil, nil // they only grow
			testproc.Samef(t, cmp.Diff(before, after), "the tree is not what it was (-Nova +given back)")
			giveBack(0, "Nothing to do for node", "--yes")

			p.write(sameAsNova, "")
			testproc.Equal(t, p.settle(), 0, "adopting it again takes %d writes")
		})
	}
}
