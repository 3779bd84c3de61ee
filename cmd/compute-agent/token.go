// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

func newToken() *cobra.Command {
	return group("token", "Make tokens for token files", newTokenNew())
}

func newTokenNew() *cobra.Command {
	var roles []string
	var user, project, out string
	cmd := &cobra.Command{
		Use: "new", Short: "Make a token, and its line for a token file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, line, err := osapi.NewToken(roles, user, project)
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			if out == "" {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Token: %s\nLine for the token file:\n%s\n", token, line)
				return err
			}
			if err := files.Create(out, []byte(token+"\n"), 0o600); err != nil {
				return fmt.Errorf("write the token: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&roles, "roles", nil,
		"`ROLE` of the token, such as admin, service or host; may be repeated (required)")
	cmd.Flags().StringVar(&user, "user", "", "`USER` of the token; with the role host, the name of the host (required)")
	cmd.Flags().StringVar(&project, "project", "", "`PROJECT` of the token (default: that of the user's name)")
	cmd.Flags().StringVar(&out, "out", "", "`FILE` to write the token to; it must not exist")
	required(cmd, "roles", "user")
	return cmd
}
