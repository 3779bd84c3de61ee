// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// PythonStr is a value as Python's str has it: strings without quotes.
func PythonStr(value any) string {
	if s, is := value.(string); is {
		return s
	}
	return PythonRepr(value)
}

// PythonRepr is a value as Python's repr has it.
func PythonRepr(value any) string {
	var b strings.Builder
	writeRepr(&b, value)
	return b.String()
}

func writeRepr(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int:
		b.WriteString(strconv.Itoa(v))
	case float64:
		b.WriteString(reprFloat(v))
	case Number:
		if v.IsInteger() {
			b.WriteString(string(v))
		} else {
			b.WriteString(reprFloat(v.Float64()))
		}
	case string:
		writeQuoted(b, v)
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, item)
		}
		b.WriteByte(']')
	case *Object:
		b.WriteByte('{')
		for i, name := range v.Names() {
			if i > 0 {
				b.WriteString(", ")
			}
			writeQuoted(b, name)
			b.WriteString(": ")
			member, _ := v.Get(name)
			writeRepr(b, member)
		}
		b.WriteByte('}')
	default:
		fmt.Fprintf(b, "%v", v)
	}
}

// writeQuoted writes a string with single quotes, or with double ones when it has single ones and
// no double ones.
func writeQuoted(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}

// reprFloat writes the shortest form that reads back, with an exponent where Python has one: from
// 1e+16 on, and below 1e-4.
func reprFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
