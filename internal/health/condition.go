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
	// Info: intended, or no action is needed.
	Info Severity = "info"
	// Warning: Placement may be outdated or incomplete. It may resolve itself; check it if it
	// persists.
	Warning Severity = "warning"
	// Critical: it does not resolve itself, and Placement is not kept up to date for a node.
	Critical Severity = "critical"
)

// Severities returns all severities, the worst last.
func Severities() []Severity { return []Severity{Info, Warning, Critical} }

// Worse reports whether a severity is worse than another.
func (s Severity) Worse(than Severity) bool {
	return slices.Index(Severities(), s) > slices.Index(Severities(), than)
}

// Code identifies a kind of condition. Codes are a contract with scripts and alerts: they are never
// renamed.
type Code string

// Definition defines a condition.
type Definition struct {
	Code     Code
	Severity Severity
	// Title is a short description.
	Title string
	// Meaning is the effect on guests and scheduling.
	Meaning string
	// Hint is what an operator can do.
	Hint string
	// TimeToVisible is how long it must last before it is reported, because shorter ones are
	// normal.
	TimeToVisible time.Duration
}

// runbooks is the page with a section for each condition.
const runbooks = "https://github.com/compute-agent/compute-agent/blob/main/docs/runbooks/conditions.md#"

// Runbook is the address of the section of docs/runbooks about the condition.
func (d Definition) Runbook() string { return runbooks + string(d.Code) }

// Subject is the object of a condition: "agent", "driver NAME", "plugin NAME" or "node NAME".
type Subject string

// Agent is the subject of conditions of the agent as a whole.
const Agent Subject = "agent"

// OfDriver is the subject of conditions of a driver.
func OfDriver(name string) Subject { return Subject("driver " + name) }

// OfPlugin is the subject of conditions of a driver's process.
func OfPlugin(name string) Subject { return Subject("plugin " + name) }

// OfNode is the subject of conditions of a compute node.
func OfNode(name string) Subject { return Subject("node " + name) }

// named replaces NAME in a definition's text.
func (s Subject) named(text string) string {
	kind, name, _ := strings.Cut(string(s), " ")
	switch kind {
	case "driver", "plugin":
		return strings.ReplaceAll(text, "drivers.NAME", "drivers."+name)
	case "node":
		return strings.NewReplacer("node remove NAME", "node remove "+name, "node give NAME", "node give "+name).
			Replace(text)
	}
	return text
}

// Finding is the input for a condition: a problem at a moment.
type Finding struct {
	Code    Code
	Subject Subject
	// Text is the specific problem, "" if the title is enough.
	Text string
	// Details are a list of affected objects.
	Details []string
	// Hint, if not "", replaces that of the definition.
	Hint string
	// Fails means that a driver or a pass fails for it, which makes the agent degraded, however
	// severe the condition is.
	Fails bool
}

// Condition is a current condition.
type Condition struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Subject  Subject  `json:"subject"`
	Title    string   `json:"title"`
	Text     string   `json:"text,omitempty"`
	Details  []string `json:"details,omitempty"`
	Meaning  string   `json:"meaning"`
	Hint     string   `json:"remedy"`
	// Runbook is the address of what else an operator can look at and do.
	Runbook string    `json:"runbook"`
	Since   time.Time `json:"since"`
}

// String formats the condition in one line.
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

// order sorts conditions by severity, the worst first, then by subject and code. Warnings of
// drivers come last, because the first condition is the one in systemd's status line.
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
