// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

func newAdmitHost() *cobra.Command {
	var opts manageOptions
	var classes, traits []string
	var window, unknown bool
	cmd := &cobra.Command{
		Use: "admit-host HOST", Aliases: []string{"admit_host"}, Args: cobra.ExactArgs(1),
		Short: "State how much a host may report to Placement, or show it",
		Long: "State how much a host may report to Placement with its own credential: amounts of resource classes, total times\n" +
			"allocation_ratio in all of its trees, and kinds of traits. Placement admits [placement] host_capacity_factor times as much as is\n" +
			"stated here, or as the host reported when it came; beyond that it refuses what the host reports, and says which of these flags\n" +
			"admits it. Do that only if the machine has it: a stolen host can claim anything.\n\n" +
			"--window admits all that the host reports from now on, for as long as when it came ([placement] host_admission_window): for a\n" +
			"machine that is replaced, or a driver that reports other classes. Without flags, the command shows what is admitted. It asks\n" +
			"Placement with the credentials of the compute API ([placement_client]); OpenStack's Placement has no hosts.\n\n" +
			"With --unknown the command opens no API database. Where there is no compute API, name with --config a configuration whose\n" +
			"[placement_client] has a user with the role admin or service.",
		Example: "  compute-agent cells manage admit-host cn1\n" +
			"  compute-agent cells manage admit-host cn1 --class VCPU=256 --class VGPU=8 --trait HW_GPU",
		RunE: func(cmd *cobra.Command, args []string) error {
			change := wire.AdmissionChange{Traits: traits, Window: window}
			var err error
			if change.Classes, err = parseAmounts(classes); err == nil {
				err = checkTraits(traits)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			ask := func(host string, cfg *config.Config) error {
				view, err := admit(cmd.Context(), cfg.PlacementClient, host, change)
				if err != nil {
					return err
				}
				return printed(cmd, &opts.options, view, printAdmission)
			}
			if unknown { // there may be no compute API
				_, cfg, err := opts.where()
				if err != nil {
					return err
				}
				return ask(args[0], cfg)
			}
			return opts.with(cmd, func(store apidb.Store, cfg *config.Config) error {
				host, err := knownHost(cmd.Context(), store, args[0])
				if err != nil {
					return err
				}
				return ask(host, cfg)
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringArrayVar(&classes, "class", nil, "`CLASS=AMOUNT` of a resource class that the host may report; several times for several classes")
	cmd.Flags().StringArrayVar(&traits, "trait", nil, "`TRAIT` that the host may report, with all traits of its first two words, such as HW_GPU; several times for several kinds")
	cmd.Flags().BoolVar(&window, "window", false, "admit all that the host reports from now on, as when it came")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "take the name as it is, though no host of that name is enrolled or mapped; needs no API database")
	return cmd
}

// parseAmounts reads amounts as flags have them.
func parseAmounts(texts []string) (map[string]int64, error) {
	amounts := map[string]int64{}
	for _, text := range texts {
		class, amount, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil || n < 0 || !providertree.IsSymbol(class) {
			return nil, fmt.Errorf("--class %.100q is not CLASS=AMOUNT, such as VCPU=128", text)
		}
		amounts[class] = n
	}
	return amounts, nil
}

func checkTraits(traits []string) error {
	for _, trait := range traits {
		if !providertree.IsSymbol(trait) {
			return fmt.Errorf("--trait %.100q is not the name of a trait, such as HW_GPU", trait)
		}
	}
	return nil
}

// knownHost is the name of a host that is enrolled or mapped, whose case does not count.
func knownHost(ctx context.Context, store apidb.Store, name string) (string, error) {
	hosts, err := hostsOf(ctx, store)
	if err != nil {
		return "", err
	}
	if known := sameHost(name, hosts); known != "" {
		return known, nil
	}
	return "", &exitError{exitProtect, fmt.Errorf("no host of the name %s is enrolled or mapped%s; "+
		"to take the name as it is, add --unknown", name, likeHost(name, hosts))}
}

// admit states what a host may report, and returns what that is then; without a change, it only
// asks.
func admit(
	ctx context.Context, c config.PlacementClient, host string, change wire.AdmissionChange,
) (wire.HostAdmission, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// Hosts are there at every microversion; errors have codes from this one on.
	client, closeIdle, err := askingPlacement(c, wire.Version(wire.ErrorCodes).String())
	if err != nil {
		return wire.HostAdmission{}, err
	}
	defer closeIdle()
	var a wire.HostAdmission
	if len(change.Classes) == 0 && len(change.Traits) == 0 && !change.Window {
		a, err = client.Admission(ctx, host)
	} else {
		a, err = client.Admit(ctx, host, change)
	}
	switch {
	case errors.Is(err, placementclient.ErrNotFound):
		return a, fmt.Errorf("placement knows nothing of host %s: it has reported nothing yet with a credential of its own, "+
			"or this is OpenStack's Placement, which has no hosts: %w", host, err)
	case errors.Is(err, placementclient.ErrRefused):
		return a, fmt.Errorf("%w; [placement_client] of the compute API needs a user with the role admin or service, "+
			"to which the rules placement:host_admissions allow it", err)
	case err != nil:
		return a, fmt.Errorf("%w; check [placement_client] of the compute API", err)
	}
	return a, nil
}

func printAdmission(w io.Writer, a wire.HostAdmission) error {
	if _, err := fmt.Fprintf(w, "Host %s may report to Placement:\n", a.Host); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CLASS\tADMITTED\tAT MOST")
	for _, class := range slices.Sorted(maps.Keys(a.Classes)) {
		most := "any amount"
		if a.Factor > 0 {
			most = strconv.FormatInt(a.Classes[class]*int64(a.Factor), 10)
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\n", class, a.Classes[class], most)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Kinds of traits: %s\n", strings.Join(a.Traits, ", "))
	if err == nil && a.Until != nil {
		_, err = fmt.Fprintf(w, "All that it reports until %s is admitted.\n", a.Until.UTC().Format(time.RFC3339))
	}
	return err
}
