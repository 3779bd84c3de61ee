// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Terminal is a writer to a terminal. The functions of this package fold their lines at its width,
// and use colours if it has them. What is written to it otherwise is sanitized.
type Terminal struct {
	*textutil.Writer
	// Width is in characters; 0: lines are not folded.
	Width int
	// Colors allows escape sequences for colours.
	Colors bool
}

// NewTerminal returns a Terminal on a writer that does not sanitize.
func NewTerminal(raw io.Writer, width int, colors bool) *Terminal {
	return &Terminal{Writer: textutil.NewWriter(raw), Width: width, Colors: colors}
}

// style is the sequence that selects colours; the zero style is that of the terminal. Only colours
// that can be read on dark and on light backgrounds are used, and never alone: the text says the
// same.
type style string

const (
	plain  style = ""
	bold   style = "\x1b[1m"
	dim    style = "\x1b[2m"
	good   style = "\x1b[32m"
	notice style = "\x1b[33m"
	bad    style = "\x1b[31m"
	fatal  style = "\x1b[1;31m"

	reset = "\x1b[0m"
)

// painted is sanitized text with escape sequences of this package.
type painted string

// printer prints lines to a writer, which may be a [Terminal]. It keeps the first error.
type printer struct {
	w      io.Writer
	width  int // 0: lines are not folded
	colors bool
	err    error
}

func newPrinter(w io.Writer) *printer {
	if t, is := w.(*Terminal); is {
		return &printer{w: t.Unwrap(), width: t.Width, colors: t.Colors}
	}
	return &printer{w: w}
}

// styled returns text in a style, for an argument of line or row.
func (p *printer) styled(s style, text string) painted {
	text = textutil.Printable(text)
	if !p.colors || s == plain || text == "" {
		return painted(text)
	}
	return painted(string(s) + text + reset)
}

// line prints one line, sanitized, and folded at the width of the terminal. The label at the
// beginning of a format, such as "  config      %s", is dimmed.
func (p *printer) line(format string, args ...any) {
	text := p.format(format, args)
	if p.width > 0 && width(text) > p.width {
		p.print(strings.Join(fold(text, p.width), "\n"))
		return
	}
	p.print(text)
}

// row prints one line, sanitized, that is not folded: a part of a table or tree.
func (p *printer) row(format string, args ...any) { p.print(p.format(format, args)) }

func (p *printer) print(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text+"\n")
	}
}

// label matches the label of a format.
var label = regexp.MustCompile(`^( +)([a-z][a-z0-9 ]*?)(  +%)`)

func (p *printer) format(format string, args []any) string {
	if p.colors {
		format = label.ReplaceAllString(format, "${1}"+string(dim)+"${2}"+reset+"${3}")
	}
	clean := make([]any, len(args))
	for i, arg := range args {
		clean[i] = printable(arg)
	}
	return strings.TrimRight(fmt.Sprintf(format, clean...), " ")
}

// printable sanitizes an argument, unless it was painted.
func printable(arg any) any {
	switch v := arg.(type) {
	case painted:
		return string(v)
	case string:
		return textutil.Printable(v)
	case error, fmt.Stringer:
		return textutil.Printable(fmt.Sprint(v))
	}
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Bool:
		return arg
	default:
		return textutil.Printable(fmt.Sprint(arg))
	}
}

// sequence matches the escape sequences of styles.
var sequence = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// width is how many characters of a terminal text takes.
func width(text string) int {
	if !strings.Contains(text, "\x1b") {
		return utf8.RuneCountInString(text)
	}
	return utf8.RuneCountInString(sequence.ReplaceAllString(text, ""))
}

// lead matches what the further lines of a folded line are indented by: indentation, a label, and
// the mark of a list.
var lead = regexp.MustCompile(`^ *(?:[^ ]+(?: [^ ]+)*?  +)?(?:- |[0-9]+\. )?`)

// widestLead is how wide a label is at most.
const widestLead = 20

// fold breaks a line between words into lines of at most maxWidth characters. Longer words stay
// whole: they are copied.
func fold(text string, maxWidth int) []string {
	bare := sequence.ReplaceAllString(text, "")
	indent := utf8.RuneCountInString(lead.FindString(bare))
	if without := len(bare) - len(strings.TrimLeft(bare, " ")); indent == without || indent > widestLead {
		indent = without + 2
	}
	indent = min(indent, max(maxWidth-narrowest, 2))
	var lines []string
	var current strings.Builder
	used := 0
	for rest := text; rest != ""; {
		before := len(rest) - len(strings.TrimLeft(rest, " "))
		end := strings.IndexByte(rest[before:], ' ')
		if end < 0 {
			end = len(rest) - before
		}
		word := rest[before : before+end]
		rest = rest[before+end:]
		if n := width(word); used > indent && used+before+n > maxWidth {
			lines = append(lines, current.String())
			current.Reset()
			current.WriteString(strings.Repeat(" ", indent))
			used = indent
		} else {
			current.WriteString(strings.Repeat(" ", before))
			used += before
		}
		current.WriteString(word)
		used += width(word)
	}
	return append(lines, current.String())
}
