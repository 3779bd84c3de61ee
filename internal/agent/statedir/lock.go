// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/agent/control"
)

// LockFile is the file below the state directory that the process which owns it holds locked.
const LockFile = "agent.lock"

// ErrInUse says that another process owns the state directory.
var ErrInUse = errors.New("another agent uses")

// Make makes the state directory, if there is none.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("agent.state_dir: %w; `compute-agent doctor` names what to do", err)
	}
	return nil
}

// Lock makes the calling process the owner of a state directory, until unlock. Errors: [ErrInUse].
func Lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("agent.state_dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("agent.state_dir: %w %s; stop it first, or give this one its own state and runtime directories", ErrInUse, dir)
		}
		return nil, fmt.Errorf("agent.state_dir: locking %s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// Locked reports whether a state directory was ever locked: whether an agent has used it.
func Locked(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, LockFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// Take locks a state directory for a command that does the work of an agent that does not run. While one runs, it is
// refused ([control.ErrRefused]).
func Take(dir string) (unlock func(), err error) {
	if err := Make(dir); err != nil {
		return nil, err
	}
	unlock, err = Lock(dir)
	if errors.Is(err, ErrInUse) {
		return nil, fmt.Errorf("%w: the agent runs on %s; stop it first (systemctl stop compute-agent)", control.ErrRefused, dir)
	}
	return unlock, err
}
