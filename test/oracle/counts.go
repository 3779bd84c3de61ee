// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counts say what a run reached.
type Counts struct {
	Requests   int
	Kinds      map[string]int
	Exceptions map[string]int
	// Routes is how often each method of each path got each status, Versions which microversions it
	// was asked at.
	Routes   map[string]map[int]int
	Versions map[string]map[int]bool
	// Candidates is how many queries got none, one, and more.
	Candidates [3]int
}

// NewCounts returns empty counts.
func NewCounts() *Counts {
	return &Counts{Kinds: map[string]int{}, Exceptions: map[string]int{}, Routes: map[string]map[int]int{},
		Versions: map[string]map[int]bool{}}
}

func (c *Counts) add(x *Exchange) {
	c.Requests++
	c.Kinds[x.Step.Kind]++
	for _, meant := range x.Meant {
		c.Exceptions[meant.Name]++
	}
	route := x.Step.Method + " " + routeOf(x.Step.Path)
	if c.Routes[route] == nil {
		c.Routes[route], c.Versions[route] = map[int]int{}, map[int]bool{}
	}
	c.Routes[route][x.Real.Status]++
	if minor := x.Step.minor(); minor >= 0 {
		c.Versions[route][minor] = true
	}
	if x.Step.Path == "/allocation_candidates" && x.Real.Status == 200 {
		c.Candidates[min(len(candidatesOf(x.Real.Body).requests), 2)]++
	}
}

// Merge adds the counts of another run.
func (c *Counts) Merge(other *Counts) {
	c.Requests += other.Requests
	for i := range c.Candidates {
		c.Candidates[i] += other.Candidates[i]
	}
	for k, n := range other.Kinds {
		c.Kinds[k] += n
	}
	for k, n := range other.Exceptions {
		c.Exceptions[k] += n
	}
	for route, statuses := range other.Routes {
		if c.Routes[route] == nil {
			c.Routes[route], c.Versions[route] = map[int]int{}, map[int]bool{}
		}
		for status, n := range statuses {
			c.Routes[route][status] += n
		}
		maps.Copy(c.Versions[route], other.Versions[route])
	}
}

// routeOf is the path with its variable parts taken out.
func routeOf(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 2 && parts[2] != "" {
		name := map[string]string{"resource_providers": "{uuid}", "resource_classes": "{name}", "traits": "{name}",
			"allocations": "{consumer}"}[parts[1]]
		if name != "" {
			parts[2] = name
		}
	}
	if len(parts) > 4 && parts[3] == "inventories" {
		parts[4] = "{class}"
	}
	return strings.Join(parts, "/")
}

// String is a table of what was reached.
func (c *Counts) String() string {
	var b strings.Builder
	b.WriteString("Requests by kind:\n")
	for _, kind := range slices.Sorted(maps.Keys(c.Kinds)) {
		fmt.Fprintf(&b, "  %8d  %s\n", c.Kinds[kind], kind)
	}
	fmt.Fprintf(&b, "Queries of candidates with none: %d, with one: %d, with more: %d.\n", c.Candidates[0],
		c.Candidates[1], c.Candidates[2])
	b.WriteString("Routes, with the statuses of the real service and the microversions:\n")
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		fmt.Fprintf(&b, "  %-60s", route)
		for _, status := range slices.Sorted(maps.Keys(c.Routes[route])) {
			fmt.Fprintf(&b, " %d:%d", status, c.Routes[route][status])
		}
		fmt.Fprintf(&b, "  at %s\n", ranges(c.Versions[route]))
	}
	b.WriteString("Exceptions that were applied:\n")
	for i := range Exceptions {
		fmt.Fprintf(&b, "  %8d  %s\n", c.Exceptions[Exceptions[i].Name], Exceptions[i].Name)
	}
	return b.String()
}

// ranges writes a set of minor versions as "0-5 7".
func ranges(set map[int]bool) string {
	var parts []string
	all := slices.Sorted(maps.Keys(set))
	for i := 0; i < len(all); {
		k := i
		for k+1 < len(all) && all[k+1] == all[k]+1 {
			k++
		}
		if k > i {
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[k]))
		} else {
			parts = append(parts, fmt.Sprint(all[i]))
		}
		i = k + 1
	}
	return strings.Join(parts, " ")
}
