// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/config"
)

// acceptView is the printed result of `cells manage accept`.
type acceptView struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// Accepted is false if the cell's database has not changed.
	Accepted bool      `json:"accepted"`
	Before   *markView `json:"before"`
	Now      markView  `json:"now"`
	// Living counts servers of the API database that are not deleted, and Unknown those of them
	// that the cell does not have. Deleted counts deleted ones, and Back those of them that the
	// cell has.
	Living  int `json:"living"`
	Unknown int `json:"unknown"`
	Deleted int `json:"deleted"`
	Back    int `json:"back"`
}

type markView struct {
	Epoch    string `json:"epoch"`
	Revision int64  `json:"revision"`
}

func newCellsAccept() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "accept CELL", Short: "Accept the replaced database of a cell", Args: cobra.ExactArgs(1),
		Long: "Accept the database that a cell has now, after it was lost or restored from an older copy. Until then, the compute API does not\n" +
			"reconcile anything with this cell. The command compares all servers of the cell and prints the differences: look for a better\n" +
			"copy before accepting. Servers that the cell does not have return 404; servers that were deleted after the copy was made are\n" +
			"listed and counted again, and have to be deleted again. The exit code is 3, and nothing is accepted, if the database changes\n" +
			"again meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				c, err := findCell(cmd.Context(), store, args[0])
				if err != nil {
					return err
				}
				d, err := scheduler.Compare(cmd.Context(), store, newGatherer(cfg), c)
				if errors.Is(err, scheduler.ErrChanged) {
					return &exitError{exitProtect, fmt.Errorf("%w; nothing was accepted, run the command again after the restore is complete", err)}
				}
				if err != nil {
					return fmt.Errorf("%w; nothing was accepted", err)
				}
				if d.Now.Revision < 1 {
					return fmt.Errorf("cell %s does not report the revision of its database, because its version is older than this one; upgrade it. Nothing was accepted", c.Name)
				}
				view := acceptView{
					Name: c.Name, UUID: c.UUID, Now: markView(d.Now), Living: d.Living, Unknown: d.Unknown, Deleted: d.Deleted, Back: d.Back,
					Accepted: d.Before.Known.Epoch == "" || d.Before.Suspect != nil || !d.Before.Fits(d.Now),
				}
				if d.Before.Known.Epoch != "" {
					before := markView(d.Before.Known)
					view.Before = &before
				}
				if view.Accepted {
					if err := store.AcceptCell(cmd.Context(), c.UUID, d.Now); err != nil {
						return err
					}
				}
				return printed(cmd, &opts.options, view, printAccepted)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func printAccepted(w io.Writer, v acceptView) error {
	if v.Before != nil {
		_, _ = fmt.Fprintf(w, "previous  epoch %s, revision %d\n", v.Before.Epoch, v.Before.Revision)
	}
	_, _ = fmt.Fprintf(w, "now       epoch %s, revision %d\n", v.Now.Epoch, v.Now.Revision)
	_, _ = fmt.Fprintf(w, "active    %d servers, %d of them missing in the cell\n", v.Living, v.Unknown)
	_, err := fmt.Fprintf(w, "deleted   %d servers, %d of them still in the cell\n\n", v.Deleted, v.Back)
	if err != nil {
		return err
	}
	if v.Unknown > 0 {
		_, _ = fmt.Fprintf(w, "Servers that are missing in the cell (%d) return 404. Their guests keep running and their allocations stay:\n"+
			"`compute-agent status` on the hosts shows the condition guest-unknown-to-cell.\n", v.Unknown)
	}
	if v.Back > 0 {
		_, _ = fmt.Fprintf(w, "Deleted servers that are still in the cell (%d) are listed and counted again. Delete them again.\n", v.Back)
	}
	if !v.Accepted {
		_, err = fmt.Fprintf(w, "The database of cell %s has not changed; there is nothing to accept.\n", v.Name)
		return err
	}
	_, err = fmt.Fprintf(w, "Accepted the database of cell %s.\n", v.Name)
	return err
}
