// SPDX-License-Identifier: Apache-2.0

// Command compute-agent reports a hypervisor's resources to a Placement service. It can also serve
// Placement and a compute API.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"text/template"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/version"
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
		cli.CompleteOutput(root)
		cli.CompleteValues(root) //nolint:contextcheck // a completion has a context of its own
	}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(problems)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return cli.ExitDone
	}
	var code *cli.ExitError
	if !errors.As(err, &code) || code.Err != nil {
		printError(problems, err)
	}
	return cli.ExitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:          "compute-agent",
		Short:        "Report a hypervisor's resources to a Placement service",
		Version:      version.Number() + " (" + version.Go() + ")",
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(
		func(cmd *cobra.Command, err error) error { return cli.Exit(cli.ExitUsage, cli.SuggestFlag(cmd, err)) })
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
	for _, c := range cli.AllCommands(root) {
		setHelp(c)
		if c.Args != nil {
			c.Args = cli.UsageErrors(c.Args)
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

//go:embed help
var helpFiles embed.FS

// helpTexts are what commands do, and examples: a file for each command, which has the name of its
// manual page, and in shared.tmpl the paragraphs that several have.
var helpTexts = sync.OnceValue(func() *template.Template {
	return template.Must(template.ParseFS(helpFiles, "help/*"))
})

// setHelp gives a command the text of its file. One without a file has its Short only.
func setHelp(c *cobra.Command) {
	file := helpTexts().Lookup(strings.ReplaceAll(c.CommandPath(), " ", "-") + ".txt")
	if file == nil {
		return
	}
	var text strings.Builder
	if err := file.Execute(&text, nil); err != nil {
		panic(err) // the files are part of the program
	}
	c.Long, c.Example, _ = strings.Cut(strings.TrimSuffix(text.String(), "\n"), "\n\nExamples:\n")
}

func newVersion() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]string{"version": version.Number(),
					"go": version.Go()})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "compute-agent %s (%s)\n", version.Number(), version.Go())
			return err
		},
	}
	opts.AddOutputFlag(cmd)
	return cmd
}
