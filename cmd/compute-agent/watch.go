// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

const (
	defaultWatch = 2 * time.Second
	minWatch     = 100 * time.Millisecond
	watchFlag    = "watch"
)

// watchHelp says in a command's help what --watch does.
const watchHelp = "\n\n" +
	"With --watch, the command is repeated until Ctrl-C, also while the " +
	"agent is restarted: on a terminal the output is redrawn, elsewhere\n" +
	"it is printed below a line with the time when something other than " +
	"counters and ages has changed. With --output json, each change\n" +
	"is one document on one line. The exit code is then 0."

// addWatchFlag adds --watch to a command that has its RunE, only reads, and passes the answer that
// it prints to answered. Add --output after it.
func (o *options) addWatchFlag(cmd *cobra.Command) {
	var every time.Duration
	cmd.Long += watchHelp
	cmd.Flags().DurationVarP(&every, watchFlag, "w", 0, "repeat the command every `INTERVAL`, such as --watch=5s")
	cmd.Flags().Lookup(watchFlag).NoOptDefVal = defaultWatch.String()
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed(watchFlag):
			return run(cmd, args)
		case every < minWatch:
			return &exitError{exitUsage, fmt.Errorf("--watch=%v: must be at least %v", every, minWatch)}
		}
		return o.watch(cmd, every, func() error { return run(cmd, args) })
	}
}

// watch runs a command again and again.
func (o *options) watch(cmd *cobra.Command, every time.Duration, run func() error) error {
	ctx, out, problems := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	title := "compute-agent " + strings.Replace(commandLine(cmd), " --"+watchFlag+"="+every.String(), "", 1)
	w := &render.Watch{
		Title: title, Every: every, Out: out, Problems: problems, Documents: o.json(),
		// the agent may be about to start
		Fatal: func(err error) bool { return !errors.Is(err, control.ErrNotRunning) },
	}
	if f := terminalOf(out); f != nil && !o.json() {
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, syscall.SIGWINCH)
		defer signal.Stop(resized)
		w.Out, w.Colors, w.Resized = f, colors(), resized
		w.Size = func() (width, height int) {
			width, height, _ = term.GetSize(int(f.Fd())) // 0 if it is gone
			return width, height
		}
	}
	defer func() { cmd.SetOut(out); cmd.SetErr(problems) }()
	return w.Run(ctx, func(ctx context.Context, out, notes io.Writer) (answer []byte, err error) {
		cmd.SetOut(out)
		cmd.SetErr(notes)
		o.answered = func(raw json.RawMessage) { answer = raw }
		err = run()
		var code *exitError
		if errors.As(err, &code) && code.err == nil { // the output says why
			err = nil
		}
		return answer, err
	})
}
