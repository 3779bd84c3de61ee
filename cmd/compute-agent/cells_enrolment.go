// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// withEnrolment returns what serves a compute API, with the enrolment service beside it if one is
// configured. If one of them fails, both end.
func withEnrolment(ctx context.Context, cfg *config.Config, api *cells.API, made cells.APIConfig, log zerolog.Logger) (func(context.Context, net.Listener) error, error) {
	c := cfg.Enrolment
	if c.Listen == "" {
		return api.Serve, nil
	}
	authority, err := pki.OpenAuthority(caDir(c))
	if err != nil {
		return nil, fmt.Errorf("%w: enrolment.ca_dir: %w", config.ErrInvalid, err)
	}
	place := enrolment.PlacementPlace{URL: c.PlacementURL}
	if c.PlacementCAFile != "" {
		ca, err := files.Read(c.PlacementCAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: enrolment.placement_ca_file: %w", config.ErrInvalid, err)
		}
		place.CA = string(ca.Data)
	}
	names, err := enrolmentNames(c)
	if err != nil {
		return nil, err
	}
	service, err := enrolment.New(enrolment.Config{
		Store: api.Store(), Authority: authority, Names: names, Lifetime: c.CertificateLifetime, RenewalGrace: c.RenewalGrace, Placement: place,
		Denied: made.Denied, Audit: made.Audit.For(cells.AuditService), Tracing: made.Tracing, Connections: made.Connections, Observer: api.EnrolmentObserver(), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: [enrolment]: %w", config.ErrInvalid, err)
	}
	l, err := osapi.Listen(ctx, c.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve enrolment on %s: %w; choose another address in enrolment.listen", c.Listen, err)
	}
	log.Info().Str("address", l.Addr().String()).Str("ca", authority.Fingerprint()).Strs("names", names).Msg("Enrolment is served: hosts can join with a token.")
	return func(ctx context.Context, to net.Listener) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return api.Serve(ctx, to) })
		group.Go(func() error { return service.Serve(ctx, l) })
		return group.Wait()
	}, nil
}

// caDir is the directory of the CA: by default that of the credentials which systemd passes.
func caDir(c config.Enrolment) string { return cmp.Or(c.CADir, os.Getenv("CREDENTIALS_DIRECTORY")) }

// enrolmentNames are the names by which hosts reach the enrolment service.
func enrolmentNames(c config.Enrolment) ([]string, error) {
	if len(c.Names) > 0 {
		return c.Names, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the name of this machine: %w; set enrolment.names", err)
	}
	return []string{name}, nil
}

// enrolmentURL is the address of the enrolment service for hosts.
func enrolmentURL(c config.Enrolment) (string, error) {
	if c.URL != "" {
		return c.URL, nil
	}
	if c.Listen == "" {
		return "", fmt.Errorf("%w: enrolment.listen is empty, so that no host can join; set it, and enrolment.ca_dir, and restart the compute API", config.ErrInvalid)
	}
	names, err := enrolmentNames(c)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(c.Listen)
	return "https://" + net.JoinHostPort(names[0], port), err
}

// caFingerprint is that of the CA of hosts.
func caFingerprint(c config.Enrolment, file string) (string, error) {
	if file == "" {
		if caDir(c) == "" {
			return "", fmt.Errorf("%w: enrolment.ca_dir is empty; --ca-file names the certificate of the CA", config.ErrInvalid)
		}
		file = filepath.Join(caDir(c), pki.CACertificateFile)
	}
	content, err := files.Read(file)
	if err != nil {
		return "", fmt.Errorf("the certificate of the CA: %w", err)
	}
	block, _ := pem.Decode(content.Data)
	if block == nil {
		return "", fmt.Errorf("the certificate of the CA: %s has none in PEM", file)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("the certificate of the CA: %s: %w", file, err)
	}
	return pki.Fingerprint(ca), nil
}

// invitationView is the answer of add-host, as printed.
type invitationView struct {
	Host    string           `json:"host"`
	Cell    string           `json:"cell"`
	Nodes   []enrolment.Node `json:"nodes"`
	Token   string           `json:"token"`
	Expires time.Time        `json:"expires"`
	URL     string           `json:"url"`
	// Again says that the certificates which the host had are refused.
	Again bool `json:"again,omitempty"`
}

