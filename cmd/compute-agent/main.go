// SPDX-License-Identifier: Apache-2.0

// Command compute-agent reports a hypervisor's resources to a Placement service. It can also serve
// Placement and a compute API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Exit codes of all commands. 2 is not used: a Go program that crashes exits with it, and systemd
// must restart it. The units list the codes after which a restart cannot help, so a failure that
// may be temporary, such as a disk that is not mounted yet, is 1.
const (
	exitDone    = 0
	exitFailed  = 1
	exitProtect = 3  // refused, to protect data
	exitUsage   = 64 // wrong usage: EX_USAGE of sysexits.h
	exitConfig  = 78 // invalid configuration: EX_CONFIG
)

func main() {
	if err := forbidCoreDumps(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "compute-agent: a core dump of this process would contain its secrets: %v\n", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	stopReaping := reapOrphans(os.Stderr)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stopReaping()
	os.Exit(code)
}

// forbidCoreDumps keeps this process, and the drivers that it starts, from writing core dumps,
// which would contain tokens, passwords and keys.
func forbidCoreDumps() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("setting RLIMIT_CORE to 0: %w", err)
	}
	return nil
}

// reapOrphans reaps orphaned processes until end is called, if this is the first process of a
// container.
func reapOrphans(stderr io.Writer) (end func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	if err := processes.CheckReaping(); err != nil {
		_, _ = fmt.Fprintf(stderr,
			"compute-agent: as the first process of a container, it cannot reap orphaned processes, which libvirt "+
				"waits for; start the container with an init (docker run --init): %v\n", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		processes.ReapOrphans(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	// Sanitize what comes from Placement, cells, drivers and files.
	out, problems := textutil.NewWriter(stdout), textutil.NewWriter(stderr)
	defer func() { _, _ = out.Flush(), problems.Flush() }()
	root := newRoot() //nolint:contextcheck // each command gets its context when it runs
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		completeOutput(root)
		completeValues(root) //nolint:contextcheck // a completion has a context of its own
	}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(problems)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	var code *exitError
	if !errors.As(err, &code) || code.err != nil {
		printError(problems, err)
	}
	return exitCode(err)
}

// exitError is an error with an exit code. A nil err means that it has been printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var code *exitError
	var fatal *resourcetracker.FatalError
	var undo *reshape.UndoError
	var refused *operator.RefusedError
	switch {
	case errors.As(err, &code):
		return code.code
	case errors.As(err, new(*controlplane.AddressError)):
		return exitUsage
	case errors.As(err, &fatal) && fatal.Protects:
		return exitProtect
	case errors.Is(err, sqldb.ErrLost), errors.Is(err, control.ErrRefused),
		errors.Is(err, enrolment.ErrJoined), errors.As(err, &undo),
		errors.As(err, &refused):
		return exitProtect
	case errors.Is(err, celldb.ErrName), errors.Is(err, celldb.ErrSchema), errors.Is(err, apidb.ErrSchema),
		errors.Is(err, sqldb.ErrSchema), errors.Is(err, sqldb.ErrNotDatabase), errors.Is(err, sqldb.ErrNotEmpty),
		errors.Is(err, store.ErrRefused): // another program's database, or one to adopt or upgrade
		return exitProtect
	case config.Unreadable(err): // its disk may appear later
		return exitFailed
	case config.OnlyFlags(err):
		return exitUsage
	case invalid(err):
		return exitConfig
	}
	return exitFailed
}

// invalid reports whether an error is caused by the configuration.
func invalid(err error) bool {
	return errors.Is(err, config.ErrInvalid) || errors.Is(err, providerconfig.ErrInvalid) ||
		errors.Is(err, placement.ErrConfig) || errors.Is(err, cells.ErrConfig)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "compute-agent",
		Short: "Report a hypervisor's resources to a Placement service",
		Long: "compute-agent runs on every hypervisor and reports its resources to a Placement service.\n" +
			"`compute-agent run` is the daemon; `compute-agent standalone` includes a Placement service.",
		Version:      version.Number() + " (" + version.Go() + ")",
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(
		func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, suggestFlag(cmd, err)} })
	root.AddCommand(
		newRun(),
		newStandalone(),
		newTree(),
		newStatus(),
		newPlan(),
		newRefresh(),
		newReshape(),
		newAdopt(),
		newJoin(),
		newDisable(),
		newEnable(),
		newNode(),
		newAllocations(),
		newAudit(),
		newLogs(),
		newConfig(),
		newDoctor(),
		newPlugin(),
		newPlacement(),
		newCells(),
		newCA(),
		newToken(),
		newVersion(),
	)
	for _, c := range allCommands(root) {
		if c.Args != nil {
			c.Args = usageErrors(c.Args)
		}
	}
	return root
}

// group is a command that only has subcommands.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

func allCommands(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		out = append(out, allCommands(sub)...)
	}
	return out
}

// usageErrors gives errors of an argument check the exit code for wrong usage.
func usageErrors(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			err = suggestCommand(cmd, args, err)
			return &exitError{exitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}
