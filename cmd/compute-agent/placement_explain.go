// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

func newPlacementExplain() *cobra.Command {
	var opts options
	var address, version string
	cmd := &cobra.Command{
		Use: "explain QUERY", Short: "Explain why a request for allocation candidates finds no hosts, or few",
		Args: cobra.ExactArgs(1),
		Long: "Explain why a request for allocation candidates finds no hosts, " +
			"or few: how many providers and trees satisfy each of its\n" +
			"conditions. QUERY is that of GET /allocation_candidates, as Nova's " +
			"scheduler and Placement log it; text up to a question mark\n" +
			"and after the query is ignored. The command asks the Placement " +
			"of [placement_client] or --url, which must be compute-agent's\n" +
			"own.",
		Example: "  compute-agent placement explain 'resources=VCPU:4,MEMORY_MB:8192&required=HW_CPU_X86_AVX2'",
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := placementclient.CleanQuery(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if address != "" {
				opts.extra = append(opts.extra,
					config.Override{Key: "placement_client.url", Value: address, Flag: "--url"})
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
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
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), raw)
			}
			var e candidates.Explanation
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("cannot decode Placement's answer: %w", err)
			}
			return render.Explanation(screen(cmd.OutOrStdout()), &e)
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&address, "url", "", "`URL` of the Placement to ask (placement_client.url)")
	cmd.Flags().StringVar(&version, "microversion", wire.Version(wire.RequestedExtensions).String(),
		"microversion `1.N` of the query")
	return cmd
}
