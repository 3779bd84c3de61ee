// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
)

// AskTimeout limits a request to the running agent. A dry run may have to wait for a pass.
const AskTimeout = time.Minute

// RequestAndPrint sends a request to the running agent and prints the answer.
func RequestAndPrint[T any](
	cmd *cobra.Command, o *Options, what string, text func(io.Writer, T) error,
) (view T, err error) {
	raw, err := RequestAgent(cmd, o, what)
	if err != nil {
		return view, err
	}
	return PrintAnswer(cmd, o, raw, text)
}

// RequestAgent sends a request to the running agent.
func RequestAgent(cmd *cobra.Command, o *Options, what string) (json.RawMessage, error) {
	cfg, err := o.loadToAsk(cmd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), AskTimeout)
	defer cancel()
	return control.NewClient(cfg.Agent.ControlSocket()).Raw(ctx, what)
}

// PrintAnswer prints an answer of the agent. JSON is printed even if it cannot be decoded.
func PrintAnswer[T any](
	cmd *cobra.Command, o *Options, raw json.RawMessage, text func(io.Writer, T) error,
) (view T, err error) {
	view, err = control.Decode[T](raw)
	if err != nil && !o.JSON() {
		return view, err
	}
	if o.Answered != nil {
		o.Answered(raw)
	}
	if o.JSON() {
		return view, PrintJSON(cmd.OutOrStdout(), raw)
	}
	return view, text(Screen(cmd.OutOrStdout()), view)
}

// loadToAsk reads the configuration for the path of the control socket. If a file is invalid, it
// falls back to --runtime-dir or the default, because status matters most then.
func (o *Options) loadToAsk(cmd *cobra.Command) (*config.Config, error) {
	cfg, err := o.Load()
	if !errors.Is(err, config.ErrInvalid) {
		return cfg, err
	}
	fallback, fallbackErr := o.loadFrom(config.Options{Root: "/nonexistent"}) // without any files
	if fallbackErr != nil {
		return nil, err
	}
	if _, statErr := os.Stat(fallback.Agent.ControlSocket()); statErr != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
		"compute-agent: the configuration is invalid (run `compute-agent config check`); the running agent does not "+
			"use it. Asking the agent at %s\n", fallback.Agent.ControlSocket())
	return fallback, nil
}
