// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// driversDir holds the drivers' directories, below the state directory.
const driversDir = "drivers"

// ErrDriverDir means that a driver's directory cannot be created.
var ErrDriverDir = errors.New("agent.state_dir: cannot create the driver's directory")

// DriverDir returns the directory of a driver in a state directory, DIR/drivers/NAME, or "" if it
// does not exist. Read-only commands do not create it, because they may run as another user.
func DriverDir(dir, driver string) string {
	own := filepath.Join(dir, driversDir, driver)
	if st, err := os.Stat(own); err != nil || !st.IsDir() {
		return ""
	}
	return own
}

// MakeDriverDir creates the directory of a driver, which only the agent's user can access. It stays
// when the driver is removed from the configuration.
//
// Errors: [ErrDriverDir].
func MakeDriverDir(dir, driver string) error {
	own := filepath.Join(dir, driversDir, driver)
	for _, dir := range []string{filepath.Dir(own), own} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%w: %w; `compute-agent doctor` suggests a fix", ErrDriverDir, err)
		}
	}
	if DriverDir(dir, driver) == "" {
		return fmt.Errorf("%w: %s is not a directory: move it away", ErrDriverDir, own)
	}
	return nil
}
