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

// acceptView is what was accepted, as it is printed.
type acceptView struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// Accepted is false if the cell has the database that is known.
	Accepted bool      `json:"accepted"`
	Before   *markView `json:"before"`
	Now      markView  `json:"now"`
	// Living servers are those of the API database that are not deleted; Deleted are those that are, and Back those of them that live in the cell.
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
		Use: "accept CELL", Short: "Take the database that a cell has now for its own", Args: cobra.ExactArgs(1),
		Long: "Take the database that a cell has now for its own, after it was lost or an older copy was put back. Until then nothing of\n" +
			"what the cell says is corrected or cleared up. The cell is asked for all of its servers, and what differs is printed: look\n" +
			"for a better copy before. Servers that the cell does not know stay 404; those that were deleted after the copy and live in\n" +
			"it are shown and counted again, and have to be deleted again. The exit code is 3 if the cell gets yet another database\n" +
			"meanwhile; then nothing is accepted.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				c, err := findCell(cmd.Context(), store, args[0])
				if err != nil {
					return err
				}
				d, err := scheduler.Compare(cmd.Context(), store, newGatherer(cfg), c)
				if errors.Is(err, scheduler.ErrChanged) {
					return &exitError{exitProtect, fmt.Errorf("%w; nothing was accepted, run the command again when nobody restores it any more", err)}
				}
				if err != nil {
					return fmt.Errorf("%w; nothing was accepted", err)
				}
				if d.Now.Revision < 1 {
					return fmt.Errorf("cell %s does not say how far its database is: its program is older than this one; upgrade it, nothing was accepted", c.Name)
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
		_, _ = fmt.Fprintf(w, "known     epoch %s, revision %d\n", v.Before.Epoch, v.Before.Revision)
	}
	_, _ = fmt.Fprintf(w, "now       epoch %s, revision %d\n", v.Now.Epoch, v.Now.Revision)
	_, _ = fmt.Fprintf(w, "living    %d servers, of which the cell does not know %d\n", v.Living, v.Unknown)
	_, err := fmt.Fprintf(w, "deleted   %d servers, of which %d live in the cell\n\n", v.Deleted, v.Back)
	if err != nil {
		return err
	}
	if v.Unknown > 0 {
		_, _ = fmt.Fprintf(w, "Servers that the cell does not know (%d) are 404 for their owners. Their guests run on and their allocations stay:\n"+
			"`compute-agent status` on the hosts shows them as guest-unknown-to-cell.\n", v.Unknown)
	}
	if v.Back > 0 {
		_, _ = fmt.Fprintf(w, "Servers that were deleted and live in the cell (%d) are shown and counted as living again. Delete them again.\n", v.Back)
	}
	if !v.Accepted {
		_, err = fmt.Fprintf(w, "Cell %s has the database that is known: there was nothing to accept.\n", v.Name)
		return err
	}
	_, err = fmt.Fprintf(w, "The database of cell %s is accepted.\n", v.Name)
	return err
}
