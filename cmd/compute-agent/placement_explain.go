// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

func newPlacementExplain() *cobra.Command {
	var opts cli.Options
	var address, version string
	cmd := &cobra.Command{
		Use: "explain QUERY", Short: "Explain why a request for allocation candidates finds no hosts, or few",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := placementclient.CleanQuery(args[0])
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			if address != "" {
				opts.Extra = append(opts.Extra,
					config.Override{Key: "placement_client.url", Value: address, Flag: "--url"})
			}
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cli.AskTimeout)
			defer cancel()
			client, err := access.ForCommand(cfg.PlacementClient, version)
			if err != nil {
				return err
			}
			defer client.CloseIdle()
			raw, err := client.Explain(ctx, query)
			if err != nil {
				return err
			}
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), raw)
			}
			var e candidates.Explanation
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("cannot decode Placement's answer: %w", err)
			}
			return render.Explanation(cli.Screen(cmd.OutOrStdout()), &e)
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&address, "url", "", "`URL` of the Placement to ask (placement_client.url)")
	cmd.Flags().StringVar(&version, "microversion", wire.Version(wire.RequestedExtensions).String(),
		"microversion `1.N` of the query")
	return cmd
}
