// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// ErrNoJournalctl says that this machine has no command to read the journal with.
var ErrNoJournalctl = errors.New("journalctl is not installed")

// Journalctl runs the command of that name with these arguments, and gives its output to read: the
// entries of the journal that match, as JSON, one a line. No entry is no error. It ends when read
// returns, or with ctx.
func Journalctl(ctx context.Context, args []string, read func(io.Reader) error) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(running,
		"journalctl", append([]string{"--output=json", "--all", "--quiet", "--no-pager"}, args...)...)
	var problems bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &problems, 5*time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	switch err := cmd.Start(); {
	case errors.Is(err, exec.ErrNotFound):
		return ErrNoJournalctl
	case err != nil:
		return fmt.Errorf("starting journalctl: %w", err)
	}
	err = read(out)
	if err != nil {
		cancel()
	}
	ended := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case problems.Len() == 0 && errors.As(ended, &exit) && exit.ExitCode() == 1: // there is no entry
		return nil
	case ended != nil:
		return fmt.Errorf("journalctl: %w: %s", ended, strings.TrimSpace(problems.String()))
	}
	return nil
}
