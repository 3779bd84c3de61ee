// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// CloudAudit prints what an audit of the API database, the cells and Placement found: each finding,
// and below it what to do. repair says that it was to be corrected.
func CloudAudit(w io.Writer, r cloudaudit.Report, repair bool) error {
	var b strings.Builder
	count := textutil.Count[int]
	fmt.Fprintf(&b, "Compared %s, %s, %s, %s and %s.\n", count(r.Cells, "cell"), count(r.Nodes, "node"),
		count(r.Servers, "server"), count(r.Providers, "resource provider"), count(r.Consumers, "consumer"))
	for _, u := range r.Unchecked {
		extent := ""
		if u.Partly {
			extent = " to the end"
		}
		fmt.Fprintf(&b, "%s was not compared%s: %s\n  not checked: %s\n", u, extent, u.Why, u.Leaves)
	}
	if len(r.HostsDown) > 0 {
		const left = "whether their servers have guests; guests without a server are as they were seen last"
		fmt.Fprintf(&b, "These hosts are down: %s\n  not checked: %s\n", strings.Join(r.HostsDown, ", "), left)
	}
	repairable, repaired := 0, 0
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "\n%s\n  %s\n", f.Kind, f.Text)
		switch {
		case f.Repaired != "":
			repaired++
			fmt.Fprintf(&b, "  repaired: %s\n", f.Repaired)
		case f.Problem != "":
			fmt.Fprintf(&b, "  not repaired: %s\n", f.Problem)
		case repair && f.Manual != "":
			fmt.Fprintf(&b, "  not repaired: %s\n  hint: %s\n", f.Manual, f.Hint)
		default:
			fmt.Fprintf(&b, "  hint: %s\n", f.Hint)
		}
		if f.Repairable() {
			repairable++
		}
	}
	switch left := len(r.Findings) - repaired; {
	case len(r.Findings) == 0 && r.Complete():
		b.WriteString("Nothing was found that does not fit together.\n")
	case len(r.Findings) == 0:
		b.WriteString("Nothing was found in what could be compared. This is not all.\n")
	case repair:
		fmt.Fprintf(&b, "\n%s, %d repaired, %d left.\n", count(len(r.Findings), "finding"), repaired, left)
	default:
		fmt.Fprintf(&b, "\n%s; --repair corrects %d.\n", count(left, "finding"), repairable)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
