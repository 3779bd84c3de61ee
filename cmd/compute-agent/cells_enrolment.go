// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/pki"
)

func newAddHost() *cobra.Command {
	var opts manageOptions
	var cell, caFile string
	var nodes []string
	var ttl time.Duration
	var again bool
	cmd := &cobra.Command{
		Use: "add-host HOST --cell CELL", Aliases: []string{"add_host"},
		Short: "Invite a host: make a token with which it joins", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			invitation := enrolment.Invitation{Host: args[0], TTL: ttl, Again: again}
			var err error
			if invitation.Nodes, err = operator.ParseNodes(nodes); err == nil {
				err = pki.CheckName(args[0])
			}
			if caFile != "" && err == nil { // the service that may run the command has another directory
				caFile, err = filepath.Abs(caFile)
			}
			switch {
			case err != nil:
			case cell == "":
				err = errors.New("--cell is required: the cell that the host is to belong to")
			case ttl < time.Minute || ttl > 7*24*time.Hour:
				err = fmt.Errorf("--ttl %v: a token is good for one minute to seven days", ttl)
			}
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				v, err := d.InviteHost(ctx, cell, caFile, invitation)
				if err != nil {
					return err
				}
				if strings.HasPrefix(v.CellURL, "unix://") {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
						"The cell %s is at %s: only hosts on its own machine can reach it.\n", v.Cell, v.CellURL)
				}
				return cli.Print(cmd, &opts.Options, v, render.HostInvitation)
			})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&cell, "cell", "", "`CELL` of the host, by name or uuid")
	cmd.Flags().StringArrayVar(&nodes, "node", nil,
		"`UUID[=NAME]` of a compute node of the host; several times for several nodes")
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is good")
	cmd.Flags().BoolVar(&again, "again", false,
		"invite a host that is enrolled or evicted, and refuse the certificates that it has")
	cmd.Flags().StringVar(&caFile, "ca-file", "",
		"`FILE` of the certificate of the CA (default ca.pem in enrolment.ca_dir)")
	return cmd
}

func newEnrolNode() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "enrol-node HOST UUID[=NAME]", Short: "Add a compute node to a host", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := operator.ParseNodes(args[1:])
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				host, all, err := d.EnrolNode(ctx, args[0], nodes[0])
				if err != nil {
					return err
				}
				return cli.Print(cmd, &opts.Options, all, func(w io.Writer, nodes []enrolment.Node) error {
					_, err := fmt.Fprintf(w,
						"Host %s has %d compute nodes now. Its next certificate is for all of them.\n", host,
						len(nodes))
					return err
				})
			})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}
