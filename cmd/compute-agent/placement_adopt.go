// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
)

func newPlacementAdopt() *cobra.Command {
	var opts databaseOptions
	var check, apply, handBack bool
	var how store.AdoptOptions
	cmd := &cobra.Command{
		Use: "adopt [--check | --apply | --hand-back]", Short: "Serve a database that OpenStack Placement made, or hand it back", Args: cobra.NoArgs,
		Long: "Replace OpenStack's Placement in place, on its own database (MariaDB, MySQL, PostgreSQL or SQLite; alembic versions from Xena on).\n\n" +
			"--check, the default, reads the database and changes nothing: it prints what is in it, what is unusual and what that means.\n" +
			"--apply adds a few small tables of compute-agent, and triggers that refuse what OpenStack's Placement would write while\n" +
			"compute-agent serves. It refuses while other programs are connected. --hand-back removes both again, and refuses while a\n" +
			"server of compute-agent uses the database. No row of OpenStack's is changed by either. Both can be repeated, and may be\n" +
			"ended at any moment. The databases of Nova itself (nova_api, nova, nova_cell0) are not adopted.\n\n" +
			"Exit codes: 0 done, or can be done; 1 failed; 3 refused, nothing was changed; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check && apply || check && handBack || apply && handBack {
				return &exitError{exitUsage, errors.New("choose one of --check, --apply and --hand-back")}
			}
			if (check || !apply && !handBack) && (how.Force || how.WithoutGuard) || handBack && how.WithoutGuard {
				return &exitError{exitUsage, errors.New("--force is for --apply and --hand-back, --without-guard for --apply")}
			}
			cfg, err := opts.placementConfig()
			if err != nil {
				return err
			}
			if !apply && !handBack {
				return opts.checkAdoption(cmd, cfg)
			}
			do, what := placement.Adopt, "Adopting the database"
			if handBack {
				do, what = placement.HandBack, "Handing the database back"
			}
			var done store.Adopted
			err = working(cmd, what, func(*render.Progress) (err error) {
				done, err = do(cmd.Context(), cfg, how)
				return err
			})
			if err != nil {
				return refusedAdoption(err)
			}
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), struct {
					store.Adopted
					Seconds float64 `json:"seconds"`
				}{done, done.Duration.Seconds()})
			}
			_, err = io.WriteString(cmd.OutOrStdout(), describeAdopted(done, handBack))
			return err
		},
	}
	opts.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&check, "check", false, "look only (the default)")
	flags.BoolVar(&apply, "apply", false, "adopt the database")
	flags.BoolVar(&handBack, "hand-back", false, "give the database back to OpenStack's Placement")
	flags.BoolVar(&how.Force, "force", false, "go on although other programs are connected to the database")
	flags.BoolVar(&how.WithoutGuard, "without-guard", false, "make no triggers: nothing then keeps OpenStack's Placement from writing")
	return cmd
}

func (o *databaseOptions) checkAdoption(cmd *cobra.Command, cfg placement.Config) error {
	var found store.Adoption
	err := working(cmd, "Checking the database", func(*render.Progress) (err error) {
		found, err = placement.CheckAdoption(cmd.Context(), cfg)
		return err
	})
	if err != nil {
		return refusedAdoption(err)
	}
	if o.json() {
		err = printJSON(cmd.OutOrStdout(), found)
	} else {
		err = printAdoption(cmd.OutOrStdout(), &found)
	}
	if err == nil && (found.State == store.StateEmpty || found.MustRepair()) {
		err = &exitError{code: exitProtect}
	}
	return err
}

// refusedAdoption gives an error its exit code: nothing was changed, or it is another program's
// database.
func refusedAdoption(err error) error {
	if errors.Is(err, store.ErrRefused) || errors.Is(err, sqldb.ErrSchema) {
		return &exitError{exitProtect, err}
	}
	return err
}

func describeAdopted(done store.Adopted, back bool) string {
	if done.Before == done.After {
		switch {
		case !back:
			return fmt.Sprintf("%s: adopted already; %d tables of OpenStack's guarded by triggers\n", done.Database, done.Guarded)
		case done.Before == store.StateEmpty:
			return done.Database + ": it has no tables\n"
		}
		return done.Database + ": OpenStack's already; nothing was left to remove\n"
	}
	took := done.Duration.Round(time.Millisecond)
	if back {
		text := fmt.Sprintf(
			"%s: handed back in %s\nremoved       %d tables of compute-agent with %d rows, and all triggers\nOpenStack's   0 rows changed\n",
			done.Database,
			took,
			done.Tables,
			done.Rows,
		)
		if done.Sequences > 0 {
			text += fmt.Sprintf("sequences     %d moved past the highest numbers\n", done.Sequences)
		}
		return text + "next          start OpenStack's Placement\n"
	}
	return fmt.Sprintf(
		"%s: adopted in %s\nmade          %d tables of compute-agent with %d rows\nguarded       %d tables of OpenStack's by triggers\nOpenStack's   0 rows changed\nnext          start compute-agent placement serve\n",
		done.Database,
		took,
		done.Tables,
		done.Rows,
		done.Guarded,
	)
}

// stateMeaning says what a state of a database is.
var stateMeaning = map[string]string{
	store.StateEmpty:      "no tables",
	store.StateOpenStack:  "OpenStack Placement's",
	store.StateAdopted:    "adopted by compute-agent",
	store.StateUnfinished: "an adoption or a hand-back was interrupted: repeat either",
}

func printAdoption(w io.Writer, found *store.Adoption) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { _, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("database", "%s", found.Database)
	line("state", "%s", stateMeaning[found.State])
	if found.State != store.StateEmpty {
		release := found.Release
		if release == "" {
			release = "not known"
		}
		line("alembic", "%s, %s", found.Alembic, release)
	}
	if found.Nodes > 0 {
		line("cluster", "%d nodes of Galera; who is connected to the others is not shown", found.Nodes)
	}
	if found.Guardable > 0 {
		text := fmt.Sprintf("%d of %d tables", found.Guarded, found.Guardable)
		if found.Guarded == 0 && found.State == store.StateAdopted {
			text += "; a user without the privilege TRIGGER does not see what guards them"
		}
		line("guarded", "%s", text)
	}
	for _, s := range found.Sessions {
		line("connected", "%s", textutil.Printable(s.String()))
	}
	for _, s := range found.Servers {
		line("server", "%s", textutil.Printable(s))
	}
	for _, c := range found.Counts {
		line(c.Table, "%d rows", c.Rows)
	}
	if err := t.Flush(); err != nil {
		return err
	}
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
		return "It can be adopted once the programs that are connected have been stopped: compute-agent placement adopt --apply"
	}
	return "It can be adopted: compute-agent placement adopt --apply"
}
