// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestCheckWarnings(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	announced := []string{protocol.CapabilityWarnings}
	var many []*driverv1.Warning
	for i := range 150 {
		many = append(many, &driverv1.Warning{Name: fmt.Sprintf("w-%03d", i), Text: "x"})
	}
	for _, c := range []struct {
		name         string
		msgs         []*driverv1.Warning
		capabilities []string
		want         []string // names
		problem      string   // in the text of unusable-warnings
	}{
		{"none", nil, announced, nil, ""},
		{"not announced, and none", nil, nil, nil, ""},
		{"ordered", []*driverv1.Warning{{Name: "b", Text: "x"}, {Name: "a-0000:82:00.0", Text: "y"}}, announced,
			[]string{"a-0000:82:00.0", "b"}, ""},
		{"not announced", []*driverv1.Warning{{Name: "a", Text: "x"}}, nil, []string{unusableWarnings},
			`does not announce the capability "warnings"`},
		{"names that cannot be", []*driverv1.Warning{{Name: "A", Text: "x"}, {Name: "", Text: "x"},
			{Name: "-a", Text: "x"}, {Name: "a\n", Text: "x"},
			{Name: strings.Repeat("a", 81), Text: "x"},
			nil, {Name: "z", Text: "x"}}, announced, []string{unusableWarnings, "z"}, "6 defects"},
		{"twice", []*driverv1.Warning{{Name: "a", Text: "x"}, {Name: "a", Text: "y"}}, announced,
			[]string{"a", unusableWarnings}, "a is listed twice"},
		{"no text", []*driverv1.Warning{{Name: "a", Text: " \n"}}, announced,
			[]string{unusableWarnings}, "a has no text"},
		{"the longest name", []*driverv1.Warning{{Name: strings.Repeat("a", 80), Text: "x"}}, announced,
			[]string{strings.Repeat("a", 80)}, ""},
	} {
		got := checkWarnings(c.msgs, c.capabilities)
		var names []string
		problem := ""
		for _, w := range got {
			names = append(names, w.Name)
			if w.Name == unusableWarnings {
				problem = w.Text
			}
		}
		if diff := cmp.Diff(c.want, names); diff != "" || !strings.Contains(problem, c.problem) {
			t.Errorf("%s: %q: (-want +got)\n%s", c.name, problem, diff)
		}
	}
	got := checkWarnings(many, announced)
	if n := len(got); n != protocol.MaxWarnings+1 || got[0].Name != unusableWarnings ||
		!strings.Contains(got[0].Text, "150 were reported, at most 100 are allowed") {
		t.Errorf("checkWarnings: got %d, the first %v, want the maximum and one about the others", n, got[0])
	}
}

// TestWarningsAreBoundedAndFit: whatever a plugin sends, what is shown is a list that people can
// read.
func TestWarningsAreBoundedAndFit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(rapid.StringMatching(`[a-c]{1,2}`), rapid.String(), rapid.StringN(0, 100, 200))
		msgs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *driverv1.Warning {
			return &driverv1.Warning{Name: names.Draw(t, "name"),
				Text: strings.Repeat(rapid.String().Draw(t, "text"),
					rapid.SampledFrom([]int{1, 5000}).Draw(t, "times"))}
		}), 0, 130).Draw(t, "warnings")
		got := checkWarnings(msgs, []string{protocol.CapabilityWarnings})
		if len(got) > protocol.MaxWarnings+1 ||
			!slices.IsSortedFunc(got, func(a, b plugins.Warning) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("checkWarnings: got %d: %v, want a bounded and sorted list", len(got), got)
		}
		kept := map[string]bool{}
		for _, w := range got {
			if !protocol.IsWarningName(w.Name) || kept[w.Name] || w.Text == "" ||
				printable(w.Text, maxWarningBytes+20) != w.Text {
				t.Errorf("%.200q", w)
			}
			kept[w.Name] = true
		}
		for _, m := range msgs[:min(len(msgs), protocol.MaxWarnings)] { // what can be used is not lost
			if protocol.IsWarningName(m.GetName()) && strings.TrimSpace(m.GetText()) != "" && !kept[m.GetName()] {
				t.Errorf("%q is lost", m.GetName())
			}
		}
	})
}
