// SPDX-License-Identifier: Apache-2.0

package cli

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
)

// WatchFlag is the name of the flag that AddWatchFlag adds.
const WatchFlag = "watch"

// AddWatchFlag adds --watch to a command that has its RunE, only reads, and passes the answer that
// it prints to Answered. Add --output after it.
func (o *Options) AddWatchFlag(cmd *cobra.Command) {
	var every time.Duration
	cmd.Flags().DurationVarP(&every, WatchFlag, "w", 0, "repeat the command every `INTERVAL`, such as --watch=5s")
	cmd.Flags().Lookup(WatchFlag).NoOptDefVal = defaultWatch.String()
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed(WatchFlag):
			return run(cmd, args)
		case every < minWatch:
			return Exit(ExitUsage, fmt.Errorf("--watch=%v: must be at least %v", every, minWatch))
		}
		return o.watch(cmd, every, func() error { return run(cmd, args) })
	}
}

// watch runs a command again and again.
func (o *Options) watch(cmd *cobra.Command, every time.Duration, run func() error) error {
	ctx, out, problems := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	title := "compute-agent " + strings.Replace(commandLine(cmd), " --"+WatchFlag+"="+every.String(), "", 1)
	w := &render.Watch{
		Title: title, Every: every, Out: out, Problems: problems, Documents: o.JSON(),
		// the agent may be about to start
		Fatal: func(err error) bool { return !errors.Is(err, control.ErrNotRunning) },
	}
	if f := terminalOf(out); f != nil && !o.JSON() {
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
		o.Answered = func(raw json.RawMessage) { answer = raw }
		err = run()
		var code *ExitError
		if errors.As(err, &code) && code.Err == nil { // the output says why
			err = nil
		}
		return answer, err
	})
}
