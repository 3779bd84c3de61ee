// SPDX-License-Identifier: Apache-2.0

// Package textutil prepares text for people. Names and messages from Placement, cells, drivers and
// files may hold sequences that a terminal obeys, and characters that make text look like something
// else: they are made printable. Mistakes in a file are shown with a snippet of it, and a name that
// does not exist with a suggestion.
package textutil

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable is s in one line: what is not printable is escaped, line feeds and tabs too. Printable
// text is returned as it is.
func Printable(s string) string { return printable(s, "") }

// PrintableLines is Printable, but line feeds and tabs stay.
func PrintableLines(s string) string { return printable(s, "\n\t") }

// IsPrintable reports whether Printable returns s as it is.
func IsPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Sanitize is s in one line of at most size bytes, and "..." if it was longer. Line feeds become
// semicolons, other white space becomes spaces; then it is Printable. Cost: O(size).
func Sanitize(s string, size int) string {
	if len(s) <= size && IsPrintable(s) {
		return s
	}
	s = strings.TrimSpace(s[:min(len(s), size+utf8.UTFMax)])
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, s)
	return Clip(Printable(s), size)
}

// Line is text on one line of at most that many characters, and "..." if there was more. White
// space is folded, and what is not UTF-8 becomes a question mark. No more is read than the
// characters can take, at up to four bytes each, with as much white space.
func Line[T string | []byte](text T, maxRunes int) string {
	begins := string(text[:min(len(text), 8*maxRunes)])
	r := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(begins, "?")), " "))
	if len(r) > maxRunes || len(begins) < len(text) {
		return string(r[:min(len(r), maxRunes)]) + "..."
	}
	return string(r)
}

// Truncate is the first size bytes of s, in whole characters: at most size bytes.
func Truncate(s string, size int) string { return truncate(s, size, "") }

// Clip is the first size bytes of s, in whole characters, and "..." if there are more: at most
// size+3 bytes.
func Clip(s string, size int) string { return truncate(s, size, "...") }

// Shorten is Clip with "…", which has as many bytes.
func Shorten(s string, size int) string { return truncate(s, size, "…") }

// truncate is the only place that cuts a text of the agent and its services.
func truncate(s string, size int, mark string) string {
	if len(s) > size {
		return strings.ToValidUTF8(s[:size], "") + mark
	}
	return s
}

func printable(s, keep string) string {
	fine := func(r rune) bool { return unicode.IsPrint(r) || strings.ContainsRune(keep, r) }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !fine(r) }) {
		return s
	}
	out := make([]byte, 0, len(s)+16)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\x`...)
			out = append(out, hex[s[0]>>4], hex[s[0]&15])
		case fine(r):
			out = append(out, s[:size]...)
		default:
			out = escape(out, r)
		}
		s = s[size:]
	}
	return string(out)
}

const hex = "0123456789abcdef"

// escape appends a character as JSON escapes it, so that JSON stays JSON.
func escape(out []byte, r rune) []byte {
	switch r {
	case '\n':
		return append(out, `\n`...)
	case '\t':
		return append(out, `\t`...)
	case '\r':
		return append(out, `\r`...)
	}
	units := []rune{r}
	if a, b := utf16.EncodeRune(r); a != unicode.ReplacementChar {
		units = []rune{a, b}
	}
	for _, u := range units {
		digits := strconv.FormatInt(int64(u), 16)
		out = append(out, `\u`...)
		out = append(out, "0000"[:4-len(digits)]...)
		out = append(out, digits...)
	}
	return out
}

// Writer makes what is written PrintableLines. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the beginning of a character
}

// NewWriter makes a Writer on another one.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Unwrap is the writer below, for what escapes by itself.
func (w *Writer) Unwrap() io.Writer { return w.w }

// Write implements io.Writer. A character that is not complete waits for the rest of it.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// as most log lines are
	if len(w.rest) == 0 && !slices.ContainsFunc(p,
		func(b byte) bool { return (b < ' ' || b > '~') && b != '\n' && b != '\t' }) {
		return w.w.Write(p)
	}
	all := append(w.rest, p...)
	end := len(all)
	for i := 1; i <= min(utf8.UTFMax-1, len(all)); i++ {
		if b := all[len(all)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(all[len(all)-i:]) {
				end = len(all) - i
			}
			break
		}
	}
	_, err := io.WriteString(w.w, PrintableLines(string(all[:end])))
	w.rest = append([]byte(nil), all[end:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what is left of a character that was never completed.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.w, PrintableLines(string(w.rest)))
	w.rest = nil
	return err
}
