// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity is how bad a condition is.
type Severity string

// The severities.
const (
	// Info: it is as somebody wants it, or nothing needs to be done; it explains what is seen.
	Info Severity = "info"
	// Warning: what Placement says may grow old, or is not all that it could be. It may mend itself; look when it lasts.
	Warning Severity = "warning"
	// Critical: it does not mend itself, and what Placement says of a node is not kept true.
	Critical Severity = "critical"
)

// Severities are all, the worst last.
func Severities() []Severity { return []Severity{Info, Warning, Critical} }

// Worse tells whether a severity is worse than another.
func (s Severity) Worse(than Severity) bool {
	return slices.Index(Severities(), s) > slices.Index(Severities(), than)
}

// Code names a kind of condition. Codes are a contract with scripts and alerts: they are added to, not renamed.
type Code string

// Definition is what is known of a condition before it is there.
type Definition struct {
	Code     Code
	Severity Severity
	// Title is what is so, in a few words.
	Title string
	// Meaning is what it means for guests and for scheduling.
	Meaning string
	// Remedy is what a person can do.
	Remedy string
	// TimeToVisible is how long it must last before it is shown: shorter ones are normal.
	TimeToVisible time.Duration
}

// Subject is what a condition is about: "agent", "driver NAME", "plugin NAME" or "node NAME".
type Subject string

// Agent is the subject of conditions of the agent as a whole.
const Agent Subject = "agent"

// OfDriver is the subject of what a driver says or refuses.
func OfDriver(name string) Subject { return Subject("driver " + name) }

// OfPlugin is the subject of what happens to a driver's process.
func OfPlugin(name string) Subject { return Subject("plugin " + name) }

// OfNode is the subject of what is so of one compute node.
func OfNode(name string) Subject { return Subject("node " + name) }

// named puts the name of the driver, or of the node, into a definition's words.
func (s Subject) named(words string) string {
	kind, name, _ := strings.Cut(string(s), " ")
	switch kind {
	case "driver", "plugin":
		return strings.ReplaceAll(words, "drivers.NAME", "drivers."+name)
	case "node":
		return strings.NewReplacer("node remove NAME", "node remove "+name, "node give NAME", "node give "+name).Replace(words)
	}
	return words
}

// Finding is a condition as it is found at a moment.
type Finding struct {
	Code    Code
	Subject Subject
	// Text is what exactly is so, "" if the title says all.
	Text string
	// Details are a list of things that the text is about.
	Details []string
	// Remedy, if not "", is better than the definition's.
	Remedy string
}

// Condition is one that is there.
type Condition struct {
	Code     Code      `json:"code"`
	Severity Severity  `json:"severity"`
	Subject  Subject   `json:"subject"`
	Title    string    `json:"title"`
	Text     string    `json:"text,omitempty"`
	Details  []string  `json:"details,omitempty"`
	Meaning  string    `json:"meaning"`
	Remedy   string    `json:"remedy"`
	Since    time.Time `json:"since"`
}

// String says it in one line.
func (c Condition) String() string {
	s := c.Title
	if c.Subject != Agent {
		s = fmt.Sprintf("%s: %s", c.Subject, s)
	}
	if c.Text != "" {
		s += ": " + c.Text
	}
	return s
}

// Worst returns the severity of the worst condition, "" if there is none.
func Worst(conditions []Condition) Severity {
	var worst Severity
	for _, c := range conditions {
		if c.Severity.Worse(worst) {
			worst = c.Severity
		}
	}
	return worst
}

// order sorts conditions: the worst first, then by subject and code. What a driver merely warns of comes after all that keeps something from
// working: the first condition is the one line that systemd shows.
func order(a, b Condition) int {
	switch {
	case a.Severity.Worse(b.Severity):
		return -1
	case b.Severity.Worse(a.Severity):
		return 1
	case (a.Code == DriverWarnings) != (b.Code == DriverWarnings):
		if b.Code == DriverWarnings {
			return -1
		}
		return 1
	}
	if n := strings.Compare(string(a.Subject), string(b.Subject)); n != 0 {
		return n
	}
	return strings.Compare(string(a.Code), string(b.Code))
}
