// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/files"
)

// LockFile is the file below the state directory that its owner locks.
const LockFile = "agent.lock"

// ErrInUse means that another process owns the state directory.
var ErrInUse = errors.New("another agent uses")

// Make creates the state directory if it does not exist.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("agent.state_dir: %w; `compute-agent doctor` suggests a fix", err)
	}
	return nil
}

// Lock locks a state directory until unlock is called. Errors: [ErrInUse].
func Lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("agent.state_dir: %w", err)
	}
	if err := files.Lock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf(
				"agent.state_dir: %w %s; stop it first, or configure other state and runtime directories", ErrInUse,
				dir)
		}
		return nil, fmt.Errorf("agent.state_dir: locking %s: %w", f.Name(), err)
	}
	return func() {
		// Closing it is too late while a process that was just started has the file, until it
		// executes its program.
		_ = files.Lock(f, unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// Locked reports whether an agent has ever used a state directory.
func Locked(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, LockFile))
	return !errors.Is(err, fs.ErrNotExist)
}
