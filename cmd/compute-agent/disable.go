// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
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
	})
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`TEXT` that explains why, one line of at most 500 characters")
	return cmd
}

// newEnable reverts newDisable.
func newEnable() *cobra.Command {
	var request control.DisableRequest
	return newDisabling(&request, true, &cobra.Command{
		Use: "enable [NODE]", Short: "Resume scheduling new instances to this host", Args: cobra.MaximumNArgs(1),
	})
}

func newDisabling(request *control.DisableRequest, enable bool, cmd *cobra.Command) *cobra.Command {
	var opts cli.Options
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if request.Node != "" {
				return cli.Exit(cli.ExitUsage,
					fmt.Errorf("name the node once: %q is an argument, and --node is given as well", args[0]))
			}
			request.Node = args[0]
		}
		request.By = commands.Requester()
		if err := request.Check(enable); err != nil {
			return cli.Exit(cli.ExitUsage, err)
		}
		cfg, err := opts.Load()
		if err != nil {
			return err
		}
		out, err := cli.HostOf(cmd, cfg).Disable(cmd.Context(), *request, enable)
		if err != nil {
			return err
		}
		err = cli.Print(cmd, &opts, out, func(w io.Writer, out control.Disabling) error {
			return render.Disabling(w, out, enable)
		})
		if err == nil && !out.Offline && !out.Done() {
			return cli.Exit(cli.ExitFailed, nil)
		}
		return err
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&request.Node, "node", "",
		"`NAME` of one compute node, as the argument (default: all of this host)")
	return cmd
}
