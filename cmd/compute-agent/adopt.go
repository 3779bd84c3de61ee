// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

// consent asks for confirmation of a change that was shown.
type consent struct{ dryRun, yes bool }

func (c *consent) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be done, and change nothing")
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
}

// confirm asks for consent on a terminal. Without a terminal, --yes or --dry-run is required.
func (c *consent) confirm(cmd *cobra.Command) (bool, error) {
	if c.dryRun || c.yes {
		return c.yes && !c.dryRun, nil
	}
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return false, &exitError{exitUsage,
			errors.New("standard input is not a terminal: give --yes to proceed, or --dry-run to look")}
	}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), "Proceed? [y/N] "); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(io.LimitReader(in, 1024)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// newAdopt reconciles this host's identity with what Placement has.
func newAdopt() *cobra.Command {
	var opts options
	var adoption commands.AdoptOptions
	var ok consent
	cmd := &cobra.Command{
		Use:   "adopt [--uuid UUID] [--rename] | --as-new | --give-back",
		Short: "Take over a resource provider that exists under another uuid or name, or give one back",
		Args:  cobra.NoArgs,
		Long: "Take over a resource provider that exists in Placement under another uuid or name, after the agent " +
			"has refused to report the node.\n\n" +
			"  --uuid UUID   this host's resource provider is UUID. The identity " +
			"file compute_id changes to it; the old file is kept beside it.\n" +
			"  --rename      the host was renamed: rename its resource " +
			"provider, and the providers below it that are named after it.\n" +
			"  --as-new      this Placement does not have a node that " +
			"was reported before, or that has guests: create it again.\n" +
			"  --give-back   nova-compute reports this node again: restore its " +
			"resource providers to their state before this agent adopted\n" +
			"                them, and delete this agent's record of the node. " +
			"Allocations stay. It is refused while something that would be\n" +
			"                removed is allocated.\n\n" +
			"On a host with a cell, the servers that the cell has on it and " +
			"the other consumers of its resource providers are counted. While\n" +
			"there are any, the command is refused without --with-servers and their number.\n\n" +
			"The command shows what Placement has and asks for confirmation. " +
			"The agent must not run. Running the command again is safe, and\n" +
			"continues after a crash. The exit code is 3 if it is not certain who owns a provider.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := adoption.Check(); err != nil {
				return &exitError{exitUsage, err}
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout+cfg.Tracker.PassDeadline)
			defer cancel()
			if !ok.dryRun {
				adoption.Confirm = func(plan control.Adoption) (bool, error) {
					if !opts.json() && !ok.yes {
						if err := render.Adoption(screen(cmd.OutOrStdout()), plan); err != nil {
							return false, err
						}
					}
					return ok.confirm(cmd)
				}
			}
			plan, err := commands.Adopt(ctx, cfg, newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel), adoption)
			if err != nil {
				return err
			}
			return printResult(cmd, &opts, plan, func(w io.Writer, plan control.Adoption) error {
				if !plan.Done && !ok.dryRun {
					_, err := fmt.Fprintln(w, "Nothing was changed.")
					return err
				}
				return render.Adoption(w, plan)
			})
		},
	}
	opts.addFlags(cmd)
	ok.addFlags(cmd)
	cmd.Flags().StringVar(&adoption.Node, "node", "", "`NAME` of the compute node (default: that of the host)")
	cmd.Flags().StringVar(&adoption.UUID, "uuid", "", "`UUID` of the resource provider that is this host's")
	cmd.Flags().BoolVar(&adoption.Rename, "rename", false,
		"rename the provider, and those named after it, to the node's name")
	cmd.Flags().BoolVar(&adoption.AsNew, "as-new", false, "create a node again in a Placement that does not have it")
	addWithServers(cmd, &adoption.WithServers)
	cmd.Flags().BoolVar(&adoption.GiveBack, "give-back", false,
		"restore the resource providers to their state before this agent adopted them")
	return cmd
}

// addWithServers adds the flag by which an operator says that what is on a host is known.
func addWithServers(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "with-servers", "",
		"go on although the host has `N` servers and other consumers (unknown: although that cannot be found out)")
}

// checkWithServers validates the flag.
func checkWithServers(given string) error { return commands.CheckWithServers(given) }
