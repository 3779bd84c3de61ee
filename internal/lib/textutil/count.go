// SPDX-License-Identifier: Apache-2.0

package textutil

import (
	"fmt"
	"strings"
)

// Count is a number of things, of which what names one: "1 pass", "2 passes", "0 inventories".
func Count[N int | int64](n N, what string) string {
	stem, isY := strings.CutSuffix(what, "y")
	switch {
	case n == 1:
		return "1 " + what
	case isY && !strings.ContainsAny(stem[max(len(stem)-1, 0):], "aeiou"):
		return fmt.Sprintf("%d %sies", n, stem)
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
