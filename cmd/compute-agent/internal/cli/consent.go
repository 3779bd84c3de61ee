// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Consent asks for confirmation of a change that was shown.
type Consent struct{ DryRun, Yes bool }

// AddFlags adds --dry-run and --yes.
func (c *Consent) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "show what would be done, and change nothing")
	cmd.Flags().BoolVarP(&c.Yes, "yes", "y", false, "do not ask for confirmation")
}

// Confirm asks for consent on a terminal. Without a terminal, --yes or --dry-run is required.
func (c *Consent) Confirm(cmd *cobra.Command) (bool, error) {
	if c.DryRun || c.Yes {
		return c.Yes && !c.DryRun, nil
	}
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return false, Exit(ExitUsage,
			errors.New("standard input is not a terminal: give --yes to proceed, or --dry-run to look"))
	}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), "Proceed? [y/N] "); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(io.LimitReader(in, 1024)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// Proposal is a change of a node that is shown before it is made. All fields are required.
type Proposal[T any] struct {
	Do func(node string, dryRun bool) (T, error)
	// Of returns the uuid of the node, and the number of violations.
	Of    func(T) (uuid string, violations int)
	Print func(io.Writer, T) error
}

// Run makes the change if there are no violations and the operator agrees, and prints the result.
// With violations the exit code is ExitProtect. The change is made of the node's uuid: the name may
// belong to another node by now.
func (p Proposal[T]) Run(cmd *cobra.Command, opts *Options, ok *Consent, node string) error {
	out, err := p.Do(node, true)
	if err != nil {
		return err
	}
	show := func() error { return Print(cmd, opts, out, p.Print) }
	uuid, violations := p.Of(out)
	if violations == 0 && !ok.DryRun {
		if !ok.Yes && !opts.JSON() {
			if err := show(); err != nil {
				return err
			}
		}
		given, err := ok.Confirm(cmd)
		if err != nil {
			return err
		}
		if given {
			if out, err = p.Do(uuid, false); err != nil {
				return err
			}
			_, violations = p.Of(out)
		}
	}
	if err := show(); err != nil {
		return err
	}
	if violations > 0 {
		return Exit(ExitProtect, nil)
	}
	return nil
}
