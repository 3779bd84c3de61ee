// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"
	"time"
)

// Tracker tracks conditions over time. The zero value is ready to use. It is not safe for
// concurrent use.
type Tracker struct {
	seen map[key]*seen
}

type key struct {
	code    Code
	subject Subject
}

type seen struct {
	condition Condition
	shown     bool
}

// Report has the current conditions and the changes since the last report, the worst first.
type Report struct {
	Conditions []Condition
	// Appeared are new conditions, Gone those that have ended.
	Appeared, Gone []Condition
}

// Observe converts all current findings to conditions. A finding that persists keeps its Since, and
// becomes a condition after its TimeToVisible. Of several findings with the same code and subject
// the first counts. A code without a definition is a bug and panics.
func (t *Tracker) Observe(now time.Time, found []Finding) Report {
	var report Report
	next := make(map[key]*seen, len(found))
	for _, f := range found {
		k := key{f.Code, f.Subject}
		if next[k] != nil {
			continue
		}
		def := Define(f.Code)
		s := &seen{condition: Condition{
			Code: f.Code, Severity: def.Severity, Subject: f.Subject, Title: def.Title, Text: f.Text,
			Details: slices.Clone(f.Details),
			Meaning: def.Meaning, Hint: def.Hint, Runbook: def.Runbook(), Since: now,
		}}
		if f.Hint != "" {
			s.condition.Hint = f.Hint
		}
		s.condition.Meaning, s.condition.Hint = f.Subject.named(s.condition.Meaning), f.Subject.named(s.condition.Hint)
		if old := t.seen[k]; old != nil {
			s.condition.Since, s.shown = old.condition.Since, old.shown
		}
		next[k] = s
		if !s.shown && now.Sub(s.condition.Since) < def.TimeToVisible {
			continue
		}
		if !s.shown {
			s.shown = true
			report.Appeared = append(report.Appeared, s.condition)
		}
		report.Conditions = append(report.Conditions, s.condition)
	}
	for k, s := range t.seen {
		if s.shown && next[k] == nil {
			report.Gone = append(report.Gone, s.condition)
		}
	}
	t.seen = next
	for _, list := range [][]Condition{report.Conditions, report.Appeared, report.Gone} {
		slices.SortFunc(list, order)
	}
	return report
}
