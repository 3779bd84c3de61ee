// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// denyOptions say which deny list a command is about.
type denyOptions struct {
	cli.Options
	list string
}

func (o *denyOptions) AddFlags(cmd *cobra.Command, list string) {
	o.Service = &cli.InstalledAPI
	o.AddFileFlag(cmd)
	cmd.Flags().StringVar(&o.list, list, "", "`FILE` of the deny list (default deny_list.file)")
}

// path is the file of the list; "" if none is configured.
func (o *denyOptions) path() (string, error) {
	if o.list != "" {
		return o.list, nil
	}
	cfg, err := o.Load()
	if err != nil {
		return "", err
	}
	return cfg.DenyList.File, nil
}

// requiredPath is path for a command that needs one.
func (o *denyOptions) requiredPath() (string, error) {
	path, err := o.path()
	if err == nil && path == "" {
		err = cli.Exit(cli.ExitUsage,
			errors.New("no deny list is configured: set deny_list.file for the servers, or name the file with --file"))
	}
	return path, err
}

// read is the list; with no file, or none configured, it has no hosts.
func (o *denyOptions) read() (*pki.DenyList, string, error) {
	path, err := o.path()
	if err != nil || path == "" {
		return nil, path, err
	}
	list, err := pki.ReadDenyFile(path)
	return list, path, err
}

func newCARevoke() *cobra.Command {
	var opts denyOptions
	var reason string
	var unknown bool
	cmd := &cobra.Command{
		Use: "revoke HOST", Short: "Put a host on the deny list", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := opts.requiredPath()
			if err != nil {
				return err
			}
			host := args[0]
			if !unknown {
				if host, err = opts.knownHost(cmd, path, host); err != nil {
					return err
				}
			}
			d := pki.Denial{Host: host, Before: time.Now().UTC().Truncate(time.Second), Reason: reason}
			if err := pki.DenyInFile(path, d); err != nil {
				return denyError(err)
			}
			warnReadable(cmd, path)
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%s is on the deny list %s: its certificates from before %s are refused, and its tokens.\n"+
					"Servers that have this file refuse it within seconds, and those that copy it within 20 seconds.\n",
				d.Host, path, d.Before.Format(time.RFC3339))
			return err
		},
	}
	opts.AddFlags(cmd, "file")
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a `TEXT` for the logs of servers")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "take the name as it is, though no host of it is known here")
	return cmd
}

// knownHost is the name of a host as the compute API or the deny list of a file has it.
func (o *denyOptions) knownHost(cmd *cobra.Command, path, host string) (string, error) {
	const unknown = "; to refuse a host of that name anyhow, add --unknown"
	list, _, err := o.read()
	if err != nil {
		return "", denyError(err)
	}
	if d, denied := list.Denial(host); denied {
		return d.Host, nil
	}
	var hosts []string
	cfg, err := o.Load()
	if err == nil {
		hosts, err = controlplane.KnownHosts(cmd.Context(), cfg)
	}
	if err != nil {
		return "", cli.Exit(cli.ExitProtect, fmt.Errorf(
			"%s was not put on the deny list %s: the hosts that there are cannot be listed: %w%s", host, path, err,
			unknown))
	}
	if known := operator.KnownName(host, hosts); known != "" {
		return known, nil
	}
	return "", cli.Exit(cli.ExitProtect, fmt.Errorf(
		"%s was not put on the deny list %s: no host of that name is enrolled or mapped%s%s",
		host, path, operator.Suggestion(host, hosts), unknown))
}

// warnReadable says so if all users may read a deny list.
func warnReadable(cmd *cobra.Command, path string) {
	if info, err := os.Stat(path); err == nil && info.Mode()&0o004 != 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "All users of this machine can read %s. "+
			"Let the servers read it by a group: chgrp %s %[1]s, then chmod g=r,o= %[1]s.\n", path, pki.DenyGroup)
	}
}

// denyError gives an error about a deny list its exit code, and says what to do with a damaged one.
func denyError(err error) error {
	switch {
	case errors.Is(err, pki.ErrInvalid):
		return cli.Exit(cli.ExitUsage, err)
	case errors.Is(err, pki.ErrDamaged):
		return fmt.Errorf("%w; restore the file, or, if the hosts in it are right, "+
			"run: compute-agent ca deny-list --accept", err)
	}
	return err
}

func newCAAllow() *cobra.Command {
	var opts denyOptions
	cmd := &cobra.Command{
		Use: "allow HOST", Short: "Take a host off the deny list", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := opts.requiredPath()
			if err != nil {
				return err
			}
			host := args[0]
			if err := pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) {
				without, found := l.Without(host)
				if !found {
					var hosts []string
					for _, d := range l.Denials() {
						hosts = append(hosts, d.Host)
					}
					return nil, fmt.Errorf("%s is not on the deny list %s%s",
						host, path, operator.Suggestion(host, hosts))
				}
				d, _ := l.Denial(host)
				host = d.Host
				return without, nil
			}); err != nil {
				return denyError(err)
			}
			warnReadable(cmd, path)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is not on the deny list %s any more.\n", host, path)
			return err
		},
	}
	opts.AddFlags(cmd, "file")
	return cmd
}

func newCADenyList() *cobra.Command {
	var opts denyOptions
	var create, renew, accept bool
	cmd := &cobra.Command{
		Use: "deny-list", Short: "Show the deny list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var edit func(path string) error
			switch {
			case create:
				edit = pki.CreateDenyFile
			case accept:
				edit = pki.AcceptDenyFile
			case renew:
				edit = pki.RenewDenyFile
			}
			if edit != nil {
				path, err := opts.requiredPath()
				if err == nil {
					err = edit(path)
				}
				if err != nil && (!create || !errors.Is(err, os.ErrExist)) {
					return denyError(err)
				}
				warnReadable(cmd, path)
			}
			list, path, err := opts.read()
			switch {
			case err != nil:
				return denyError(err)
			case opts.JSON():
				return cli.PrintJSON(cmd.OutOrStdout(), append([]pki.Denial{}, list.Denials()...))
			case path == "":
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "No deny list is configured (deny_list.file).")
				return err
			}
			return render.Denials(cmd.OutOrStdout(), path, list)
		},
	}
	opts.AddFlags(cmd, "file")
	opts.AddOutputFlag(cmd)
	cmd.Flags().BoolVar(&create, "create", false, "create an empty list if there is no file")
	cmd.Flags().BoolVar(&renew, "renew", false, "give the list the next serial, and the date")
	cmd.Flags().BoolVar(&accept, "accept", false, "give the hosts of a damaged list a new header")
	cmd.MarkFlagsMutuallyExclusive("create", "renew", "accept")
	return cmd
}
