// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

func newCA() *cobra.Command {
	return group("ca", "Manage the certificates of hosts and services, and the deny list",
		newCAInit(), newCAIssue(), newCASign(), newCAShow(), newCARevoke(), newCAAllow(), newCADenyList())
}

func newCAInit() *cobra.Command {
	var dir, name string
	cmd := &cobra.Command{
		Use: "init", Short: "Create a CA", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ca, err := pki.InitAuthority(dir, name, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"Created the CA %q, valid until %s.\nCertificate  %s\nKey          %s\nFingerprint  %s\n",
				name, ca.Certificate().NotAfter.UTC().Format(time.DateOnly), filepath.Join(dir, pki.CACertificateFile),
				filepath.Join(dir, pki.CAKeyFile), ca.Fingerprint())
			return err
		},
	}
	addCADir(cmd, &dir)
	cmd.Flags().StringVar(&name, "name", "compute-agent-ca", "`NAME` of the CA in certificates")
	return cmd
}

// addCADir adds --dir, which is required with others.
func addCADir(cmd *cobra.Command, dir *string, others ...string) {
	cmd.Flags().StringVar(dir, "dir", "", "`DIR` of the CA (required)")
	required(cmd, append(others, "dir")...)
}

// required has a command refuse to run without flags.
func required(cmd *cobra.Command, flags ...string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range flags {
			if !cmd.Flags().Changed(name) {
				return cli.Exit(cli.ExitUsage, fmt.Errorf("--%s is required; see: %s --help", name, cmd.CommandPath()))
			}
		}
		return nil
	}
}

func newCAIssue() *cobra.Command {
	var dir, out, service string
	var names []string
	var addresses []net.IP
	var client bool
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use: "issue", Short: "Issue the certificate of a service", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(names)+len(addresses) == 0 && !client {
				return cli.Exit(cli.ExitUsage,
					errors.New("neither --dns nor --ip is given, so that clients could not verify the service"))
			}
			if err := pki.CheckName(service); err != nil {
				return cli.Exit(cli.ExitUsage, fmt.Errorf("--service: %w", err))
			}
			ca, err := pki.OpenAuthority(dir)
			if err != nil {
				return err
			}
			certFile, keyFile := filepath.Join(out, service+".pem"), filepath.Join(out, service+".key")
			id := pki.Identity{Kind: pki.Service, Name: service, Names: names}
			certificate, err := ca.Issue(certFile, keyFile, id,
				pki.SignOptions{Lifetime: lifetime, Now: time.Now(), Addresses: addresses, Client: client})
			if err != nil {
				return err
			}
			return showCertificates(cmd.OutOrStdout(),
				certificate, certFile, false, "Issued "+certFile+", with the key "+keyFile+".\n")
		},
	}
	addCADir(cmd, &dir, "service")
	cmd.Flags().StringVar(&service, "service", "",
		"`NAME` of the service, such as placement, compute-api or cell1 (required)")
	cmd.Flags().StringSliceVar(&names, "dns", nil, "DNS `NAME` at which clients reach it; may be repeated")
	cmd.Flags().IPSliceVar(&addresses, "ip", nil, "`ADDRESS` at which clients reach it; may be repeated")
	cmd.Flags().BoolVar(&client, "client", false,
		"let the service show it as a client, too: the compute API does to cells")
	cmd.Flags().DurationVar(&lifetime, "lifetime", 90*24*time.Hour, "how long it is valid")
	cmd.Flags().StringVar(&out, "out", ".", "`DIR` of the certificate and the key")
	return cmd
}

func newCASign() *cobra.Command {
	var opts denyOptions
	var dir, csrFile, host, cellName, out string
	var nodes []string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use: "sign", Short: "Sign the certificate request of a host", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := pki.HostIdentity(host, cellName, nodes)
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			ca, err := pki.OpenAuthority(dir)
			if err != nil {
				return err
			}
			list, _, err := opts.read()
			if err != nil {
				return err
			}
			denial, denied := list.Denial(host)
			csr, err := files.Read(csrFile)
			if err != nil {
				return err
			}
			certificate, err := ca.SignPEM(csr.Data, id,
				pki.SignOptions{Lifetime: lifetime, Now: time.Now(), NotBefore: denial.Before})
			if err != nil {
				return fmt.Errorf("%s: %w", csrFile, err)
			}
			if denied {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
					"%s is on the deny list. Servers accept this certificate, and none from before %s, and "+
						"no tokens.\n",
					host, denial.Before.Format(time.RFC3339))
			}
			if out == "" {
				_, err := cmd.OutOrStdout().Write(certificate)
				return err
			}
			if err := files.ReplaceMode(out, certificate, 0o644); err != nil {
				return err
			}
			return showCertificates(cmd.OutOrStdout(), certificate, out, false, "Signed "+out+".\n")
		},
	}
	addCADir(cmd, &dir, "csr", "host")
	opts.AddFlags(cmd, "deny-list")
	cmd.Flags().StringVar(&csrFile, "csr", "", "`FILE` of the request, in PEM (required)")
	cmd.Flags().StringVar(&host, "host", "", "`NAME` of the host (required)")
	cmd.Flags().StringVar(&cellName, "cell", "", "`NAME` of the host's cell (default: the certificate names none)")
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "`UUID` of a compute node of the host; may be repeated")
	cmd.Flags().DurationVar(&lifetime, "lifetime", 24*time.Hour, "how long it is valid")
	cmd.Flags().StringVar(&out, "out", "", "`FILE` of the certificate (default: standard output)")
	return cmd
}

func newCAShow() *cobra.Command {
	var opts cli.Options
	var dir string
	cmd := &cobra.Command{
		Use: "show [FILE]", Short: "Show who certificates are for", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := filepath.Join(dir, pki.CACertificateFile)
			switch {
			case len(args) == 1 && dir == "":
				path = args[0]
			case len(args) == 1 || dir == "":
				return cli.Exit(cli.ExitUsage, errors.New("give either the file of a certificate or --dir"))
			}
			content, err := files.Read(path)
			if err != nil {
				return err
			}
			return showCertificates(cmd.OutOrStdout(), content.Data, path, opts.JSON(), "")
		},
	}
	opts.AddOutputFlag(cmd)
	cmd.Flags().StringVar(&dir, "dir", "", "`DIR` of a CA, to show its certificate")
	return cmd
}

// showCertificates prints who the certificates of a PEM of a name are for, below a line.
func showCertificates(w io.Writer, text []byte, name string, asJSON bool, line string) error {
	views, err := pki.Describe(text, name, time.Now())
	if err != nil {
		return err
	}
	if asJSON {
		return cli.PrintJSON(w, views)
	}
	if _, err := io.WriteString(w, line); err != nil {
		return err
	}
	return render.Certificates(w, views)
}
