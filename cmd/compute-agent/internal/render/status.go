// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Status prints a summary line, then conditions with their fixes, then drivers and nodes. Ages are
// relative to now.
func Status(w io.Writer, s health.Status, now time.Time) error {
	p := newPrinter(w)
	p.line("compute-agent %s on %s: %s", s.Version, p.styled(bold, s.Host), p.styled(stateStyle(s), s.Summary))
	p.line("  process     %d, started %s", s.PID, agoText(s.Started, now))
	p.line("  config      %s", cmp.Or(strings.Join(s.ConfigFiles, ", "), "built-in defaults"))
	if !s.Reloaded.IsZero() {
		p.line("  reloaded    %s", agoText(s.Reloaded, now))
	}
	where := s.Placement.URL
	if s.Placement.Bundled {
		where += " (bundled, in this process)"
	}
	p.line("  placement   %s; %s sent, %d of them writes",
		where, textutil.Count(s.Placement.Requests, "request"), s.Placement.Writes)
	p.cell(s.Cell, now)
	p.identity(s.Identity, now)
	p.reasons("  disabled    ", s.Disabled)
	p.conditions(s.Conditions, now)
	explained := health.Worst(s.Conditions).Worse(health.Info)
	for _, d := range s.Drivers {
		p.driver(d, explained, now)
	}
	return p.err
}

// cell prints the state of the cell. Guests and servers that need attention are conditions.
func (p *printer) cell(c *health.Cell, now time.Time) {
	if c == nil {
		return
	}
	state := "not contacted yet"
	switch {
	case c.Up:
		state = "up (" + span(c.Since, now) + ")"
	case c.Denied:
		state = "rejects this agent (" + span(c.Since, now) + ")"
	case !c.Since.IsZero():
		state = "unreachable (" + span(c.Since, now) + ")"
	}
	p.line("  cell        %s: %s; %s, %d in progress, %s waiting", c.URL, state, textutil.Count(c.Servers, "server"),
		c.Busy, textutil.Count(c.Waiting, "report"))
	if !c.Up && c.Error != "" {
		p.line("              error: %s", c.Error)
	}
	p.line("              %d of %s created a guest, %d of %s removed one",
		c.Spawns.Succeeded, textutil.Count(c.Spawns.Succeeded+c.Spawns.Failed, "call"),
		c.Destroys.Succeeded, textutil.Count(c.Destroys.Succeeded+c.Destroys.Failed, "call"))
	switch {
	case !c.Up:
	case len(c.Held) > 0:
		p.line("              held: %s; nothing is done about servers there, and no others are scheduled there",
			strings.Join(c.Held, ", "))
	case len(c.Nodes) == 0:
		p.line("              no nodes: no driver of this host manages instances, so no servers are scheduled here")
	}
}

// identity prints the certificate of the host. What is wrong with it is a condition.
func (p *printer) identity(id *health.Identity, now time.Time) {
	if id == nil || id.Expires.IsZero() {
		return
	}
	until := "expires " + untilText(id.Expires, now)
	if id.Renews {
		until += ", renewed " + untilText(id.NextRenewal, now)
	}
	p.line("  identity    host %s; %s", id.Host, until)
	for _, n := range id.Nodes {
		p.line("              node %s", n)
	}
}

// span formats a duration until now.
func span(since, now time.Time) string { return strings.TrimSuffix(agoText(since, now), " ago") }

// conditions prints conditions, the worst first.
func (p *printer) conditions(all []health.Condition, now time.Time) {
	for _, c := range all {
		p.line("")
		subject := ""
		if c.Subject != health.Agent {
			subject = string(c.Subject) + ": "
		}
		p.line("%s: %s%s", p.styled(severityStyle(c.Severity), string(c.Severity)), subject, p.styled(bold, c.Title))
		p.line("  since       %s (%s)", agoText(c.Since, now), c.Code)
		if c.Text != "" {
			p.line("  what        %s", c.Text)
		}
		for _, d := range c.Details {
			p.line("              - %s", d)
		}
		p.line("  means       %s", c.Meaning)
		p.line("  what to do  %s", c.Hint)
		if c.Runbook != "" { // an older agent sends none
			p.line("  runbook     %s", c.Runbook)
		}
	}
}

