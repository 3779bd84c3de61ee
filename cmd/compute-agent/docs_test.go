// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// snippet is code in a page of the documentation.
type snippet struct {
	place string // FILE:LINE.
	lang  string // What follows the fence; "inline" for code in a sentence.
	text  string
}

// snippets are the blocks and the inline code of all pages but the changelog, which is history.
func snippets(t *testing.T) []snippet {
	t.Helper()
	const root = "../.."
	var all []snippet
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "decisions") {
			return filepath.SkipDir // decisions are records of their day
		}
		if filepath.Ext(name) != ".md" || name == "CHANGELOG.md" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil {
			all = append(all, snippetsOf(strings.TrimPrefix(path, root+"/"), string(content))...)
		}
		return err
	})
	if err != nil || len(all) < 2000 {
		t.Fatalf("%d snippets, %v", len(all), err)
	}
	return all
}

var inlineCode = regexp.MustCompile("`([^`]+)`")

// snippetsOf are those of one page: blocks between fences, indented blocks, and inline code, which
// may go on in the next line.
func snippetsOf(name, page string) []snippet {
	var all []snippet
	var block, paragraph []string
	lang, start, fenced, listed := "", 0, false, false
	closeBlock := func() {
		if text := strings.TrimRight(strings.Join(block, "\n"), "\n"); text != "" {
			all = append(all, snippet{fmt.Sprintf("%s:%d", name, start), lang, text})
		}
		block, lang = nil, ""
	}
	closeParagraph := func(line int) {
		text := strings.Join(paragraph, "\n")
		for _, m := range inlineCode.FindAllStringSubmatchIndex(text, -1) {
			at := line - len(paragraph) + strings.Count(text[:m[0]], "\n")
			all = append(all,
				snippet{fmt.Sprintf("%s:%d", name, at), "inline", strings.ReplaceAll(text[m[2]:m[3]], "\n", " ")})
		}
		paragraph = nil
	}
	lines := append(strings.Split(page, "\n"), "")
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			closeParagraph(i + 1)
			closeBlock()
			if fenced = !fenced; fenced {
				lang, start = strings.TrimPrefix(trimmed, "```"), i+2
			}
		case fenced:
			block = append(block, line)
		case trimmed == "":
			closeParagraph(i + 1)
			if len(block) > 0 {
				block = append(block, "")
			}
		case strings.HasPrefix(line, "    ") && (!listed || strings.HasPrefix(line, "      ")) && len(paragraph) == 0:
			if len(block) == 0 {
				start = i + 1
			}
			block = append(block, strings.TrimPrefix(line, "    "))
		default:
			closeBlock()
			if strings.HasPrefix(line, "- ") || !strings.HasPrefix(line, " ") {
				listed = strings.HasPrefix(line, "- ")
			}
			paragraph = append(paragraph, line)
		}
	}
	closeParagraph(len(lines))
	closeBlock()
	return all
}

// commands are the simple commands of a snippet: what a shell would start. In a block with prompts
// the other lines are what the commands print.
func (s snippet) commands() [][]string {
	text := strings.ReplaceAll(s.text, "\\\n", " ")
	if s.lang != "inline" {
		var prompted []string
		for line := range strings.Lines(text) {
			trimmed := strings.TrimSpace(line)
			if command, ok := strings.CutPrefix(trimmed, "$ "); ok {
				prompted = append(prompted, command)
			} else if command, ok := strings.CutPrefix(trimmed, "# "); ok {
				prompted = append(prompted, command)
			}
		}
		if len(prompted) > 0 {
			text = strings.Join(prompted, "\n")
		}
	}
	var all [][]string
	for _, words := range split(text) {
		if words = unwrapped(words); len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// split is a text as a shell divides it: into commands, and these into words without their quotes.
// What is in $(…) is a command of its own.
func split(text string) [][]string {
	var all [][]string
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		inWord = false
		word.Reset()
	}
	end := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		c := runes[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != '\'' && c == '$' && i+1 < len(runes) && runes[i+1] == '(':
			depth, j := 0, i+1
			for ; j < len(runes); j++ {
				if runes[j] == '(' {
					depth++
				} else if runes[j] == ')' {
					if depth--; depth == 0 {
						break
					}
				}
			}
			all = append(all, split(string(runes[i+2:min(j, len(runes))]))...)
			word.WriteString("SUBSTITUTED")
			inWord, i = true, j
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '\n' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')':
			end()
		case c == '#' && !inWord:
			for i+1 < len(runes) && runes[i+1] != '\n' {
				i++
			}
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	end()
	return all
}

var assignment = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`)

// unwrapped is a command without what only starts it differently, and without redirections.
func unwrapped(words []string) []string {
	for i, word := range words {
		if strings.HasPrefix(word, ">") || strings.HasPrefix(word, "2>") || strings.HasPrefix(word, "<") &&
			!strings.HasSuffix(word, ">") {
			words = words[:i]
			break
		}
	}
	for len(words) > 0 {
		switch {
		case words[0] == "sudo" || words[0] == "exec" || words[0] == "env" || words[0] == "time" || words[0] == "if" ||
			words[0] == "!" || words[0] == "do" || words[0] == "while":
			words = words[1:]
		case assignment.MatchString(words[0]):
			words = words[1:]
		case words[0] == "ssh" && len(words) > 2:
			words = words[2:]
		case (words[0] == "runuser" || words[0] == "systemd-run" || words[0] == "docker") &&
			slices.Contains(words, "--"):
			words = words[slices.Index(words, "--")+1:]
		default:
			return words
		}
	}
	return nil
}

// TestSnippets: what is a command in a page.
func TestSnippets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	page := "Run `make\ntest` and `a b`.\n\n    # sudo compute-agent x --y 'a b'   # why\n    output | of it\n\n" +
		"```sh\nA=1 compute-agent z $(compute-agent q r) > f\nssh h runuser -u n -- compute-agent \\\n  w\n```\n\n- " +
		"a list,\n    that goes on `c`\n"
	var got []string
	for _, s := range snippetsOf("p", page) {
		for _, c := range s.commands() {
			got = append(got, s.place+" "+s.lang+" "+strings.Join(c, "_"))
		}
	}
	want := []string{
		"p:1 inline make_test", "p:2 inline a_b", "p:4  compute-agent_x_--y_a b", "p:8 sh compute-agent_q_r",
		"p:8 sh compute-agent_z_SUBSTITUTED",
		"p:8 sh compute-agent_w", "p:14 inline c",
	}
	if !slices.Equal(got, want) {
		t.Errorf("commands:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
