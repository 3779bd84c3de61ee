// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machinesDir is the directory of machines below the driver's state directory.
const machinesDir = "machines"

// adoptMachines takes over the machines of these nodes from where they were kept when all drivers
// had the agent's own state directory: two levels above stateDir, which is STATE_DIR/drivers/NAME.
// Those of other nodes may be those of another fake driver, and stay. Two processes may do this at
// the same time, and one that was interrupted is completed by the next.
//
// Cost: one look for a directory, unless there are some.
func adoptMachines(stateDir string, nodes []string) error {
	all := filepath.Dir(filepath.Clean(stateDir))
	if filepath.Base(all) != "drivers" {
		return nil
	}
	shared, own := filepath.Join(filepath.Dir(all), machinesDir), filepath.Join(stateDir, machinesDir)
	entries, err := os.ReadDir(shared)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for machines of a former release: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		from, to := filepath.Join(shared, e.Name()), filepath.Join(own, e.Name())
		raw, err := os.ReadFile(from)
		if errors.Is(err, fs.ErrNotExist) { // another process was faster
			continue
		}
		var m machine
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil { // it may be a guest's, which must not be taken for gone
			return fmt.Errorf("%s is not the file of a machine; fix or remove it: %w", from, err)
		}
		if !slices.Contains(nodes, m.Node) {
			continue
		}
		if err = os.MkdirAll(own, 0o700); err == nil {
			err = os.Rename(from, to)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("taking over a machine of a former release: %w", err)
		}
	}
	_ = os.Remove(shared) // if it is empty
	return nil
}
