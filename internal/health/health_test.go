// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// lines says a report in short.
func lines(r health.Report) []string {
	out := []string{}
	for _, c := range r.Conditions {
		out = append(out, fmt.Sprintf("%s %s since %s", c.Subject, c.Code, c.Since.Format("15:04:05")))
	}
	for _, c := range r.Appeared {
		out = append(out, fmt.Sprintf("+ %s %s", c.Subject, c.Code))
	}
	for _, c := range r.Gone {
		out = append(out, fmt.Sprintf("- %s %s", c.Subject, c.Code))
	}
	return out
}

// TestTracker is a sequence of findings with the conditions that follow.
func TestTracker(t *testing.T) {
	refused := health.Finding{Code: health.CredentialsRefused, Subject: health.OfNode("cn1"), Text: "401"}
	away := health.Finding{Code: health.PlacementUnreachable, Subject: health.OfNode("cn1"), Text: "connection refused"}
	disabled := health.Finding{Code: health.NodeDisabled, Subject: health.OfNode("cn1")}
	elsewhere := health.Finding{Code: health.CredentialsRefused, Subject: health.OfNode("cn2")}
	var tracker health.Tracker
	now := noon
	for _, step := range []struct {
		name  string
		after time.Duration
		found []health.Finding
		want  []string
	}{
		{"all is well", 0, nil, []string{}},
		{"what takes no time to be visible is there at once", time.Minute, []health.Finding{disabled, refused},
			[]string{"node cn1 credentials-refused since 12:01:00", "node cn1 node-disabled since 12:01:00",
				"+ node cn1 credentials-refused", "+ node cn1 node-disabled"}},
		{"and is listed once; the worst is first; nodes have their own", time.Minute,
			[]health.Finding{disabled, refused, elsewhere},
			[]string{"node cn1 credentials-refused since 12:01:00", "node cn2 credentials-refused since 12:02:00",
				"node cn1 node-disabled since 12:01:00", "+ node cn2 credentials-refused"}},
		{"until it is over", time.Minute, []health.Finding{disabled},
			[]string{"node cn1 node-disabled since 12:01:00", "- node cn1 credentials-refused",
				"- node cn2 credentials-refused"}},
		{"a flicker is not shown", time.Minute, []health.Finding{away}, []string{"- node cn1 node-disabled"}},
		{"also not for the second time, right after", 20 * time.Second, nil, []string{}},
		{"it begins again", time.Second, []health.Finding{away}, []string{}},
		{"until it lasts; then it counts from its beginning", 30 * time.Second, []health.Finding{away, away},
			[]string{"node cn1 placement-unreachable since 12:04:21", "+ node cn1 placement-unreachable"}},
		{"and goes without delay", time.Second, nil, []string{"- node cn1 placement-unreachable"}},
	} {
		now = now.Add(step.after)
		testproc.Samef(t, cmp.Diff(step.want, lines(tracker.Observe(now, step.found))), "%s", step.name)
	}
}

// TestWhatADriverWarnsOfComesAfterWhatDoesNotWork: the first condition is what systemd shows in one
// line: a driver's warnings come after what does not work.
func TestWhatADriverWarnsOfComesAfterWhatDoesNotWork(t *testing.T) {
	var tracker health.Tracker
	found := []health.Finding{
		{Code: health.DriverWarnings, Subject: health.OfDriver("libvirt"), Text: "1: traits-swtpm"},
		{Code: health.PluginDegraded, Subject: health.OfPlugin("libvirt")},
		{Code: health.ReshapeLate, Subject: health.OfNode("cn1")},
		{Code: health.NodeDisabled, Subject: health.OfNode("cn1")},
		{Code: health.CredentialsRefused, Subject: health.OfNode("cn1")},
	}
	tracker.Observe(noon, found)
	var got []health.Code
	for _, c := range tracker.Observe(noon.Add(time.Hour), found).Conditions {
		got = append(got, c.Code)
	}
	want := []health.Code{health.CredentialsRefused, health.ReshapeLate, health.PluginDegraded,
		health.DriverWarnings, health.NodeDisabled}
	testproc.Same(t, cmp.Diff(want, got))
}

func TestConditionHasDefinitionAndFinding(t *testing.T) {
	var tracker health.Tracker
	details := []string{"one"}
	got := tracker.Observe(noon,
		[]health.Finding{{Code: health.ReshapeHeld, Subject: health.OfNode("cn1"), Text: "no capacity",
			Details: details, Hint: "free capacity"}}).Conditions[0]
	details[0] = "changed by the caller"
	def := health.Define(health.ReshapeHeld)
	want := health.Condition{
		Code: "reshape-held", Severity: health.Critical,
		Subject: "node cn1", Title: def.Title, Text: "no capacity", Details: []string{"one"},
		Meaning: def.Meaning, Hint: "free capacity", Runbook: def.Runbook(), Since: noon,
	}
	testproc.Same(t, cmp.Diff(want, got))
	testproc.Equal(t, got.String(), "node cn1: "+def.Title+": no capacity", "the condition: %v")
	agent := tracker.Observe(noon, []health.Finding{{Code: health.NoDriver, Subject: health.Agent}}).Conditions[0]
	if s := agent.String(); s != "no driver is configured" || agent.Hint != health.Define(health.NoDriver).Hint {
		t.Error(s, agent.Hint)
	}
	testproc.Equal(t, health.Worst([]health.Condition{{Severity: health.Info}, agent}), health.Critical, "Worst: %v")
	testproc.Equal(t, health.Worst(nil), "", "Worst: %v")
}

