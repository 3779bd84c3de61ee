// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

// newDisable stops new instances from being scheduled to this host's nodes.
func newDisable() *cobra.Command {
	var request control.DisableRequest
	cmd := newDisabling(&request, false, &cobra.Command{
		Use:   "disable [NODE] --reason TEXT",
		Short: "Stop scheduling new instances to this host", Args: cobra.MaximumNArgs(1),
		Long: "Stop scheduling new instances to this host: set the trait COMPUTE_STATUS_DISABLED on the root " +
			"provider of each of its nodes, or of\n" +
			"one node. It lasts across restarts until `compute-agent enable`. Running guests are not affected.\n\n" +
			"The running agent updates Placement immediately, and the command " +
			"waits some seconds for it; the exit code is 1 if Placement is\n" +
			"not updated by then. If no agent runs, its next start updates Placement.",
	})
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`TEXT` that explains why, one line of at most 500 characters")
	return cmd
}

// newEnable reverts newDisable.
func newEnable() *cobra.Command {
	var request control.DisableRequest
	return newDisabling(&request, true, &cobra.Command{
		Use: "enable [NODE]", Short: "Resume scheduling new instances to this host", Args: cobra.MaximumNArgs(1),
		Long: "Resume scheduling new instances to this host: remove the trait " +
			"COMPUTE_STATUS_DISABLED from the root provider of each of its\n" +
			"nodes, or of one node, whichever client set it. If no agent runs, its next start does it.",
	})
}

func newDisabling(request *control.DisableRequest, enable bool, cmd *cobra.Command) *cobra.Command {
	var opts options
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if request.Node != "" {
				return &exitError{exitUsage,
					fmt.Errorf("name the node once: %q is an argument, and --node is given as well", args[0])}
			}
			request.Node = args[0]
		}
		request.By = commands.Requester()
		if err := request.Check(enable); err != nil {
			return &exitError{exitUsage, err}
		}
		cfg, err := opts.load()
		if err != nil {
			return err
		}
		out, err := hostOf(cmd, cfg).Disable(cmd.Context(), *request, enable)
		if err != nil {
			return err
		}
		err = printResult(cmd, &opts, out, func(w io.Writer, out control.Disabling) error {
			return render.Disabling(w, out, enable)
		})
		if err == nil && !out.Offline && !out.Done() {
			return &exitError{code: exitFailed}
		}
		return err
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&request.Node, "node", "",
		"`NAME` of one compute node, as the argument (default: all of this host)")
	return cmd
}
