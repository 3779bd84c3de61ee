// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// wrongType is the fault of a value whose TOML type is not the key's.
func wrongType(v any, allowed string) *fault {
	return faultf("write "+allowed, "%s does not fit here", describe(v))
}

// describe names a TOML value without showing more of it than needed.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		return "the string " + shown(v)
	case int64:
		return fmt.Sprintf("the integer %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprintf("the boolean %t", v)
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	default:
		return "a date or time"
	}
}

// shown quotes a value for a message and bounds its length.
func shown(s string) string {
	const limit = 60
	if cut := textutil.Truncate(s, limit); cut != s {
		return strconv.Quote(cut) + "…"
	}
	return strconv.Quote(s)
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// bareKeyCharacters need no quotes in a TOML key.
const bareKeyCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// quoteKey writes a TOML key, bare where it may be.
func quoteKey(s string) string {
	bare := s != "" && strings.Trim(s, bareKeyCharacters) == ""
	if bare {
		return s
	}
	return quote(s)
}

// dotted joins the parts of a key as TOML would write it.
func dotted(parts ...string) string {
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = quoteKey(p)
	}
	return strings.Join(quoted, ".")
}

// inlineTable writes a table on one line, keys sorted.
func inlineTable(table map[string]any) string {
	parts := make([]string, 0, len(table))
	for _, k := range sortedKeys(table) {
		parts = append(parts, quoteKey(k)+" = "+formatAny(table[k]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// formatAny writes any decoded TOML value on one line.
func formatAny(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case map[string]any:
		return inlineTable(v)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = formatAny(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case time.Time:
		return v.Format(time.RFC3339Nano)
	default:
		return fmt.Sprint(v)
	}
}

// formatDuration is Duration.String without the empty parts: 10m, not 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// series is "a, b WORD c".
func series(words []string, word string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + word + " " + words[last]
}

// quotedSeries is a series of words in quotes.
func quotedSeries(words []string, word string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return series(quoted, word)
}

// nearest is the candidate most like word, or "" when none is like it.
func nearest(word string, candidates []string) string {
	return textutil.Suggest(word, candidates, max(2, len(word)/3))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
