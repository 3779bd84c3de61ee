// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"text/tabwriter"
	"time"
)

// Table returns rows as lines in which columns are aligned left, two spaces apart. The first row is
// the header. They are as they are: neither sanitized, nor folded or coloured on a terminal.
func Table(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, len(gap), ' ', 0)
	for _, row := range rows {
		_, _ = t.Write([]byte(strings.Join(row, "\t") + "\n")) // a Builder does not fail
	}
	_ = t.Flush()
	return b.String()
}

// timestamp is a time as results for people have it.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// named is a name with another one in parentheses, if there is one.
func named(name, other string) string {
	if other == "" {
		return name
	}
	return name + " (" + other + ")"
}
