// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

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
		Long: "Make a random token, and the line for the token file of Placement, " +
			"the compute API or a cell, which has a salted digest of it. The\n" +
			"token is printed once, or written to a file with --out; then only the line is printed:\n\n" +
			"  (umask 077; compute-agent token new --roles service --user agent --out /etc/compute-agent/token >> " +
			"/etc/compute-agent/placement-tokens)\n\n" +
			"The token file must be readable for the user of the service, " +
			"and not for others: the service refuses it otherwise.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, line, err := osapi.NewToken(roles, user, project)
			if err != nil {
				return &exitError{exitUsage, err}
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