// driver prints a driver and its nodes. explained means that conditions with hints were printed.
func (p *printer) driver(d health.Driver, explained bool, now time.Time) {
	p.line("")
	version := ""
	if d.Plugin.Version != "" {
		version = " " + d.Plugin.Version
	}
	p.line("driver %s%s: %s since %s", p.styled(bold, d.Name), version,
		p.styled(pluginStyle(d.Plugin.State), string(d.Plugin.State)), agoText(d.Plugin.Since, now))
	process := d.Plugin.Path
	if d.Plugin.PID != 0 {
		process += fmt.Sprintf(", process %d", d.Plugin.PID)
	}
	if d.Plugin.Restarts > 0 {
		process += ", restarted " + textutil.Count(d.Plugin.Restarts, "time")
	}
	if d.Plugin.Replacements > 0 {
		process += ", replaced " + textutil.Count(d.Plugin.Replacements, "time") + " by reloads"
	}
	p.line("  plugin      %s", process)
	if u := d.Plugin.Usage; u != nil {
		p.line("  uses        %s of memory, %s, %s, %s",
			mebibytes(u.MemoryBytes), textutil.Count(u.Processes, "process"), textutil.Count(u.Threads, "thread"),
			textutil.Count(u.OpenFiles, "open file"))
	}
	if d.Plugin.Sandbox != "" {
		p.line("  sandbox     %s", d.Plugin.Sandbox)
		for _, lack := range d.Plugin.SandboxLacks {
			p.line("              - %s", lack)
		}
	}
	if d.Plugin.SHA256 != "" {
		p.line("  sha256      %s", d.Plugin.SHA256)
	}
	switch {
	case d.Plugin.Error != "":
		p.line("  problem     %s", p.styled(bad, d.Plugin.Error))
	case d.Plugin.LastError != "":
		p.line("  last error  %s: %s", agoText(d.Plugin.LastErrorAt, now), d.Plugin.LastError)
	}
	if !d.Plugin.NextAttempt.IsZero() {
		p.line("  next retry  %s", untilText(d.Plugin.NextAttempt, now))
	}
	if !d.MissingSince.IsZero() {
		p.line("  missing     since %s; %s", agoText(d.MissingSince, now), consequence(d, now))
	}
	p.warnings(d.Warnings, now)
	if d.Report.Error != "" {
		p.problem("report", explained, d.Report.Error, d.Report.Hint)
	}
	for _, c := range d.Report.Contested {
		why := "another driver also names it, and it has no owner"
		if c.Owner != "" {
			why = "it belongs to driver " + c.Owner
		}
		p.line("  node        %s (%s): %s, %s", c.Name, c.UUID, p.styled(notice, "held"), why)
		if !explained {
			p.line("              what to do: %s", c.Hint)
		}
	}
	for _, n := range d.Report.Nodes {
		held := ""
		if n.Held {
			held = ", held: nothing is written until `compute-agent refresh`"
		}
		if n.DisabledReason != "" {
			held += ", disabled"
		}
		p.line("  node        %s (%s): %s%s", p.styled(bold, n.Name), p.styled(dim, n.UUID),
			p.styled(nodeStyle(n.State), string(n.State)), p.styled(notice, held))
		if w := n.Writing; w != nil {
			p.line("              writing to Placement for %s: %d of %d operations done",
				span(w.Since, now), w.Done, w.Operations)
		}
		switch {
		case n.State == resourcetracker.Orphaned: // it has no passes
		case n.LastSuccess.IsZero():
			p.line("              no pass has succeeded yet")
		default:
			p.line("              last sync %s; %s, %s",
				agoText(n.LastSuccess, now), textutil.Count(n.Passes, "pass"), textutil.Count(n.Writes, "write"))
		}
		if !n.LastChange.IsZero() {
			p.line("              last write %s: %s", agoText(n.LastChange, now), changes(n.Changes))
		}
		if n.Error != "" {
			p.problem("", explained, n.Error, n.Hint, n.Violations...)
		}
	}
}

// warnings prints a driver's warnings.
func (p *printer) warnings(all []pluginhost.Warning, now time.Time) {
	for i, w := range all {
		label := ""
		if i == 0 {
			label = "warnings"
		}
		p.line("  %s  %s (%s): %s", p.styled(dim, fmt.Sprintf("%-10s", label)),
			p.styled(notice, w.Name), agoText(w.Since, now), w.Text)
	}
}

