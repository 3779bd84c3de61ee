// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func degraded() health.Status {
	return health.Status{
		State: resourcetracker.Degraded, Summary: "degraded: \x1b[2J\x1b[31mfake", Version: "1.0.0",
		Host: "cn1\x1b[32m", PID: 42,
		Conditions: []health.Condition{{
			Code: "credentials-refused", Severity: health.Critical, Subject: health.Agent,
			Title: "Placement rejects the agent's credentials",
			Text:  "GET /: 401", Meaning: strings.Repeat("long meaning ", 20),
			Hint: "check \x1b]0;title\x07 the credentials", Runbook: "https://example.org/" + strings.Repeat("x", 100),
		}},
		Drivers: []health.Driver{{Name: "fake",
			Plugin: health.Plugin{Status: pluginhost.Status{State: pluginhost.Healthy, Path: "/path"}}}},
	}
}

func TestColorsAreOnlyThoseOfThisPackage(t *testing.T) {
	var colored, bare bytes.Buffer
	testproc.Check(t, errors.Join(Status(NewTerminal(&colored, 0, true), degraded(), time.Time{}),
		Status(NewTerminal(&bare, 0, false), degraded(), time.Time{})))
	for _, want := range []string{
		"on \x1b[1mcn1\\u001b[32m\x1b[0m: \x1b[31mdegraded: \\u001b[2J\\u001b[31mfake\x1b[0m\n",
		"\x1b[1;31mcritical\x1b[0m: \x1b[1mPlacement rejects the agent's credentials\x1b[0m\n",
		"  \x1b[2mwhat to do\x1b[0m  check \\u001b]0;title\\u0007 the credentials\n",
		"driver \x1b[1mfake\x1b[0m: \x1b[32mhealthy\x1b[0m since never\n",
	} {
		testproc.Contains(t, colored.String(), want, "%q is not in %q", want)
	}
	if diff := cmp.Diff(bare.String(), sequence.ReplaceAllString(colored.String(), "")); diff != "" {
		t.Errorf("colours change the text (-without +with):\n%s", diff)
	}
	if strings.Contains(bare.String(), "\x1b") {
		t.Errorf("colours without colours: %q", bare.String())
	}
}

// TestTerminalIsNotFoldedOrColoredElsewhere: files and pipes get what they always got.
func TestTerminalIsNotFoldedOrColoredElsewhere(t *testing.T) {
	var piped, wide bytes.Buffer
	testproc.Check(t, errors.Join(Status(&piped, degraded(), time.Time{}),
		Status(NewTerminal(&wide, 10000, false), degraded(), time.Time{})))
	testproc.Samef(t, cmp.Diff(piped.String(), wide.String()), "(-piped +wide terminal)")
}

func TestLinesAreFoldedAtTheWidthOfTheTerminal(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"fits", []string{"fits"}},
		{"  what        one two three four five six seven",
			[]string{"  what        one two three four five", "              six seven"}},
		{"              - one two three four five six",
			[]string{"              - one two three four five", "                six"}},
		{"  12. create resource provider one two three",
			[]string{"  12. create resource provider one two", "      three"}},
		{"one two three four five six seven eight nine", []string{"one two three four five six seven eight", "  nine"}},
		{"  runbook     https://example.org/a/long/page", []string{"  runbook     https://example.org/a/long/page"}},
		{"critical: \x1b[1mone two three four five six seven\x1b[0m",
			[]string{"critical: \x1b[1mone two three four five six", "  seven\x1b[0m"}},
	} {
		got := []string{c.text}
		if width(c.text) > 40 {
			got = fold(c.text, 40)
		}
		testproc.Samef(t, cmp.Diff(c.want, got), "%q", c.text)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	rows := [][]string{{"", "total", "used"},
		{"  a condition of many words that is too wide", "1", "2"}, {"  short", "3", "4"}}
	var b bytes.Buffer
	p := newPrinter(NewTerminal(&b, 40, true))
	p.grid("", grid{rows: rows, left: 1, width: p.innerWidth(0), style: header})
	want := "                             total  used\n" +
		"  a condition of many            1     2\n" +
		"    words that is too wide\n" +
		"  short                          3     4\n"
	testproc.Same(t, cmp.Diff(want, sequence.ReplaceAllString(b.String(), "")))
	testproc.Contains(t, b.String(), "\x1b[2mtotal\x1b[0m", "the header is not dimmed: %q")
}

// FuzzTerminal: whatever the text, no other escape sequences reach the terminal, and folding loses
// nothing.
func FuzzTerminal(f *testing.F) {
	f.Add("a b", "c", 20)
	f.Add("\x1b[31m", "\x1b[0m x", 1)
	f.Add("  what  - 1. a", "é\xff", 30)
	f.Fuzz(func(t *testing.T, one, two string, columns int) {
		var b bytes.Buffer
		p := newPrinter(NewTerminal(&b, columns, true))
		p.line("  label       %s: %s", p.styled(bad, one), two)
		text := sequence.ReplaceAllString(b.String(), "")
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' }) {
			t.Errorf("control characters: %q", b.String())
		}
		var whole bytes.Buffer
		p = newPrinter(&whole)
		p.line("  label       %s: %s", p.styled(bad, one), two)
		if got, want := strings.Fields(text), strings.Fields(whole.String()); !cmp.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
