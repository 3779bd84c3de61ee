// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
)

// DisabledFile is the file below the agent's state directory.
const DisabledFile = "disabled.json"

// version is the version of the file's format.
const version = 1

// maxFile limits the file: reasons of 500 characters for 10,000 nodes are about 8 MiB.
const maxFile = 64 << 20

type file struct {
	Version int      `json:"version"`
	Reasons []Reason `json:"reasons"`
	// Enabling are nodes whose trait has to be removed; "" means every node.
	Enabling []string `json:"enabling,omitempty"`
}

func (f file) clone() file {
	f.Reasons, f.Enabling = slices.Clone(f.Reasons), slices.Clone(f.Enabling)
	return f
}

// dropEnabling removes a node from Enabling.
func (f *file) dropEnabling(node string) {
	if node == "" {
		f.Enabling = nil
	}
	f.Enabling = slices.DeleteFunc(f.Enabling, func(name string) bool { return name == node })
}

func (f file) equal(o file) bool {
	return f.Version == o.Version && slices.Equal(f.Reasons, o.Reasons) && slices.Equal(f.Enabling, o.Enabling)
}

// OpenDisabled reads the file of a state directory, if it exists. A damaged file is an error,
// because the host could be enabled against an operator's decision.
func OpenDisabled(dir string) (*Disabled, error) {
	s := &Disabled{path: filepath.Join(dir, DisabledFile), now: time.Now,
		file: file{Version: version, Reasons: []Reason{}}}
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, files.Denied(err)
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err == nil {
		err = json.Unmarshal(content, &s.file)
	}
	if err == nil {
		err = s.file.validate()
	}
	if err != nil {
		return nil, fmt.Errorf(
			"cannot read %s, which records whether this host is disabled: %w; move the file away, and run "+
				"`compute-agent disable` again if the host must stay disabled", s.path, err)
	}
	return s, nil
}

func (f file) validate() error {
	if f.Version != version {
		return fmt.Errorf("it has version %d, but this agent supports version %d", f.Version, version)
	}
	for _, r := range f.Reasons {
		if err := r.validate(); err != nil {
			return err
		}
	}
	return nil
}

// write writes a changed file atomically, and then updates d.file. d.mu is held.
func (d *Disabled) write(next file) error {
	if next.equal(d.file) {
		return nil
	}
	content, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Replace(d.path, append(content, '\n')); err != nil {
		return fmt.Errorf("recording whether this host is disabled: %w", err)
	}
	d.file = next
	return nil
}
