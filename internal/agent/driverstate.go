// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compute-agent/compute-agent/internal/config"
)

// driversDir is the directory below the state directory with one for each driver.
const driversDir = "drivers"

// errDriverState says that a driver cannot be given a directory of its own.
var errDriverState = errors.New("agent.state_dir: the driver cannot be given a directory of its own")

// driverPath is the directory that a driver may keep things in: STATE_DIR/drivers/NAME.
func driverPath(cfg *config.Config, driver string) string {
	return filepath.Join(cfg.Agent.StateDir, driversDir, driver)
}

// driverState is the directory of a driver, or "" if there is none: no agent has run it yet, and a command that only looks makes none, since
// it may not run as the agent's user.
func driverState(cfg *config.Config, driver string) string {
	own := driverPath(cfg, driver)
	if st, err := os.Stat(own); err != nil || !st.IsDir() {
		return ""
	}
	return own
}

// makeDriverState makes the directory of a driver, if it is not there. It stays when the driver is taken out of the configuration. Plugins run
// as the agent's user, so that it is theirs, and nobody else's.
func makeDriverState(cfg *config.Config, driver string) error {
	own := driverPath(cfg, driver)
	for _, dir := range []string{filepath.Dir(own), own} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%w: %w; `compute-agent doctor` names what to do", errDriverState, err)
		}
	}
	if driverState(cfg, driver) == "" {
		return fmt.Errorf("%w: %s is not a directory: move it away", errDriverState, own)
	}
	return nil
}
