// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/providertree"
)

// FileName is the state file below the agent's state directory.
const FileName = "identity.json"

// version is of the file's format.
const version = 1

// maxFile bounds what is read of the file: 10,000 nodes are about 2 MiB.
const maxFile = 64 << 20

// Record is what the state file says.
type Record struct {
	Version int `json:"version"`
	// UUID is the UUID of the host's own compute node, as compute_id has it.
	UUID string `json:"uuid"`
	// Host is the name of the host (agent.host), Machine the hash of the machine's id or "" if it
	// has none.
	Host    string `json:"host"`
	Machine string `json:"machine_id,omitempty"`
	// Created is when the file was first written.
	Created time.Time `json:"created"`
	// Nodes are the nodes that Placement is known to have had, by the uuid of their root provider.
	Nodes map[string]Node `json:"nodes,omitempty"`
	// Given are nodes that an operator gave to a driver, by the uuid of their root provider, until
	// that driver has reported them.
	Given map[string]string `json:"given,omitempty"`
	// AsNew are names of nodes that may be created again in a Placement that does not have them,
	// until it does.
	AsNew []string `json:"as_new,omitempty"`
	// Renaming is under way, or broke off.
	Renaming *Renaming `json:"renaming,omitempty"`
	// Former are the names that nodes had, with those that they have now.
	Former map[string]string `json:"former_names,omitempty"`
}

// Node is a compute node that was reported.
type Node struct {
	Name   string    `json:"name"`
	Driver string    `json:"driver,omitempty"`
	Since  time.Time `json:"since"`
}

// Renaming is a change of a node's name, and of its providers' names, that has been begun.
type Renaming struct {
	Root  string    `json:"root"`
	From  string    `json:"from"`
	To    string    `json:"to"`
	Begun time.Time `json:"begun"`
}

// read returns nil if there is no file.
func read(path string) (*Record, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, files.Denied(err)
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var r Record
	err = json.Unmarshal(content, &r)
	if err == nil {
		err = r.validate()
	}
	if err != nil {
		return nil, &Error{
			Problem: fmt.Sprintf("%s, which records the host of this state directory, cannot be read: %v", path, err),
			Hint: "if the directory is this host's, move the file away: the next start writes a new one from " +
				"compute_id; if a newer version of the agent wrote it, run that version",
		}
	}
	return &r, nil
}

func (r *Record) validate() error {
	if r.Version != version {
		return fmt.Errorf("it has version %d, but this agent knows version %d", r.Version, version)
	}
	uuids := []string{r.UUID}
	for id := range r.Nodes {
		uuids = append(uuids, id)
	}
	if r.Renaming != nil {
		uuids = append(uuids, r.Renaming.Root)
	}
	for _, id := range uuids {
		if !providertree.IsCanonicalUUID(id) {
			return fmt.Errorf("%.80q is not a canonical uuid", id)
		}
	}
	if r.Host == "" {
		return errors.New("it names no host")
	}
	return nil
}

// write replaces the file whole: written beside, synced, renamed into place, and the directory
// synced.
func write(path string, r *Record) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(path, append(content, '\n'))
}