// consequence describes what happens to the nodes of a missing driver.
func consequence(d health.Driver, now time.Time) string {
	switch {
	case d.DisablesAt.IsZero():
		return "its nodes stay enabled (unavailable_grace)"
	case d.DisablesAt.After(now):
		return "its nodes will be disabled " + untilText(d.DisablesAt, now)
	}
	return "its nodes are disabled until it returns"
}

// maxChanges and maxChangesWidth limit the last writes that are shown. The log has all of them.
const maxChanges, maxChangesWidth = 3, 120

// changes formats the last writes in one line.
func changes(all []string) string {
	shown := all
	if len(all) > maxChanges+1 { // "and 1 more" is no shorter
		shown = all[:maxChanges]
	}
	var out string
	for i, change := range shown {
		if i == 0 {
			out = shortened(change, maxChangesWidth)
			continue
		}
		if utf8.RuneCountInString(out+"; "+change) > maxChangesWidth {
			shown = shown[:i]
			break
		}
		out += "; " + change
	}
	if more := len(all) - len(shown); more > 0 {
		out += fmt.Sprintf("; and %d more (see the log)", more)
	}
	return out
}

// shortened truncates an enumeration after a complete part, and counts the omitted parts.
func shortened(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	head := string([]rune(text)[:width])
	end := max(strings.LastIndex(head, "; "), strings.LastIndex(head, ", "))
	if end < 0 {
		return head + "…"
	}
	more := strings.Count(text[end:], "; ") + strings.Count(text[end:], ", ")
	return fmt.Sprintf("%s (and %d more)", text[:end], more)
}

func (p *printer) problem(label string, explained bool, problem, hint string, violations ...string) {
	p.line("  %s  %s: %s", p.styled(dim, fmt.Sprintf("%-10s", label)), p.styled(bad, "problem"), problem)
	if explained {
		return
	}
	for _, o := range violations {
		p.line("                - %s", o)
	}
	if hint != "" {
		p.line("              what to do: %s", hint)
	}
}

// Plan prints what the next pass would write.
func Plan(w io.Writer, plan control.PlanView) error {
	p := newPrinter(w)
	for _, n := range plan.Nodes {
		switch {
		case n.Refused:
			p.line("%s (%s): %s", p.styled(bold, n.Node), p.styled(dim, n.UUID),
				p.styled(bad, "nothing would be written"))
			if n.Reshape != nil {
				p.preview(n.Reshape, true)
			}
			p.refusal("  ", n.Error, groups(n.ViolationGroups, n.Violations), n.Hint)
		case n.Error != "":
			p.line("%s (%s): %s: %s", p.styled(bold, n.Node), p.styled(dim, n.UUID), p.styled(bad, "unknown"), n.Error)
		case len(n.Operations) == 0:
			p.line("%s (%s): %s", p.styled(bold, n.Node),
				p.styled(dim, n.UUID), p.styled(good, "nothing to write; Placement is up to date."))
		default:
			when := "pass"
			if n.Reshape != nil {
				when = "start"
			}
			p.line("%s (%s): the next %s would make %s:",
				p.styled(bold, n.Node), p.styled(dim, n.UUID), when, textutil.Count(len(n.Operations), "write"))
			for i, op := range n.Operations {
				p.line("%4d. %s", i+1, p.styled(changeStyle(op.Text), op.Text))
			}
			p.notes("  ", n.Warnings)
			if n.Reshape != nil {
				p.preview(n.Reshape, false)
			}
		}
	}
	if len(plan.Nodes) == 0 {
		p.line("No compute nodes yet: no driver has reported one.")
	}
	return p.err
}

// notes prints one line for each warning.
func (p *printer) notes(indent string, warnings []string) {
	for _, w := range warnings {
		p.line("%s%s: %s", indent, p.styled(notice, "warning"), oneLine(w))
	}
}

// agoText formats the age of t.
func agoText(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min ago", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// untilText formats the time until t.
func untilText(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("in %d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("in %d min", int(d.Minutes()))
	}
	return fmt.Sprintf("in %d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<19)>>20) }
