// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compute-agent/compute-agent/internal/config"
)

// driversDir holds the drivers' directories, below the state directory.
const driversDir = "drivers"

// errDriverState means that a driver's directory cannot be created.
var errDriverState = errors.New("agent.state_dir: cannot create the driver's directory")

// driverPath returns the directory of a driver: STATE_DIR/drivers/NAME.
func driverPath(cfg *config.Config, driver string) string {
	return filepath.Join(cfg.Agent.StateDir, driversDir, driver)
}

// driverState returns the directory of a driver, or "" if it does not exist. Read-only commands do
// not create it, because they may run as another user.
func driverState(cfg *config.Config, driver string) string {
	own := driverPath(cfg, driver)
	if st, err := os.Stat(own); err != nil || !st.IsDir() {
		return ""
	}
	return own
}

// makeDriverState creates the directory of a driver, which only the agent's user can access. It
// stays when the driver is removed from the configuration.
func makeDriverState(cfg *config.Config, driver string) error {
	own := driverPath(cfg, driver)
	for _, dir := range []string{filepath.Dir(own), own} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%w: %w; `compute-agent doctor` suggests a fix", errDriverState, err)
		}
	}
	if driverState(cfg, driver) == "" {
		return fmt.Errorf("%w: %s is not a directory: move it away", errDriverState, own)
	}
	return nil
}
