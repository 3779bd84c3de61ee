// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// maxTypos is how many letters a word may differ in from the one that an error suggests.
const maxTypos = 2

// suggestCommand adds to the error of an unknown command the one that was probably meant.
func suggestCommand(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasSubCommands() || len(args) == 0 {
		return err
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return suggested(err, textutil.Suggest(args[0], names, maxTypos))
}

// SuggestFlag adds to the error of an unknown flag the one that was probably meant.
func SuggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	best := textutil.Suggest(unknown.GetSpecifiedName(), names, maxTypos)
	if best != "" {
		best = "--" + best
	}
	return suggested(err, best)
}

func suggested(err error, best string) error {
	if best == "" {
		return err
	}
	return fmt.Errorf("%w (did you mean %q?)", err, best)
}

// CompleteValues completes the names of nodes and the numbers of reshapes, which come from the
// agent of this host. Only a shell's request for completions needs it, as CompleteOutput.
func CompleteValues(root *cobra.Command) {
	for path, list := range map[string]completer{
		"node give": nodeNames, "node remove": nodeNames, "disable": nodeNames, "enable": nodeNames,
		"reshape show": reshapeIDs, "reshape undo": reshapeIDs,
	} {
		if c, _, err := root.Find(strings.Fields(path)); err == nil {
			c.ValidArgsFunction = completeOnce(list)
		}
	}
	for _, path := range []string{"allocations audit", "allocations heal", "adopt"} {
		if c, _, err := root.Find(strings.Fields(path)); err == nil {
			_ = c.RegisterFlagCompletionFunc("node", completing(nodeNames)) // it exists, and has none yet
		}
	}
}

// completer lists values.
type completer func(ctx context.Context, o *Options) []cobra.Completion

// completeTimeout is how long a shell waits for values.
const completeTimeout = 2 * time.Second

// completing lists the values of a completer, none if they cannot be found out.
func completing(list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
		defer cancel()
		var o Options
		for name, value := range map[string]*string{"config": &o.File, "state-dir": &o.StateDir,
			"runtime-dir": &o.RuntimeDir} {
			if f := cmd.Flags().Lookup(name); f != nil {
				*value = f.Value.String()
			}
		}
		return list(ctx, &o), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOnce is completing for commands with one argument.
func completeOnce(list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completing(list)(cmd, args, start)
	}
}

func nodeNames(ctx context.Context, o *Options) (out []cobra.Completion) {
	cfg, err := o.Load()
	if err != nil {
		return nil
	}
	nodes, err := commands.Host{Config: cfg}.Nodes(ctx)
	if err != nil {
		return nil
	}
	for _, n := range nodes.Nodes {
		out = append(out, cobra.CompletionWithDesc(n.Name, n.UUID))
	}
	return out
}

func reshapeIDs(_ context.Context, o *Options) (out []cobra.Completion) {
	cfg, err := o.Load()
	if err != nil {
		return nil
	}
	entries, err := journal.Read(cfg.Agent.StateDir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		out = append(out, cobra.CompletionWithDesc(strconv.FormatInt(e.ID, 10),
			e.Begun.UTC().Format(time.DateTime)+" "+string(e.Outcome)))
	}
	return out
}

// AllCommands are a command and all below it.
func AllCommands(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		out = append(out, AllCommands(sub)...)
	}
	return out
}

// UsageErrors gives errors of an argument check the exit code for wrong usage.
func UsageErrors(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			err = suggestCommand(cmd, args, err)
			return Exit(ExitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
		}
		return nil
	}
}
