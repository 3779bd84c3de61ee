// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// joinOptions are the flags of join.
type joinOptions struct {
	cli.Options
	dir, user                             string
	api, tokenFile                        string
	again                                 bool
	csr, certificate, caFile              string
	host, cellURL, placementURL, placesCA string
}

func newJoin() *cobra.Command {
	var o joinOptions
	cmd := &cobra.Command{
		Use: "join", Short: "Get a certificate for this host, and the configuration to use it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "config-dir", filepath.Dir(config.DefaultFile), "`DIR` of compute-agent.toml")
	f.StringVar(&o.StateDir, "state-dir", "", "`DIR` of persistent state (agent.state_dir)")
	f.StringVar(&o.user, "user", "compute-agent", "`USER` of the agent, if there is no state directory yet; for root")
	f.BoolVar(&o.again, "again", false, "join again, and replace the identity that the host has")
	f.StringVar(&o.api, "api", "", "`URL` of the enrolment service")
	f.StringVar(&o.tokenFile, "token-file", "", "`FILE` of the join token, which other users must not be able to read")
	f.StringVar(&o.csr, "csr", "", "write a request for a certificate to `FILE` instead, for a CA of the site's own")
	f.StringVar(&o.host, "host", "", "`NAME` of the host, for --csr and --certificate (default agent.host)")
	f.StringVar(&o.certificate, "certificate", "", "install the certificate in `FILE`, for the key of --csr")
	f.StringVar(&o.caFile, "ca-file", "", "`FILE` of the CAs that the host is to trust, for --certificate")
	f.StringVar(&o.cellURL, "cell-url", "", "`URL` of the host's cell, for --certificate")
	f.StringVar(&o.placementURL, "placement-url", "", "`URL` of Placement, for --certificate")
	f.StringVar(&o.placesCA, "placement-ca-file", "",
		"`FILE` of the CAs to trust at Placement, for --certificate (default: --ca-file)")
	return cmd
}

// usage checks which flags go together.
func (o *joinOptions) usage() error {
	ways := 0
	for _, way := range []string{o.api, o.csr, o.certificate} {
		if way != "" {
			ways++
		}
	}
	var err error
	switch {
	case ways != 1:
		err = errors.New("one of --api, --csr and --certificate is required")
	case (o.api == "") != (o.tokenFile == ""):
		err = errors.New(
			"--api and --token-file are required together: the address of the enrolment service, and the token for it")
	case (o.certificate == "") != (o.caFile == ""):
		err = errors.New(
			"--certificate and --ca-file are required together: the certificate, and the CA that the host is to trust")
	case o.certificate == "" && o.cellURL+o.placementURL+o.placesCA != "":
		err = errors.New(
			"--cell-url, --placement-url and --placement-ca-file are for --certificate: otherwise the enrolment " +
				"service gives them")
	default:
		return nil
	}
	return cli.Exit(cli.ExitUsage, err)
}

// run joins, in one of the three ways.
func (o *joinOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.usage(); err != nil {
		return err
	}
	o.File = filepath.Join(o.dir, filepath.Base(config.DefaultFile))
	cfg, err := o.Load()
	if err != nil {
		return err
	}
	host := enrolment.Host{StateDir: cfg.Agent.StateDir, ConfigDir: o.dir}
	if host.UID, host.GID, err = enrolment.AgentOwner(host.StateDir, o.user); err != nil {
		return fmt.Errorf("the user of the agent: %w", err)
	}
	if o.host == "" {
		o.host = cfg.Agent.Host
	}
	switch {
	case o.csr != "":
		return o.request(host, out)
	case o.certificate != "":
		return o.install(host, out)
	}
	text, err := files.ReadSecret(o.tokenFile)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	token, err := enrolment.ParseToken(text)
	if err != nil {
		return fmt.Errorf("--token-file: %s: %w", o.tokenFile, err)
	}
	if err := enrolment.CheckURL(o.api); err != nil {
		return cli.Exit(cli.ExitUsage, fmt.Errorf("--api: %w", err))
	}
	csr, err := host.Request(o.host, o.again)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Joining at %s.\n", o.api)
	answer, err := host.Join(ctx, o.api, token, csr, agent.NodesToEnrol(cfg), func(err error, pause time.Duration) {
		_, _ = fmt.Fprintf(out, "No answer: %v. Trying again in %v.\n", err, pause)
	})
	if err != nil {
		return fmt.Errorf("the host has not joined: %w", err)
	}
	_ = render.JoinAnswer(out, answer)
	return o.finish(host, enrolment.FromAnswer(answer, o.api), out)
}

// finish writes the files of a host that has joined, if the agent can start with them.
func (o *joinOptions) finish(host enrolment.Host, j enrolment.Joined, out io.Writer) error {
	check := cli.Options{File: o.File, StateDir: o.StateDir}
	for _, s := range host.Settings(j) {
		check.Extra = append(check.Extra, config.Override{Key: s.Key, Value: s.Value, Flag: "compute-agent join"})
	}
	if _, err := check.Load(); err != nil {
		return cli.Exit(cli.ExitConfig,
			fmt.Errorf("nothing was written, because the agent could not start with it beside %s: %w; correct that, "+
				"and run the command again", o.File, err))
	}
	if err := host.Finish(j, time.Now(),
		func(path string) { _, _ = fmt.Fprintf(out, "Wrote %s.\n", path) }); err != nil {
		return fmt.Errorf("%w; run the command again to finish the join", err)
	}
	_, _ = fmt.Fprintln(out, "The host has joined. Start the agent: systemctl restart compute-agent")
	return nil // also if this cannot be printed: to join again is an error
}

// request makes a key and writes a request for a certificate.
func (o *joinOptions) request(host enrolment.Host, out io.Writer) error {
	if err := pki.CheckName(o.host); err != nil {
		return cli.Exit(cli.ExitUsage, fmt.Errorf("--host: %w", err))
	}
	csr, err := host.Request(o.host, o.again)
	if err != nil {
		return err
	}
	if err := files.ReplaceMode(o.csr, csr, 0o644); err != nil {
		return fmt.Errorf("--csr: %w", err)
	}
	_ = render.JoinRequest(out, o.csr, o.host, host)
	return nil
}

// install writes a certificate that a CA of the site's own has signed.
func (o *joinOptions) install(host enrolment.Host, out io.Writer) error {
	j := enrolment.Joined{Host: o.host, Cell: o.cellURL, Placement: o.placementURL}
	for _, f := range []struct {
		flag, path string
		into       *[]byte
	}{{"certificate", o.certificate, &j.Certificates},
		{"ca-file", o.caFile, &j.CA}, {"placement-ca-file", o.placesCA, &j.PlacementCA}} {
		if f.path == "" {
			continue
		}
		content, err := files.Read(f.path)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
		*f.into = content.Data
	}
	return o.finish(host, j, out)
}
