// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/disabled"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/providertree"
)

// newDisable stops new instances from being scheduled to this host's nodes.
func newDisable() *cobra.Command {
	var request control.DisableRequest
	cmd := newDisabling(&request, false, &cobra.Command{
		Use: "disable [NODE] --reason TEXT", Short: "Stop scheduling new instances to this host", Args: cobra.MaximumNArgs(1),
		Long: "Stop scheduling new instances to this host: set the trait COMPUTE_STATUS_DISABLED on the root provider of each of its nodes, or of\n" +
			"one node. It lasts across restarts until `compute-agent enable`. Running guests are not affected.\n\n" +
			"The running agent updates Placement immediately, and the command waits some seconds for it; the exit code is 1 if Placement is\n" +
			"not updated by then. If no agent runs, its next start updates Placement.",
	})
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`TEXT` that explains why, one line of at most 500 characters")
	return cmd
}

// newEnable reverts newDisable.
func newEnable() *cobra.Command {
	var request control.DisableRequest
	return newDisabling(&request, true, &cobra.Command{
		Use: "enable [NODE]", Short: "Resume scheduling new instances to this host", Args: cobra.MaximumNArgs(1),
		Long: "Resume scheduling new instances to this host: remove the trait COMPUTE_STATUS_DISABLED from the root provider of each of its\n" +
			"nodes, or of one node, whichever client set it. If no agent runs, its next start does it.",
	})
}

func newDisabling(request *control.DisableRequest, enable bool, cmd *cobra.Command) *cobra.Command {
	var opts options
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if request.Node != "" {
				return &exitError{exitUsage, fmt.Errorf("name the node once: %q is an argument, and --node is given as well", args[0])}
			}
			request.Node = args[0]
		}
		request.By = requester()
		if err := checkDisabling(*request, enable); err != nil {
			return &exitError{exitUsage, err}
		}
		cfg, err := opts.load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
		defer cancel()
		out, err := disabling(ctx, cfg, *request, enable)
		if err != nil {
			return err
		}
		if opts.json() {
			err = printJSON(cmd.OutOrStdout(), out)
		} else {
			err = render.Disabling(screen(cmd.OutOrStdout()), out, enable)
		}
		if err == nil && !out.Offline && !out.Done() {
			return &exitError{code: exitFailed}
		}
		return err
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&request.Node, "node", "", "`NAME` of one compute node, as the argument (default: all of this host)")
	return cmd
}

// checkDisabling validates the flags.
func checkDisabling(r control.DisableRequest, enable bool) error {
	if r.Node != "" {
		if err := providertree.ValidateProviderName(r.Node); err != nil {
			return fmt.Errorf("the node: %w", err)
		}
	}
	if enable {
		return nil
	}
	if r.Reason == "" {
		return errors.New("--reason TEXT is required")
	}
	if err := disabled.CheckReason(r.Reason); err != nil {
		return fmt.Errorf("--reason: %w", err)
	}
	return nil
}

// startTries limits the retries while an agent holds the state directory and does not answer yet.
const startTries = 20

// disabling sends the request to the running agent, or applies it to the state directory.
func disabling(ctx context.Context, cfg *config.Config, r control.DisableRequest, enable bool) (control.Disabling, error) {
	client := control.NewClient(cfg.Agent.ControlSocket())
	ask := client.Disable
	if enable {
		ask = client.Enable
	}
	for try := 1; ; try++ {
		out, err := ask(ctx, r)
		if !errors.Is(err, control.ErrNotRunning) {
			return out, err
		}
		out = control.Disabling{Nodes: []control.DisabledNode{}, Offline: true}
		if enable {
			out.Left, err = agent.EnableOffline(cfg, r)
		} else {
			err = agent.DisableOffline(cfg, r)
		}
		if !errors.Is(err, control.ErrRefused) || try == startTries {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// requester names the user who runs this process.
func requester() string {
	uid := os.Getuid()
	name := "uid " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username + " (" + name + ")"
	}
	if real := os.Getenv("SUDO_USER"); real != "" && disabled.CheckReason(real) == nil {
		name += " for " + real
	}
	return name
}
