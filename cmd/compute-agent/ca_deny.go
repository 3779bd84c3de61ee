// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
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

// requiredPath is path for a command that needs one.
func (o *denyOptions) requiredPath() (string, error) {
	path, err := o.path()
	if err == nil && path == "" {
		err = &exitError{exitUsage,
			errors.New("no deny list is configured: set deny_list.file for the servers, or name the file with --file")}
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
		Long: "Put a host on the deny list: servers refuse its certificates that " +
			"were issued before now, and all of its tokens. Run it on the\n" +
			"machine of the compute API, whose list Placement and the cells " +
			"copy ([deny_list] url); or change the file of each server that\n" +
			"has one of its own. To take the host's servers and its place in the cell away as well, run " +
			"`compute-agent cells manage evict-host`.\n\n" +
			"The host has to be enrolled, mapped or on the list; case does " +
			"not count. Where no compute API knows it, and for hosts with\n" +
			"credentials of the site alone, --unknown takes the name as it is.",
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
	opts.addFlags(cmd, "file")
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
	hosts, err := o.hosts(cmd)
	if err != nil {
		return "", &exitError{exitProtect, fmt.Errorf(
			"%s was not put on the deny list %s: the hosts that there are cannot be listed: %w%s", host, path, err,
			unknown)}
	}
	if known := operator.KnownName(host, hosts); known != "" {
		return known, nil
	}
	return "", &exitError{exitProtect, fmt.Errorf(
		"%s was not put on the deny list %s: no host of that name is enrolled or mapped%s%s",
		host, path, operator.Suggestion(host, hosts), unknown)}
}

// hosts are the names of all hosts that the compute API of this machine knows.
func (o *denyOptions) hosts(cmd *cobra.Command) (hosts []string, err error) {
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	address, name, err := cells.DatabaseOf(cfg.ComputeAPI.Database, cfg.Agent.StateDir, cells.APIDatabase)
	if err != nil {
		return nil, err
	}
	at := apiDatabase{address, name}
	exists, err := at.exists(cmd.Context())
	if err == nil && !exists {
		err = fmt.Errorf("there is no API database at %s: run the command on the machine of the compute API, "+
			"or name its configuration with --config", at)
	}
	if err != nil {
		return nil, err
	}
	return hosts, sqldb.RunWhereOpen(cmd.Context(), at.name, func() (err error) {
		store, err := apidb.Open(cmd.Context(), at.name, apidb.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		hosts, err = operator.HostNames(cmd.Context(), store)
		return err
	}, func(socket string) error {
		var out, problems bytes.Buffer
		var views []operator.Host
		list := []string{"cells", "manage", "list-hosts", "--output=json"}
		code, err := sqldb.RunAt(cmd.Context(), socket, list, &out, &problems)
		if err == nil && code != exitDone {
			err = fmt.Errorf("the compute API does not list them: %s", strings.TrimSpace(problems.String()))
		}
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &views)
		}
		for _, v := range views {
			hosts = append(hosts, v.Host)
		}
		return err
	})
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
		return &exitError{exitUsage, err}
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
		Long: "Take a host off the deny list. Its tokens are accepted again, and " +
			"so are its certificates from before that have not expired. To\n" +
			"accept only certificates from now on, leave it on the list, and enrol it again.",
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
	opts.addFlags(cmd, "file")
	return cmd
}

func newCADenyList() *cobra.Command {
	var opts denyOptions
	var create, renew, accept bool
	cmd := &cobra.Command{
		Use: "deny-list", Short: "Show the deny list", Args: cobra.NoArgs,
		Long: "Show the deny list, and whether it is as it was written. Its " +
			"header has a serial and a date. --renew writes it again with new\n" +
			"ones: for a list without a header, and from a timer where servers " +
			"refuse hosts when their list is old ([deny_list] max_age).\n" +
			"--accept does so with a list whose header does not belong to " +
			"its hosts, as after an edit by hand: check the hosts that it\n" +
			"prints, since hosts that are lost are let in.",
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
			case opts.json():
				return printJSON(cmd.OutOrStdout(), append([]pki.Denial{}, list.Denials()...))
			case path == "":
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "No deny list is configured (deny_list.file).")
				return err
			}
			return render.Denials(cmd.OutOrStdout(), path, list)
		},
	}
	opts.addFlags(cmd, "file")
	opts.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&create, "create", false, "create an empty list if there is no file")
	cmd.Flags().BoolVar(&renew, "renew", false, "give the list the next serial, and the date")
	cmd.Flags().BoolVar(&accept, "accept", false, "give the hosts of a damaged list a new header")
	cmd.MarkFlagsMutuallyExclusive("create", "renew", "accept")
	return cmd
}
