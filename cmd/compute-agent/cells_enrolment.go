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
		Long: "Invite a host to a cell: print a token, good once, with which " +
			"`compute-agent join` on the host gets a certificate. The host's\n" +
			"certificates are for the compute nodes that --node names; without " +
			"it, for those that the host names first. A node belongs to one\n" +
			"host. [enrolment] must be configured.\n\n" +
			"A host that is enrolled or evicted needs --again: it gets a new " +
			"token, and the certificates that it has are refused at once.\n" +
			"Its nodes stay its own; names of nodes other than HOST " +
			"and HOST.DOMAIN have to be given again with --node.",
		Example: "  compute-agent cells manage add-host cn1 --cell cell1\n" +
			"  compute-agent cells manage add-host cn2 --cell cell1 --node " +
			"7f0ba24e-2e4f-4a07-8a4e-0a3a8b1b5d55=cn2.example.com",
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
				return &exitError{exitUsage, err}
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
				return printResult(cmd, &opts.options, v, render.HostInvitation)
			})
		},
	}
	opts.addFlags(cmd)
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
		Long: "Add a compute node to a host that was invited or has joined. The " +
			"next certificate of the host has it: the agent renews it at a\n" +
			"third of its lifetime. A node belongs to one host.",
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := operator.ParseNodes(args[1:])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				host, all, err := d.EnrolNode(ctx, args[0], nodes[0])
				if err != nil {
					return err
				}
				return printResult(cmd, &opts.options, all, func(w io.Writer, nodes []enrolment.Node) error {
					_, err := fmt.Fprintf(w,
						"Host %s has %d compute nodes now. Its next certificate is for all of them.\n", host,
						len(nodes))
					return err
				})
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}
