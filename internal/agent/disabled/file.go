// SPDX-License-Identifier: Apache-2.0

package disabled

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

// FileName is the file below the agent's state directory.
const FileName = "disabled.json"

// version is of the file's format.
const version = 1

// maxFile bounds what is read of the file: a reason of 500 characters for each of 10,000 nodes is about 8 MiB.
const maxFile = 64 << 20

type file struct {
	Version int      `json:"version"`
	Reasons []Reason `json:"reasons"`
	// Enabling are nodes from which the trait is to be taken whoever put it there; "" is every node.
	Enabling []string `json:"enabling,omitempty"`
}

func (f file) clone() file {
	f.Reasons, f.Enabling = slices.Clone(f.Reasons), slices.Clone(f.Enabling)
	return f
}

// dropEnabling forgets that a node was to be enabled.
func (f *file) dropEnabling(node string) {
	if node == "" {
		f.Enabling = nil
	}
	f.Enabling = slices.DeleteFunc(f.Enabling, func(name string) bool { return name == node })
}

func (f file) equal(o file) bool {
	return f.Version == o.Version && slices.Equal(f.Reasons, o.Reasons) && slices.Equal(f.Enabling, o.Enabling)
}

// Open reads the file of a state directory. That there is none is no error. One that cannot be read is: to go on without it would
// have guests scheduled to a host that somebody took out of service.
func Open(dir string) (*Store, error) {
	s := &Store{path: filepath.Join(dir, FileName), now: time.Now, file: file{Version: version, Reasons: []Reason{}}}
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("%s says whether this host is disabled, and cannot be read: %w; move it away, and say it again with `compute-agent disable` "+
			"if no new guest may be scheduled to the host", s.path, err)
	}
	return s, nil
}

func (f file) validate() error {
	if f.Version != version {
		return fmt.Errorf("it is of version %d, and this agent knows version %d", f.Version, version)
	}
	for _, r := range f.Reasons {
		if err := r.validate(); err != nil {
			return err
		}
	}
	return nil
}

// keep writes a changed file whole, beside and renamed into place and synced, and takes it over only then. s.mu is held.
func (s *Store) keep(next file) error {
	if next.equal(s.file) {
		return nil
	}
	content, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Replace(s.path, append(content, '\n')); err != nil {
		return fmt.Errorf("keeping whether this host is disabled: %w", err)
	}
	s.file = next
	return nil
}
