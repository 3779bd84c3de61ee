// SPDX-License-Identifier: Apache-2.0

package serverstate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRefusedRebuildChangesNothing: whatever a rebuild asks for, and whatever its owner changes
// while it has not begun, a host that refuses it leaves the server as if only these changes had
// been made.
func TestRefusedRebuildChangesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	word := rapid.SampledFrom([]string{"a", "b", "c"})
	patches := rapid.Custom(func(t *rapid.T) (p cellwire.ServerPatch) {
		optional := func(label string) *string {
			if !rapid.Bool().Draw(t, label+" given") {
				return nil
			}
			return new(word.Draw(t, label))
		}
		p.Name, p.Description, p.AccessIPv4, p.DiskConfig =
			optional("name"), optional("description"), optional("address"), optional("disk config")
		p.NoDescription = p.Description == nil && rapid.Bool().Draw(t, "no description")
		if rapid.Bool().Draw(t, "metadata given") {
			p.Metadata = &cellwire.MetadataPatch{Replace: rapid.Bool().Draw(t, "replace"),
				Set: map[string]string{word.Draw(t, "key"): word.Draw(t, "value")}}
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.SampledFrom([]string{"active/ launched running", "stopped/ launched off"}).Draw(t, "state")
		with, without := record(state), record(state)
		for _, r := range []*serverstate.Record{with, without} {
			r.Server.ImageRef, r.Server.Name, r.Server.KeyName, r.Server.KeyData, r.Server.UserData =
				"old", "was", "k", "key", "data"
			r.Server.Metadata, r.Server.Tags = map[string]string{"a": "1"}, []string{"t"}
		}
		request := cellwire.RebuildRequest{ImageRef: "new", Patch: patches.Draw(t, "rebuild")}
		if rapid.Bool().Draw(t, "keyed") {
			request.Key, request.UserData = &cellwire.ServerKey{Name: "other", Data: "one"}, new("other")
		}
		testproc.Try(with.Rebuild(request)).Or(t)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			patch := patches.Draw(t, "change")
			for _, r := range []*serverstate.Record{with, without} {
				testproc.Try(r.Patch(patch)).Or(t)
			}
		}
		power := rapid.SampledFrom([]plugins.PowerState{plugins.PowerRunning, plugins.PowerShutdown}).Draw(t, "power")
		fault := cellwire.Fault{Message: "there is no image"}
		if changed, refused := with.Apply(cellwire.Report{Kind: cellwire.ReportSettled, PowerState: power, Revision: 5,
			Fault: &fault}, now); !changed || refused != "" {
			t.Fatalf("the report is refused: %q", refused)
		}
		without.Apply(cellwire.Report{Kind: cellwire.ReportPower, PowerState: power}, now)
		fault.Created = serverstate.TruncateTime(now)
		without.Server.Fault = &fault
		testproc.Samef(t, cmp.Diff(without, with), "the server (-without the rebuild +with it)")
	})
}
