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

// Route is the path of a request with what varies replaced, such as
// "/resource_providers/{uuid}/inventories", so that there are few of them. What follows a part in
// places is replaced by its value there, and other parts that are not fixed by {uuid}. The query is
// left out.
func Route(path string, fixed map[string]bool, places map[string]string) string {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	before := ""
	for i, part := range parts {
		place := places[before]
		before = ""
		switch {
		case place != "":
			parts[i] = place
		case !fixed[part]:
			parts[i] = "{uuid}"
		default:
			before = part
		}
	}
	return strings.Join(parts, "/")
}
