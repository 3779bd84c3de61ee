// SPDX-License-Identifier: Apache-2.0

package textutil

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxLine bounds how much of a line is shown, in bytes.
const maxLine = 160

// Snippet is a line of a file with its number, and with the part underlined that begins in the
// column (from 1) and is that wide, both in characters. Nothing is underlined if the column is 0,
// or not among what is shown of a long line. A part without width has one character.
func Snippet(number int, text string, column, width int) string {
	text = Shorten(strings.ReplaceAll(text, "\t", " "), maxLine)
	out := fmt.Sprintf("%5d| %s", number, text)
	length := utf8.RuneCountInString(text)
	if column < 1 || column > length {
		return out
	}
	width = max(1, min(width, length-column+1))
	return fmt.Sprintf("%s\n     | %s%s", out, strings.Repeat(" ", column-1), strings.Repeat("~", width))
}

// List is the text of the first problems, each on a line: a file of another format has many.
func List[P error](problems []P, limit int) string {
	parts := make([]string, 0, min(len(problems), limit)+1)
	for i, p := range problems {
		if i == limit {
			parts = append(parts, fmt.Sprintf("and %d more", len(problems)-limit))
			break
		}
		parts = append(parts, p.Error())
	}
	return strings.Join(parts, "\n")
}

// Errors are the problems as errors: what Unwrap of an error about all of them returns.
func Errors[P error](problems []P) []error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errs
}