func newAddHost() *cobra.Command {
	var opts manageOptions
	var cell, caFile string
	var nodes []string
	var ttl time.Duration
	var again bool
	cmd := &cobra.Command{
		Use: "add-host HOST --cell CELL", Aliases: []string{"add_host"}, Short: "Invite a host: make a token with which it joins", Args: cobra.ExactArgs(1),
		Long: "Invite a host to a cell: print a token, good once, with which `compute-agent join` on the host gets a certificate. The host's\n" +
			"certificates are for the compute nodes that --node names; without it, for those that the host names first. A node belongs to one\n" +
			"host. [enrolment] must be configured.\n\n" +
			"A host that is enrolled or evicted needs --again: it gets a new token, and the certificates that it has are refused at once.\n" +
			"Its nodes stay its own; names of nodes other than HOST and HOST.DOMAIN have to be given again with --node.",
		Example: "  compute-agent cells manage add-host cn1 --cell cell1\n" +
			"  compute-agent cells manage add-host cn2 --cell cell1 --node 7f0ba24e-2e4f-4a07-8a4e-0a3a8b1b5d55=cn2.example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			invitation := enrolment.Invitation{Host: args[0], TTL: ttl, Again: again}
			var err error
			if invitation.Nodes, err = parseNodes(nodes); err == nil {
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
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				in, err := findCell(cmd.Context(), store, cell)
				if err != nil {
					return err
				}
				url, err := enrolmentURL(cfg.Enrolment)
				if err != nil {
					return err
				}
				fingerprint, err := caFingerprint(cfg.Enrolment, caFile)
				if err != nil {
					return err
				}
				invitation.CellUUID, invitation.By, invitation.Now = in.UUID, sqldb.CommandUser(cmd.Context()), time.Now()
				e, token, err := enrolment.Invite(cmd.Context(), store, fingerprint, invitation)
				if err != nil {
					return invitationRefused(err)
				}
				view := invitationView{Host: e.Host, Cell: in.Name, Nodes: nodesOf(e), Token: token.Reveal(), Expires: e.InvitedUntil, URL: url, Again: !e.DeniedBefore.IsZero()}
				if strings.HasPrefix(in.URL, "unix://") {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "The cell %s is at %s: only hosts on its own machine can reach it.\n", in.Name, in.URL)
				}
				return printed(cmd, &opts.options, view, printInvitation)
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringVar(&cell, "cell", "", "`CELL` of the host, by name or uuid")
	cmd.Flags().StringArrayVar(&nodes, "node", nil, "`UUID[=NAME]` of a compute node of the host; several times for several nodes")
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is good")
	cmd.Flags().BoolVar(&again, "again", false, "invite a host that is enrolled or evicted, and refuse the certificates that it has")
	cmd.Flags().StringVar(&caFile, "ca-file", "", "`FILE` of the certificate of the CA (default ca.pem in enrolment.ca_dir)")
	return cmd
}

func printInvitation(w io.Writer, v invitationView) error {
	what := "Invited"
	if v.Again {
		what = "Invited again"
	}
	_, err := fmt.Fprintf(w, "%s host %s to cell %s, until %s.\n", what, v.Host, v.Cell, v.Expires.UTC().Format(time.RFC3339))
	if v.Again && err == nil {
		_, err = fmt.Fprintln(w, "Certificates that it had are refused.")
	}
	for _, n := range v.Nodes {
		if err == nil {
			_, err = fmt.Fprintf(w, "Its compute node: %s\n", strings.TrimSpace(n.UUID+" "+n.Name))
		}
	}
	if len(v.Nodes) == 0 && err == nil {
		_, err = fmt.Fprintln(w, "Its compute nodes will be those that it names first.")
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nRun on %s, as root:\n\n  (umask 077; echo %s > /root/join.token)\n  compute-agent join --api %s --token-file /root/join.token\n\n"+
		"The token is a secret, and good once.\n", v.Host, v.Token, v.URL)
	return err
}

// invitationRefused is the error of add-host and enrol-node.
func invitationRefused(err error) error {
	taken := new(apidb.NodeTakenError)
	switch {
	case errors.Is(err, enrolment.ErrAgain):
		return &exitError{exitProtect, fmt.Errorf("%w; with --again it gets a new token, and the certificates that it has are refused", err)}
	case errors.Is(err, enrolment.ErrAhead):
		return &exitError{exitProtect, fmt.Errorf(
			"%w; it was evicted, or got its last certificate, while a clock was ahead: "+
				"check the clock of this machine, then run: compute-agent cells manage allow-host HOST", err)}
	case errors.As(err, &taken) && taken.Name != "":
		return &exitError{exitProtect, fmt.Errorf(
			"%w: a host has NAME, NAME.DOMAIN and what begins with NAME_ in Placement, so that one could change or block the provider trees of the other; "+
				"choose another name, or, if host %s is gone, evict and delete it", err, taken.Host)}
	case errors.As(err, &taken):
		return &exitError{
			exitProtect,
			fmt.Errorf("%w; if the node has moved, evict and delete that host first: compute-agent cells manage evict-host %s, then delete-host %[2]s", err, taken.Host),
		}
	}
	return err
}

// parseNodes reads nodes as flags and arguments name them.
func parseNodes(texts []string) ([]enrolment.Node, error) {
	nodes := make([]enrolment.Node, 0, len(texts))
	for _, text := range texts {
		id, name, named := strings.Cut(text, "=")
		parsed, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("%.100q is not UUID or UUID=NAME of a compute node", text)
		}
		if named {
			if err := pki.CheckName(name); err != nil {
				return nil, err
			}
		}
		nodes = append(nodes, enrolment.Node{UUID: parsed.String(), Name: name})
	}
	return nodes, nil
}

func nodesOf(e apidb.Enrolment) []enrolment.Node {
	nodes := make([]enrolment.Node, 0, len(e.Nodes))
	for _, n := range e.Nodes {
		nodes = append(nodes, enrolment.Node{UUID: n.UUID, Name: n.Name})
	}
	return nodes
}

func newEnrolNode() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "enrol-node HOST UUID[=NAME]", Short: "Add a compute node to a host", Args: cobra.ExactArgs(2),
		Long: "Add a compute node to a host that was invited or has joined. The next certificate of the host has it: the agent renews it at a\n" +
			"third of its lifetime. A node belongs to one host.",
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := parseNodes(args[1:])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return opts.with(cmd, func(store apidb.Store, _ *config.Config) error {
				e, err := enrolment.EnrolNode(cmd.Context(), store, args[0], nodes[0])
				if err != nil {
					return invitationRefused(err)
				}
				return printed(cmd, &opts.options, nodesOf(e), func(w io.Writer, nodes []enrolment.Node) error {
					_, err := fmt.Fprintf(w, "Host %s has %d compute nodes now. Its next certificate is for all of them.\n", e.Host, len(nodes))
					return err
				})
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}
