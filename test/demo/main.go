// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testhost"
)

// errInterrupted means that the user ended the demonstration.
var errInterrupted = errors.New("interrupted; all that ran has been ended")

func main() {
	testhost.SimMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a closed pipe ends the demonstration, in order
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(interrupted)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		if errors.Is(err, libvirtd.ErrNotInstalled) ||
			errors.Is(err, testhost.ErrNoVirsh) || errors.Is(err, errNoClient) {
			fmt.Fprintln(os.Stderr, "demo: `make demo` installs what it needs")
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	step := flags.Bool("step", false, "wait for Enter before each chapter")
	bin := flags.String("bin", "bin", "`DIR` of compute-agent and compute-driver-libvirt")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch os.Getenv(insideEnv) {
	case "":
		return isolate(ctx, args)
	case isFirst:
		return begin(args)
	}
	stage := newStage(os.Stdout, term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "")
	if *step {
		stage.wait = os.Stdin
	}
	fmt.Fprint(os.Stderr, "A host is made up, and its guests boot: some seconds …\n\n")
	w, err := build(ctx, *bin)
	switch {
	case err != nil && ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	err = tell(ctx, w, stage)
	ended := w.close(ctx)
	if ctx.Err() != nil && ended == nil {
		return errInterrupted
	}
	return errors.Join(err, ended)
}
