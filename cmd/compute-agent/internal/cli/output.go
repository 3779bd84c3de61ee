// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

// outputFormat is the value of --output.
type outputFormat string

const (
	outputTable outputFormat = "table" // for people; "text" is another name of it
	outputJSON  outputFormat = "json"
	outputYAML  outputFormat = "yaml"
)

// String implements [pflag.Value].
func (f *outputFormat) String() string { return string(*f) }

// Type implements [pflag.Value].
func (f *outputFormat) Type() string { return "FORMAT" }

// Set implements [pflag.Value].
func (f *outputFormat) Set(v string) error {
	switch format := outputFormat(v); format {
	case outputTable, outputJSON, outputYAML:
		*f = format
	case "text":
		*f = outputTable
	default:
		return errors.New("must be table, json or yaml")
	}
	return nil
}

// forService is the format in which a service prints that runs the command. This process makes YAML
// of its JSON. A service of an older version knows these names only.
func (f outputFormat) forService() string {
	if f == outputTable {
		return "text"
	}
	return string(outputJSON)
}

const outputFlag = "output"

// AddOutputFlag adds --output to a command that has its RunE. With --output yaml, the command
// prints JSON, which is converted on the way.
func (o *Options) AddOutputFlag(cmd *cobra.Command) {
	o.output = outputTable
	cmd.Flags().VarP(&o.output, outputFlag, "o", "output `FORMAT`: table, json or yaml")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.output != outputYAML {
			return run(cmd, args)
		}
		out := cmd.OutOrStdout()
		converted := newYAML(out)
		cmd.SetOut(converted)
		defer cmd.SetOut(out)
		err := run(cmd, args)
		if closeErr := converted.Close(); err == nil {
			err = closeErr
		}
		return err
	}
}

// CompleteOutput completes the values of --output. Only a shell's request for completions needs it:
// cobra keeps completions of flags for as long as the process runs.
func CompleteOutput(root *cobra.Command) {
	formats := cobra.FixedCompletions([]cobra.Completion{
		cobra.CompletionWithDesc(string(outputTable), "for people"),
		cobra.CompletionWithDesc(string(outputJSON), "for programs"),
		cobra.CompletionWithDesc(string(outputYAML), "the same document as JSON"),
	}, cobra.ShellCompDirectiveNoFileComp)
	for _, c := range AllCommands(root) {
		if c.Flags().Lookup(outputFlag) != nil {
			_ = c.RegisterFlagCompletionFunc(outputFlag, formats) // it exists, and has none yet
		}
	}
}

// JSON reports whether to print JSON. It is converted for --output yaml.
func (o *Options) JSON() bool { return o.output == outputJSON || o.output == outputYAML }

// Screen returns the writer for text for people: a [render.Terminal] if w is a terminal.
func Screen(w io.Writer) io.Writer {
	if t, is := w.(*render.Terminal); is { // of --watch
		return t
	}
	f := terminalOf(w)
	if f == nil {
		return w
	}
	return render.NewTerminal(f, TerminalWidth(f), colors())
}

// terminalOf returns the terminal that a writer writes to, or nil.
func terminalOf(w io.Writer) *os.File {
	f, is := unwrapWriter(w).(*os.File)
	if !is || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// colors reports whether terminals get colours.
func colors() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// TerminalWidth returns the width of a terminal, 0 if w is not one.
func TerminalWidth(w io.Writer) int {
	if f := terminalOf(w); f != nil {
		width, _, _ := term.GetSize(int(f.Fd())) // 0 if it is gone
		return width
	}
	return 0
}

// Print prints the result of a command, as JSON with --output json, and as text otherwise.
func Print[T any](cmd *cobra.Command, o *Options, found T, text func(io.Writer, T) error) error {
	if o.JSON() {
		return PrintJSON(cmd.OutOrStdout(), found)
	}
	return text(Screen(cmd.OutOrStdout()), found)
}

// PrintJSON prints a value as JSON, indented.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// WithProgressOf is WithProgress for what returns something.
func WithProgressOf[T any](cmd *cobra.Command, what string, do func(p *render.Progress) (T, error)) (out T, err error) {
	err = WithProgress(cmd, what, func(p *render.Progress) (err error) {
		out, err = do(p)
		return err
	})
	return out, err
}

// WithProgress runs do, which prints nothing, and shows on standard error that it works if that
// takes long. A service that runs the command for another process shows nothing: that process does.
func WithProgress(cmd *cobra.Command, what string, do func(p *render.Progress) error) error {
	if ServingOf(cmd.Context()).Config != nil {
		return do(nil)
	}
	p := render.NewProgress(Screen(cmd.ErrOrStderr()), what)
	defer p.End()
	return do(p)
}
