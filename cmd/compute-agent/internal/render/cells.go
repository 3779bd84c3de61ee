// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
)

// Cells prints the cells, and below them why some cannot be used.
func Cells(w io.Writer, cells []operator.Cell) error {
	if len(cells) == 0 {
		_, err := io.WriteString(w, "No cell is registered. Register cell0 and a cell with `compute-agent cells "+
			"manage create`.\n")
		return err
	}
	rows := [][]string{{"NAME", "UUID", "STATE", "NEW SERVERS", "HOSTS", "URL"}}
	causes := ""
	for _, c := range cells {
		takes := "yes"
		switch {
		case c.UUID == apidb.Cell0UUID:
			takes = "-"
		case c.Disabled:
			takes = "no"
		}
		rows = append(rows, []string{c.Name, c.UUID, string(c.State), takes, strconv.Itoa(c.Hosts), c.URL})
		switch {
		case c.Cause != "" && c.State == operator.CellOtherDatabase:
			causes += fmt.Sprintf("\n%s: %s\n", c.Name, c.Cause)
		case c.Cause != "":
			causes += fmt.Sprintf("\n%s is down: %s\n", c.Name, c.Cause)
		}
	}
	_, err := io.WriteString(w, Table(rows)+causes)
	return err
}

// NewCell prints a cell that was registered, and why it cannot be used yet.
func NewCell(w io.Writer, c operator.Cell) error {
	text := fmt.Sprintf("Registered cell %s with uuid %s.\n", c.Name, c.UUID)
	if c.Cause != "" {
		text += fmt.Sprintf("The cell cannot be used yet: %s\nIf its URL or name is wrong: "+
			"compute-agent cells manage update %s --url URL --name NAME (NAME as in `cells serve --name`)\n",
			c.Cause, c.Name)
	}
	_, err := io.WriteString(w, text)
	return err
}

// CellAcceptance prints how the database of a cell differs from the one before, and whether it is
// accepted.
func CellAcceptance(w io.Writer, v *operator.Acceptance) error {
	var b strings.Builder
	if v.Before != nil {
		fmt.Fprintf(&b, "previous  epoch %s, revision %d\n", v.Before.Epoch, v.Before.Revision)
	}
	fmt.Fprintf(&b, "now       epoch %s, revision %d\n", v.Now.Epoch, v.Now.Revision)
	fmt.Fprintf(&b, "active    %d servers, %d of them missing in the cell\n", v.Living, v.Unknown)
	fmt.Fprintf(&b, "deleted   %d servers, %d of them still in the cell\n\n", v.Deleted, v.Back)
	if v.Unknown > 0 {
		fmt.Fprintf(&b, "Servers that are missing in the cell (%d) return 404. "+
			"Their guests keep running and their allocations stay:\n"+
			"`compute-agent status` on the hosts shows the condition guest-unknown-to-cell.\n", v.Unknown)
	}
	if v.Back > 0 {
		fmt.Fprintf(&b, "Deleted servers that are still in the cell (%d) are listed and counted again. Delete them "+
			"again.\n", v.Back)
	}
	if v.Accepted {
		fmt.Fprintf(&b, "Accepted the database of cell %s.\n", v.Name)
	} else {
		fmt.Fprintf(&b, "The database of cell %s has not changed; there is nothing to accept.\n", v.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Schema prints how many steps of its schema a database has had. missing is what an upgrade does to
// one that does not exist, and upgrade the command.
func Schema(w io.Writer, s *operator.Schema, missing, upgrade string) error {
	has, needed := fmt.Sprintf("step %d", s.Schema), "not needed"
	switch {
	case !s.Exists:
		has, needed = "no database", missing
	case s.UpgradeNeeded:
		needed = "needed: " + upgrade
	case s.Schema > s.Newest:
		needed = "not possible: the schema is from a newer version of this program; use that version"
	}
	_, err := fmt.Fprintf(w, "database      %s\nschema        %s\nthis program  step %d\nupgrade       %s\n",
		s.Database, has, s.Newest, needed)
	return err
}

// SchemaUpgrade prints what an upgrade of a schema did.
func SchemaUpgrade(w io.Writer, u *operator.Upgrade) error {
	text := fmt.Sprintf("upgraded from step %d to %d", u.Before.Schema, u.After.Schema)
	switch u.Before.Schema {
	case u.After.Schema:
		text = fmt.Sprintf("up to date at step %d", u.After.Schema)
	case 0:
		text = fmt.Sprintf("created at step %d", u.After.Schema)
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", u.After.Database, text)
	return err
}
