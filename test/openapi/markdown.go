// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// Markdown returns the reference of an API: a section for each group of calls, and the history.
func Markdown(of *apidoc.API) []byte {
	a := reference{of}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n<!-- Written by go test -update from the route table. -->\n\n%s\n",
		a.Title, strings.TrimSpace(a.About))
	b.WriteString("\n## Calls\n\n| call | microversions | what it does |\n|---|---|---|\n")
	for i := range a.Calls {
		c := &a.Calls[i]
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", cell(heading(c)), anchor(heading(c)),
			a.versionsOf(c), cell(c.Summary))
	}
	b.WriteString("\n## Errors of every call\n\n")
	a.failures(&b, a.Failures)
	b.WriteString("\nThe body of an error:\n\n")
	a.body(&b, a.Error, a.Min, a.Max)
	group := ""
	for i := range a.Calls {
		c := &a.Calls[i]
		if c.Group != group {
			group = c.Group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		a.call(&b, c)
	}
	a.history(&b)
	if a.More != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(a.More))
	}
	return []byte(b.String())
}

func (rf reference) history(b *strings.Builder) {
	if slices.ContainsFunc(rf.History, func(s apidoc.Step) bool { return s.Here != "" }) {
		b.WriteString("\n## Microversions\n\n| microversion | what it brought in OpenStack | what of it is here |\n" +
			"|---|---|---|\n")
		for i, s := range rf.History {
			fmt.Fprintf(b, "| %s | %s | %s |\n", rf.version(rf.Min+i), cell(s.What), cell(s.Here))
		}
		return
	}
	b.WriteString("\n## Microversions\n\n| microversion | what it brought |\n|---|---|\n")
	for i, s := range rf.History {
		fmt.Fprintf(b, "| %s | %s |\n", rf.version(rf.Min+i), cell(s.What))
	}
}

// heading is the heading of a call.
func heading(c *apidoc.Call) string {
	if c.Action != "" {
		return c.Method + " " + c.Path + ": " + c.Action
	}
	return c.Method + " " + c.Path
}

// versionsOf are the microversions of a call.
func (rf reference) versionsOf(c *apidoc.Call) string {
	if c.Unversioned {
		return "none"
	}
	from, to := rf.bound(c.Versions)
	return rf.between(from, to, rf.Min, rf.Max, "all")
}

func (rf reference) call(b *strings.Builder, c *apidoc.Call) {
	from, to := rf.bound(c.Versions)
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", heading(c), strings.TrimSuffix(c.Summary, "."))
	fmt.Fprintf(b, "- Microversions: %s\n", rf.versionsOf(c))
	if c.Open {
		b.WriteString("- For everybody, without a token\n")
	}
	for _, p := range c.Policies {
		fmt.Fprintf(b, "- Policy: `%s`", p.Rule)
		if p.Text != "" {
			b.WriteString(", " + p.Text)
		}
		b.WriteString("\n")
	}
	if c.Hosts != "" {
		fmt.Fprintf(b, "- Hosts: %s\n", c.Hosts)
	}
	for _, note := range c.Notes {
		fmt.Fprintf(b, "\n%s\n", note)
	}
	rf.query(b, c)
	if c.Body != nil {
		b.WriteString("\nBody:\n\n")
		rf.body(b, c.Body, from, to)
	}
	if len(c.Answers) > 0 {
		b.WriteString("\nAnswers:\n\n")
	}
	for _, answer := range c.Answers {
		first, last := rf.bound(answer.Versions)
		first, last = max(first, from), min(last, to)
		fmt.Fprintf(b, "- **%d**", answer.Status)
		if v := rf.between(first, last, from, to, ""); v != "" {
			fmt.Fprintf(b, " (%s)", v)
		}
		fmt.Fprintf(b, ": %s\n", answer.Text)
	}
	for _, answer := range c.Answers {
		if answer.Body != nil {
			first, last := rf.bound(answer.Versions)
			fmt.Fprintf(b, "\nBody of %d:\n\n", answer.Status)
			rf.body(b, answer.Body, max(first, from), min(last, to))
		}
	}
	if len(c.Failures) > 0 {
		b.WriteString("\nErrors:\n\n")
		rf.failures(b, c.Failures)
	}
}

// query writes the parameters of a call.
func (rf reference) query(b *strings.Builder, c *apidoc.Call) {
	if len(c.Query) == 0 {
		return
	}
	from, to := rf.bound(c.Versions)
	b.WriteString("\nQuery:\n\n| parameter | microversions | value | meaning |\n|---|---|---|---|\n")
	for i := range c.Query {
		p := &c.Query[i]
		first, last := rf.bound(p.Versions)
		name := "`" + p.Name + "`"
		if p.Required {
			name += " (required)"
		}
		text := p.Text
		if p.Repeated > 0 {
			text += " Can be repeated"
			if p.Repeated > first {
				text += " from " + rf.version(p.Repeated) + " on"
			}
			text += "."
		}
		for _, s := range p.Suffixes {
			first, last := rf.bound(s.Versions)
			text += fmt.Sprintf(" %s: can have the suffix of a group, `%s`.",
				strings.ToUpper(rf.between(first, last, rf.Min, rf.Max, "all")[:1])+
					rf.between(first, last, rf.Min, rf.Max, "all")[1:], s.Pattern)
		}
		versions := rf.between(first, last, from, to, "all")
		if p.Extension != "" {
			versions += ", extension `" + p.Extension + "`"
		}
		kind, _ := shown(documentOf(p.Schema))
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, versions, cell(kind), cell(text))
	}
	if c.Ignores == nil {
		return
	}
	first, last := rf.bound(*c.Ignores)
	b.WriteString("\nOther parameters are ignored")
	if v := rf.between(first, last, from, to, ""); v != "" {
		fmt.Fprintf(b, " %s, and refused with 400 at other microversions", v)
	}
	b.WriteString(".\n")
}

func (rf reference) failures(b *strings.Builder, all []apidoc.Failure) {
	b.WriteString("| status | code | reason |\n|---|---|---|\n")
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(f, g apidoc.Failure) int { return f.Status - g.Status })
	for _, f := range all {
		code := ""
		if f.Code != "" {
			code = "`" + f.Code + "`"
		}
		fmt.Fprintf(b, "| %d | %s | %s |\n", f.Status, code, cell(f.Reason))
	}
}

// between is a range of microversions within another one; all if it is the whole of it.
func (rf reference) between(from, to, lowest, highest int, all string) string {
	switch {
	case from <= lowest && to >= highest:
		return all
	case from == to:
		return "only " + rf.version(from)
	case to >= highest:
		return "from " + rf.version(from)
	case from <= lowest:
		return "until " + rf.version(to)
	}
	return rf.version(from) + " to " + rf.version(to)
}

// cell is text in a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// anchor is the anchor of a heading, as GitHub makes it.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_':
			b.WriteRune(r)
		}
	}
	return b.String()
}
