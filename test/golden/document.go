// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Command is a command in a document, with what the document shows of its output.
type Command struct {
	Line                 int
	Prompt, Text, Output string
}

// Commands finds the commands in a document: indented lines that begin with one of the prompts and
// a space, in blocks.
func Commands(t testing.TB, file string, prompts ...string) []Command {
	t.Helper()
	raw, err := os.ReadFile(file)
	testproc.Check(t, err)
	var out []Command
	inside := false
	for i, line := range strings.Split(string(raw), "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		prompt, command, is := strings.Cut(text, " ")
		switch {
		case indented && is && slices.Contains(prompts, prompt):
			out, inside = append(out, Command{Line: i + 1, Prompt: prompt, Text: command}), true
		case inside && (indented || line == ""):
			out[len(out)-1].Output += text + "\n"
		default:
			inside = false
		}
	}
	return out
}

// variable is what is another one every time.
var variable = []struct {
	found *regexp.Regexp
	shown string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "SHA256"},
	{regexp.MustCompile(`\bjoin1\.\S+`), "TOKEN"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z?`), "TIME"},
	{regexp.MustCompile(`--+`), "--"}, // borders of tables
	{regexp.MustCompile(`\bdevel\b|\bunknown\b|\bv\d+\.\d+\.\d+\S*|\b[0-9a-f]{12}(-dirty)?\b`), "VERSION"},
	{regexp.MustCompile(`\b(landlock \d+, seccomp|landlock \d+|seccomp)\b`), "SANDBOX"}, // as the kernel has it
	{regexp.MustCompile(`\bjust now\b|\b\d+ s ago\b`), "SOON"},
	{regexp.MustCompile(`\bpass(es)?\b`), "PASSES"},
	{regexp.MustCompile(`\d+(\.\d+)?`), "N"},
	{regexp.MustCompile(`\s+`), " "},
}

// plainly are the lines of an output without what is another one every time.
func plainly(out string) []string {
	var lines []string
	for line := range strings.Lines(out) {
		for _, v := range variable {
			line = v.found.ReplaceAllString(line, v.shown)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// File is a file in a document: a block that begins with a line "# on PLACE: /PATH".
type File struct {
	Line                  int
	Places, Path, Content string
}

var beginsFile = regexp.MustCompile(`^# on ([^:]+): (/\S+)$`)

// Files finds the files in a document.
func Files(t testing.TB, document string) []File {
	t.Helper()
	raw, err := os.ReadFile(document)
	testproc.Check(t, err)
	var out []File
	lines, inside := strings.Split(string(raw), "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(line, "```")
		switch begins := beginsFile.FindStringSubmatch(line); {
		case begins != nil && strings.HasPrefix(lines[max(i-1, 0)], "```"):
			out, inside = append(out, File{Line: i + 1, Places: begins[1], Path: begins[2]}), true
		case fence:
			inside = false
		case inside:
			out[len(out)-1].Content += line + "\n"
		}
	}
	return out
}

// Differs says where an output is not what a document shows, or "". Numbers, uuids, digests and
// versions may be others, and so may the columns of a table; a line with nothing but an ellipsis
// stands for any lines.
func Differs(shown, came string) string {
	want, got := plainly(shown), plainly(came)
	for open := false; ; { // open: anything may come before what is shown next
		run := slices.Index(want, "…")
		last := run < 0
		if last {
			run = len(want)
		}
		at := 0
		for open && at+run < len(got) && !slices.Equal(got[at:at+run], want[:run]) {
			at++
		}
		if open && last {
			at = max(len(got)-run, 0)
		}
		for i, line := range want[:run] {
			if at+i >= len(got) || got[at+i] != line {
				return "shows what does not come there: " + line
			}
		}
		if last {
			if at+run < len(got) {
				return "does not show: " + got[at+run]
			}
			return ""
		}
		want, got, open = want[run+1:], got[at+run:], true
	}
}
