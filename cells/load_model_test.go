// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"fmt"
	"slices"
	"time"
)

// model says which servers there are, and so what every answer must be. Server number g, from 1 on,
// is in cell (g-1)%cells, which is so the cell's server i = (g-1)/cells, and belongs to project
// i%projects: each project has servers in all cells, and one list goes through all of them.
type model struct {
	cells, servers, projects int
}

const (
	hostsPerCell = 2
	maxLimit     = 1000 // records in one answer
	// downTime is longer than any test: hosts have shown life when their cell was made, and do not
	// again.
	downTime = 1000 * time.Hour
)

func (m model) perCell() int { return m.servers / m.cells }

func cellName(c int) string { return fmt.Sprintf("cell%d", c) }

func cellUUID(c int) string { return fmt.Sprintf("%08x-1111-4111-8111-000000000000", c) }

func hostName(c, h int) string { return fmt.Sprintf("c%02dh%d", c, h) }

func serverUUID(g int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012[1]x", g) }

// everyProject is the project of a list of all projects.
const everyProject = -1

// numbers are the servers of a project, in the order of lists (newest first), that are in one of
// the cells chosen.
func (m model) numbers(project int, in func(c int) bool) []int {
	var found []int
	for i := m.perCell() - 1; i >= 0; i-- {
		if project != everyProject && i%m.projects != project {
			continue
		}
		for c := m.cells - 1; c >= 0; c-- {
			if in(c) {
				found = append(found, i*m.cells+c+1)
			}
		}
	}
	return found
}

// seen is what is compared of a record of a list.
type seen struct{ id, name, status string }

// list is what a list without conditions shows: what is unknown first, if the cells in down are,
// and at most limit records.
func (m model) list(project int, down []int, limit int, detail bool) []seen {
	up := m.numbers(project, func(c int) bool { return !slices.Contains(down, c) })
	up = up[:min(len(up), limit)]
	unknown := m.numbers(project, func(c int) bool { return slices.Contains(down, c) })
	unknown = unknown[:min(len(unknown), limit-len(up))]
	var records []seen
	for _, g := range unknown {
		records = append(records, seen{serverUUID(g), "", "UNKNOWN"})
	}
	return append(records, m.records(up, detail)...)
}

// records are those of servers in cells that are up.
func (m model) records(numbers []int, detail bool) []seen {
	status := ""
	if detail {
		status = "ACTIVE"
	}
	records := make([]seen, 0, len(numbers))
	for _, g := range numbers {
		records = append(records, seen{serverUUID(g), fmt.Sprintf("server-%d", g), status})
	}
	return records
}

// services are host and status of all services.
func (m model) services(down []int) map[string]string {
	all := map[string]string{}
	for c := range m.cells {
		status := "enabled"
		if slices.Contains(down, c) {
			status = "UNKNOWN"
		}
		for h := range hostsPerCell {
			all[hostName(c, h)] = status
		}
	}
	return all
}
