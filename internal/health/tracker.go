// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"
	"time"
)

// Tracker remembers since when what is found is so. The zero value has seen nothing. It is not safe for concurrent use.
type Tracker struct {
	known map[key]*seen
}

type key struct {
	code    Code
	subject Subject
}

type seen struct {
	condition Condition
	shown     bool
}

// Report is what is so at a moment, and what is new about it. All are ordered: the worst first.
type Report struct {
	Conditions []Condition
	// Appeared are those of Conditions that the report before did not have, Gone those that it had and this one has not.
	Appeared, Gone []Condition
}

// Observe takes all that is found at a moment. A finding that stays keeps its Since; one that was away, however shortly, begins anew. It
// becomes a condition when it has lasted for its TimeToVisible. Of findings of one code and subject the first counts, and a code
// without a definition is a defect and panics.
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
			Code: f.Code, Severity: def.Severity, Subject: f.Subject, Title: def.Title, Text: f.Text, Details: slices.Clone(f.Details),
			Meaning: def.Meaning, Remedy: def.Remedy, Since: now,
		}}
		if f.Remedy != "" {
			s.condition.Remedy = f.Remedy
		}
		s.condition.Meaning, s.condition.Remedy = f.Subject.named(s.condition.Meaning), f.Subject.named(s.condition.Remedy)
		if old := t.known[k]; old != nil {
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
	for k, s := range t.known {
		if s.shown && next[k] == nil {
			report.Gone = append(report.Gone, s.condition)
		}
	}
	t.known = next
	for _, list := range [][]Condition{report.Conditions, report.Appeared, report.Gone} {
		slices.SortFunc(list, order)
	}
	return report
}
