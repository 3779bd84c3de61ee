// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
)

// Contents is what is in a database, as JSON.
type Contents struct {
	Database string               `json:"database"`
	Digest   string               `json:"digest"`
	Rows     int64                `json:"rows"`
	Tables   []backup.TableDigest `json:"tables"`
}

// ContentsOf returns the Contents of the database of a name, which may have a password.
func ContentsOf(name string, digest backup.Digest) Contents {
	return Contents{engine.Shown(name), digest.String(), digest.Rows(), digest.Tables}
}

// Checked prints what a check found in a database.
func Checked(w io.Writer, c Contents) error {
	for _, t := range c.Tables {
		if _, err := fmt.Fprintf(w, "%-32s %10d rows\n", t.Name, t.Rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s is whole: %d rows, digest %s.\n", c.Database, c.Rows, c.Digest)
	return err
}

// PlacementSchema prints the schema of Placement's database, the newest one of this program, and
// what an upgrade does.
func PlacementSchema(w io.Writer, db placement.DatabaseView) error {
	_, err := fmt.Fprintf(w, "database      %s\nschema        %s\nthis program  migration %d\nupgrade       %s\n",
		db.Database, db.Schema(), db.Newest, db.Upgrade)
	return err
}

// Upgraded is a database of Placement before an upgrade and after it.
type Upgraded struct {
	Before placement.DatabaseView `json:"before"`
	After  placement.DatabaseView `json:"after"`
}

// PlacementUpgraded prints what an upgrade did.
func PlacementUpgraded(w io.Writer, u Upgraded) (err error) {
	switch {
	case u.Before == u.After:
		_, err = fmt.Fprintf(w, "%s: up to date at %s\n", u.After.Database, u.After.Schema())
	case !u.Before.Exists:
		_, err = fmt.Fprintf(w, "%s: created at %s\n", u.After.Database, u.After.Schema())
	default:
		_, err = fmt.Fprintf(w, "%s: upgraded from %s to %s\n", u.After.Database, u.Before.Schema(), u.After.Schema())
	}
	return err
}

// Ruled prints a table with rules around centred cells, as placement-manage does. The first row is
// the header.
func Ruled(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	rule := "+"
	for _, width := range widths {
		rule += strings.Repeat("-", width+2) + "+"
	}
	b.WriteString(rule + "\n")
	for n, row := range rows {
		b.WriteByte('|')
		for i, cell := range row {
			left := (widths[i] - len(cell)) / 2
			b.WriteString(" " + strings.Repeat(" ", left) + cell + strings.Repeat(" ", widths[i]-len(cell)-left) + " |")
		}
		b.WriteByte('\n')
		if n == 0 {
			b.WriteString(rule + "\n")
		}
	}
	b.WriteString(rule + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Adopted prints what the adoption of a database of OpenStack's Placement did, or its hand-back.
func Adopted(w io.Writer, done store.Adopted, back bool) (err error) {
	took := time.Duration(done.Seconds * float64(time.Second)).Round(time.Millisecond)
	switch {
	case done.Before == done.After && !back:
		_, err = fmt.Fprintf(w, "%s: adopted already; %d tables of OpenStack's guarded by triggers\n",
			done.Database, done.Guarded)
	case done.Before == done.After && done.Before == store.StateEmpty:
		_, err = fmt.Fprintf(w, "%s: it has no tables\n", done.Database)
	case done.Before == done.After:
		_, err = fmt.Fprintf(w, "%s: OpenStack's already; nothing was left to remove\n", done.Database)
	case back:
		sequences := ""
		if done.Sequences > 0 {
			sequences = fmt.Sprintf("sequences     %d moved past the highest numbers\n", done.Sequences)
		}
		_, err = fmt.Fprintf(w, "%s: handed back in %s\n"+
			"removed       %d tables of compute-agent with %d rows, and all triggers\n"+
			"OpenStack's   0 rows changed\n%snext          start OpenStack's Placement\n",
			done.Database, took, done.Tables, done.Rows, sequences)
	default:
		_, err = fmt.Fprintf(w, "%s: adopted in %s\nmade          %d tables of compute-agent with %d rows\n"+
			"guarded       %d tables of OpenStack's by triggers\nOpenStack's   0 rows changed\n"+
			"next          start compute-agent placement serve\n",
			done.Database, took, done.Tables, done.Rows, done.Guarded)
	}
	return err
}

// stateMeaning says what a state of a database is.
var stateMeaning = map[string]string{
	store.StateEmpty:      "no tables",
	store.StateOpenStack:  "OpenStack Placement's",
	store.StateAdopted:    "adopted by compute-agent",
	store.StateUnfinished: "an adoption or a hand-back was interrupted: repeat either",
}

// AdoptionCheck prints what is in a database of OpenStack's Placement, what is unusual, and whether
// it can be adopted.
func AdoptionCheck(w io.Writer, found *store.Adoption) error {
	var b strings.Builder
	rows := [][]string{{"database", found.Database}, {"state", stateMeaning[found.State]}}
	line := func(name, text string) { rows = append(rows, []string{name, text}) }
	if found.State != store.StateEmpty {
		line("alembic", found.Alembic+", "+cmp.Or(found.Release, "not known"))
	}
	if found.Nodes > 0 {
		line("cluster", fmt.Sprintf("%d nodes of Galera; who is connected to the others is not shown", found.Nodes))
	}
	if found.Guardable > 0 {
		text := fmt.Sprintf("%d of %d tables", found.Guarded, found.Guardable)
		if found.Guarded == 0 && found.State == store.StateAdopted {
			text += "; a user without the privilege TRIGGER does not see what guards them"
		}
		line("guarded", text)
	}
	for _, s := range found.Sessions {
		line("connected", textutil.Printable(s.String()))
	}
	for _, s := range found.Servers {
		line("server", textutil.Printable(s))
	}
	for _, c := range found.Counts {
		line(c.Table, fmt.Sprintf("%d rows", c.Rows))
	}
	b.WriteString(Table(rows))
	for _, f := range found.Findings {
		fmt.Fprintf(&b, "\n%s: %s (%d)\n    %s\n", f.Verdict, f.ID, f.Count, textutil.Printable(f.Meaning))
		for _, e := range f.Examples {
			fmt.Fprintf(&b, "      %s\n", textutil.Printable(e))
		}
		if more := f.Count - int64(len(f.Examples)); more > 0 && len(f.Examples) > 0 {
			fmt.Fprintf(&b, "      and %d more\n", more)
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "    fix: %s\n", textutil.Printable(f.Fix))
		}
	}
	b.WriteString("\n" + verdict(found) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is whether a database can be adopted, and what to do.
func verdict(found *store.Adoption) string {
	switch {
	case found.State == store.StateEmpty:
		return "There is nothing to adopt: compute-agent placement db upgrade makes the tables."
	case found.MustRepair():
		return "It cannot be adopted yet: repair what says so above, and check again."
	case found.State == store.StateUnfinished:
		return "What was interrupted is repeated, or undone: compute-agent placement adopt --apply, or --hand-back"
	case found.State == store.StateAdopted:
		return "It is adopted. compute-agent placement adopt --hand-back gives it back."
	case len(found.Sessions) > 0:
		return "It can be adopted once the programs that are connected have been stopped: " +
			"compute-agent placement adopt --apply"
	}
	return "It can be adopted: compute-agent placement adopt --apply"
}