// TestConditionsNameTheirSubject: commands in hints can be copied.
func TestConditionsNameTheirSubject(t *testing.T) {
	found := []health.Finding{
		{Code: health.DriverRefused, Subject: health.OfDriver("kvm")},
		{Code: health.PluginQuarantined, Subject: health.OfPlugin("kvm")},
		{Code: health.NodeOrphaned, Subject: health.OfNode("cn1")},
	}
	var tracker health.Tracker
	all := ""
	for _, c := range tracker.Observe(noon, found).Conditions {
		all += c.Meaning + " " + c.Hint + "\n"
	}
	for _, want := range []string{"[drivers.kvm.config]", "drivers.kvm.unavailable_grace", "node remove cn1`"} {
		testproc.Contains(t, all, want, "%q is not in:\n%s", want)
	}
	if strings.Contains(all, "NAME") {
		t.Errorf("NAME is not replaced in:\n%s", all)
	}
}

// TestChangesAreReportedOnce: conditions are those that appeared and are not gone.
func TestChangesAreReportedOnce(t *testing.T) {
	codes := health.Definitions()
	rapid.Check(t, func(t *rapid.T) {
		var tracker health.Tracker
		now := noon
		there := map[string]bool{}
		name := func(c health.Condition) string { return string(c.Code) + string(c.Subject) }
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			var found []health.Finding
			for range rapid.IntRange(0, 4).Draw(t, "found") {
				found = append(found, health.Finding{
					Code:    rapid.SampledFrom(codes[:6]).Draw(t, "code").Code,
					Subject: rapid.SampledFrom([]health.Subject{health.Agent, health.OfNode("cn1")}).Draw(t, "subject"),
				})
				found = append(found,
					health.Finding{Code: rapid.SampledFrom(
						[]health.Code{health.PluginDown, health.PlacementUnreachable}).Draw(t, "slow"),
						Subject: health.Agent})
			}
			report := tracker.Observe(now, found)
			for _, c := range report.Appeared {
				if there[name(c)] {
					t.Fatalf("%s appeared twice", name(c))
				}
				there[name(c)] = true
			}
			for _, c := range report.Gone {
				if !there[name(c)] {
					t.Fatalf("%s is gone without having been there", name(c))
				}
				delete(there, name(c))
			}
			if len(report.Conditions) != len(there) {
				t.Fatalf("conditions are %v, reported were %v", report.Conditions, there)
			}
			for _, c := range report.Conditions {
				if !there[name(c)] || now.Sub(c.Since) < health.Define(c.Code).TimeToVisible {
					t.Fatalf("%s is too early, or not reported", name(c))
				}
			}
		}
	})
}

func TestDefinitions(t *testing.T) {
	seen := map[health.Code]bool{}
	for _, d := range health.Definitions() {
		if seen[d.Code] {
			t.Errorf("%s is defined twice", d.Code)
		}
		seen[d.Code] = true
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(string(d.Code)) || d.Title == "" || d.Hint == "" ||
			!strings.HasSuffix(d.Meaning, ".") {
			t.Errorf("%+v is incomplete", d)
		}
		if !d.Severity.Worse("") {
			t.Errorf("%s: severity %q", d.Code, d.Severity)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a code without a definition is accepted")
		}
	}()
	health.Define("no-such-code")
}

// TestRunbooksHaveDefinitions: the page of runbooks has a section for each condition, in the order
// of the definitions, with what they say; the rest of a section is written by hand.
func TestRunbooksHaveDefinitions(t *testing.T) {
	const page = "../../docs/runbooks/conditions.md"
	content := testproc.Try(os.ReadFile(page)).Or(t)
	header, sections, _ := strings.Cut(string(content), "\n## ")
	byHand := map[string]map[string]string{} // by code and part
	for section := range strings.SplitSeq(sections, "\n## ") {
		code, text, _ := strings.Cut(section, "\n")
		parts := map[string]string{}
		for bullet := range strings.SplitSeq(text, "\n- **") {
			if name, rest, found := strings.Cut(bullet, ":**"); found {
				parts[name] = strings.TrimRight(rest, "\n")
			}
		}
		byHand[strings.Trim(code, "`")] = parts
	}
	var want strings.Builder
	want.WriteString(header)
	for _, d := range health.Definitions() {
		severity := string(d.Severity)
		if d.TimeToVisible > 0 {
			severity += fmt.Sprintf(", shown after %d s", int(d.TimeToVisible.Seconds()))
		}
		hand := byHand[string(d.Code)]
		for _, part := range []string{"Still works", "Look at", "Escalate"} {
			if strings.TrimSpace(hand[part]) == "" {
				t.Errorf("%s: %s has no %q; -update writes no such text", page, d.Code, part)
			}
		}
		_, more, _ := strings.Cut(hand["Do"], "\n") // lines below that of the definition
		if more != "" {
			more = "\n" + more
		}
		_, _ = fmt.Fprintf(&want,
			"\n## `%s`\n\n- **Means:** (%s) %s. %s\n- **Still works:**%s\n- **Look at:**%s\n- **Do:** %s.%s\n- "+
				"**Escalate:**%s\n",
			d.Code, severity, d.Title, d.Meaning, hand["Still works"], hand["Look at"], d.Hint, more, hand["Escalate"])
	}
	golden.Text(t, page, want.String())
}

// BenchmarkObserve evaluates a thousand nodes with problems.
func BenchmarkObserve(b *testing.B) {
	var tracker health.Tracker
	found := make([]health.Finding, 0, 1000)
	for i := range 1000 {
		found = append(found, health.Finding{Code: health.CredentialsRefused,
			Subject: health.OfNode(fmt.Sprintf("cn%d", i)), Text: "401"})
	}
	b.ReportAllocs()
	for b.Loop() {
		tracker.Observe(noon, found)
	}
}
