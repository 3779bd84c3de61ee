// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/plugins/internal/wire"
)

// words makes of what a plugin says one line that can be shown to people and logged: an escape sequence would speak to the operator's
// terminal, a line feed would forge a line of the log. Line feeds become semicolons, other white space becomes a space, and what is not
// printable is escaped as in Go. What is beyond most bytes is cut off.
//
// Cost: O(most), and no allocation for what is fit already.
func words(s string, most int) string {
	if fit(s, most) {
		return s
	}
	s = strings.TrimSpace(s[:min(len(s), most+utf8.UTFMax)])
	var b strings.Builder
	for i, r := range s {
		if b.Len() >= most {
			b.WriteString("...")
			break
		}
		switch {
		case r == '\n' || r == '\r':
			if i == 0 || s[i-1] != '\n' && s[i-1] != '\r' {
				b.WriteString("; ")
			}
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r) // what is no UTF-8 is U+FFFD here
		default:
			escaped := strconv.QuoteRuneToASCII(r)
			b.WriteString(escaped[1 : len(escaped)-1])
		}
	}
	return b.String()
}

func fit(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// tame makes all words of a driver's error fit to be shown, and the list of offenders as long as it can be read.
func tame(f wire.Failure) wire.Failure {
	const most, short, more, offenders = 20_000, 600, 51, 501 // the SDK sends 500, and how many more there are
	f.Message, f.Words = words(f.Message, most), words(f.Words, most)
	f.Key, f.UUID, f.Remedy = words(f.Key, short), words(f.UUID, short), words(f.Remedy, most)
	f.More = slices.Clone(f.More[:min(len(f.More), more)])
	for i, p := range f.More {
		f.More[i] = wire.KeyProblem{Key: words(p.Key, short), Problem: words(p.Problem, short)}
	}
	rest := len(f.Offenders) - offenders
	f.Offenders = slices.Clone(f.Offenders[:min(len(f.Offenders), offenders)])
	for i, o := range f.Offenders {
		f.Offenders[i] = wire.Offender{
			Consumer: words(o.Consumer, short), Provider: words(o.Provider, short), Class: words(o.Class, short), Problem: words(o.Problem, short), Remedy: words(o.Remedy, short),
		}
	}
	if rest > 0 {
		f.Offenders = append(f.Offenders, wire.Offender{Problem: fmt.Sprintf("and %d more", rest)})
	}
	return f
}
