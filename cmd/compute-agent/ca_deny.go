// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// denyOptions say which deny list a command is about.
type denyOptions struct {
	options
	list string
}

func (o *denyOptions) addFlags(cmd *cobra.Command, list string) {
	o.service = &installedAPI
	o.addFileFlag(cmd)
	cmd.Flags().StringVar(&o.list, list, "", "`FILE` of the deny list (default deny_list.file)")
}

// path is the file of the list; "" if none is configured.
func (o *denyOptions) path() (string, error) {
	if o.list != "" {
		return o.list, nil
	}
	cfg, err := o.load()
	if err != nil {
		return "", err
	}
	return cfg.DenyList.File, nil
}

// edited is path for a command that needs one.
func (o *denyOptions) edited() (string, error) {
	path, err := o.path()
	if err == nil && path == "" {
		err = &exitError{exitUsage, errors.New("no deny list is configured: set deny_list.file for the servers, or name the file with --file")}
	}
	return path, err
}

// read is the list; with no file, or none configured, it has no hosts.
func (o *denyOptions) read() (*pki.DenyList, string, error) {
	path, err := o.path()
	if err != nil || path == "" {
		return nil, path, err
	}
	content, err := files.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, path, nil
	}
	if err != nil {
		return nil, path, err
	}
	list, err := pki.ParseDenyList(content.Data, path)
	return list, path, err
}

// denial is that of a host.
func (o *denyOptions) denial(host string) (d pki.Denial, denied bool, err error) {
	list, _, err := o.read()
	for _, d := range list.Denials() {
		if d.Host == host {
			return d, true, err
		}
	}
	return pki.Denial{}, false, err
}

func newCARevoke() *cobra.Command {
	var opts denyOptions
	var reason string
	cmd := &cobra.Command{
		Use: "revoke HOST", Short: "Put a host on the deny list", Args: cobra.ExactArgs(1),
		Long: "Put a host on the deny list: servers refuse its certificates that were issued before now, and all of its tokens. Run it on the\n" +
			"machine of the compute API, whose list Placement and the cells copy ([deny_list] url); or change the file of each server that\n" +
			"has one of its own. To take the host's servers and its place in the cell away as well, run `compute-agent cells manage evict-host`.",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := opts.edited()
			if err != nil {
				return err
			}
			d := pki.Denial{Host: args[0], Before: time.Now().UTC().Truncate(time.Second), Reason: reason}
			if err := pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) {
				for _, had := range l.Denials() {
					if had.Host == d.Host {
						d.Reason = cmp.Or(d.Reason, had.Reason)
					}
				}
				return l.With(d)
			}); err != nil {
				return denyError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is on the deny list %s: its certificates from before %s are refused, and its tokens.\n"+
				"Servers that have this file refuse it within seconds, and those that copy it within 20 seconds.\n", d.Host, path, d.Before.Format(time.RFC3339))
			return err
		},
	}
	opts.addFlags(cmd, "file")
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a `TEXT` for the logs of servers")
	return cmd
}

// denyError gives an error of EditDenyFile its exit code.
func denyError(err error) error {
	if errors.Is(err, pki.ErrInvalid) {
		return &exitError{exitUsage, err}
	}
	return err
}

func newCAAllow() *cobra.Command {
	var opts denyOptions
	cmd := &cobra.Command{
		Use: "allow HOST", Short: "Take a host off the deny list", Args: cobra.ExactArgs(1),
		Long: "Take a host off the deny list. Its tokens are accepted again, and so are its certificates from before that have not expired. To\n" +
			"accept only certificates from now on, leave it on the list, and enrol it again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := opts.edited()
			if err != nil {
				return err
			}
			if err := pki.EditDenyFile(path, func(l *pki.DenyList) (*pki.DenyList, error) {
				without, found := l.Without(args[0])
				if !found {
					return nil, fmt.Errorf("%s is not on the deny list %s", args[0], path)
				}
				return without, nil
			}); err != nil {
				return denyError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is not on the deny list %s any more.\n", args[0], path)
			return err
		},
	}
	opts.addFlags(cmd, "file")
	return cmd
}

func newCADenyList() *cobra.Command {
	var opts denyOptions
	var create bool
	cmd := &cobra.Command{
		Use: "deny-list", Short: "Show the deny list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if create {
				path, err := opts.edited()
				if err != nil {
					return err
				}
				if err := files.Create(path, new(pki.DenyList).Text(), 0o644); err != nil && !errors.Is(err, os.ErrExist) {
					return err
				}
			}
			list, path, err := opts.read()
			switch {
			case err != nil:
				return err
			case opts.json():
				return printJSON(cmd.OutOrStdout(), append([]pki.Denial{}, list.Denials()...))
			case path == "":
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "No deny list is configured (deny_list.file).")
				return err
			}
			return printDenials(cmd.OutOrStdout(), path, list)
		},
	}
	opts.addFlags(cmd, "file")
	opts.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&create, "create", false, "create an empty list if there is no file")
	return cmd
}

func printDenials(w io.Writer, path string, list *pki.DenyList) error {
	if len(list.Denials()) == 0 {
		_, err := fmt.Fprintf(w, "No host is on the deny list %s.\n", path)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "HOST\tREFUSED BEFORE\tREASON")
	for _, d := range list.Denials() {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", d.Host, d.Before.Format(time.RFC3339), d.Reason)
	}
	return t.Flush()
}
