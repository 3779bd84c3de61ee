// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// table is printed as Markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() {
	fmt.Printf("| %s |\n|---%s|\n", strings.Join(t.head, " | "), strings.Repeat("|--:", len(t.head)-1))
	for _, row := range t.rows {
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
	fmt.Println()
}

// ms writes a time in milliseconds with three significant digits.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case v == 0:
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func mib(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/(1<<20)) }

// rate writes a number per second.
func rate(v float64) string {
	if v == 0 || math.IsNaN(v) {
		return "-"
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// errorsOf lists refused requests by status.
func errorsOf(s *sample) string {
	if len(s.refused) == 0 {
		return "0"
	}
	var words []string
	for _, status := range slices.Sorted(maps.Keys(s.refused)) {
		words = append(words, fmt.Sprintf("%d of %d: %d", s.refused[status], s.done+s.refused[status], status))
	}
	return strings.Join(words, ", ")
}
