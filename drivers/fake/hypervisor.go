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
	"sync"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// hypervisor replaces a real one. A machine is a file, so that it outlives the process; without a
// directory it is kept in memory.
//
// Files are not cached: another process of this driver can change them.
type hypervisor struct {
	dir string

	mu      sync.Mutex
	memory  map[string]machine
	stirred chan struct{}   // closed and replaced when a machine changes
	users   map[string]bool // of consoles, by uuid

	placing sync.Mutex // held while free devices are chosen and taken
}

// machine is one, as it is on disk.
type machine struct {
	UUID      string `json:"uuid"`
	Node      string `json:"node"`
	Name      string `json:"name"`
	ProjectID string `json:"project_id"`
	UserID    string `json:"user_id"`
	// KeyName and PublicKey are those of the key pair that its owner asked for.
	KeyName   string             `json:"key_name,omitempty"`
	PublicKey string             `json:"public_key,omitempty"`
	Power     plugins.PowerState `json:"power"`
	// Complete is false until its first start: Spawn may have been interrupted.
	Complete bool `json:"complete"`
	// Disk is what is on its disk, if that is not on shared storage.
	Disk string `json:"disk,omitempty"`
	// Shares are what it has.
	Shares []portion `json:"shares"`
	// Log is what it wrote to its console.
	Log string `json:"log,omitempty"`
}

func newHypervisor(dir string) *hypervisor {
	return &hypervisor{dir: dir, memory: map[string]machine{}, users: map[string]bool{}, stirred: make(chan struct{})}
}

func (h *hypervisor) path(uuid string) string { return filepath.Join(h.dir, uuid+".json") }

// list returns all machines by uuid, or an error if a file cannot be read. Cost: it reads all
// files.
func (h *hypervisor) list() ([]machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []machine
	if h.dir == "" {
		for _, m := range h.memory {
			out = append(out, m)
		}
		slices.SortFunc(out, func(a, b machine) int { return strings.Compare(a.UUID, b.UUID) })
		return out, nil
	}
	entries, err := os.ReadDir(h.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing machines: %w", err)
	}
	for _, e := range entries {
		uuid, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(uuid, ".") {
			continue
		}
		m, there, err := h.read(uuid)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, m)
		}
	}
	return out, nil
}

// find returns the machine with that uuid, if it exists.
func (h *hypervisor) find(uuid string) (machine, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !providertree.IsCanonicalUUID(uuid) { // it is not a valid file name
		return machine{}, false, nil // no machine has that uuid
	}
	if h.dir == "" {
		m, ok := h.memory[uuid]
		return m, ok, nil
	}
	return h.read(uuid)
}

func (h *hypervisor) read(uuid string) (machine, bool, error) {
	raw, err := os.ReadFile(h.path(uuid))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return machine{}, false, nil
	case err != nil:
		return machine{}, false, fmt.Errorf("reading a machine: %w", err)
	}
	var m machine
	if err = json.Unmarshal(raw, &m); err == nil && m.UUID != uuid {
		err = fmt.Errorf("its uuid is %q", m.UUID)
	}
	if err != nil {
		return machine{}, false, fmt.Errorf("%s is not the file of a machine; fix or remove it: %w", h.path(uuid), err)
	}
	return m, true, nil
}

// put creates or updates a machine.
func (h *hypervisor) put(m machine) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == "" {
		h.memory[m.UUID] = m
		h.notifyChange()
		return nil
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.MkdirAll(h.dir, 0o700)
	}
	if err == nil {
		err = files.Replace(h.path(m.UUID), raw)
	}
	if err != nil {
		return fmt.Errorf("writing machine %s: %w", m.UUID, err)
	}
	h.notifyChange()
	return nil
}

// renamed gives machines, and their disks, to the nodes that have other names now.
func (h *hypervisor) renamed(cfg config, host plugins.HostInfo) error {
	if len(host.FormerNodes) == 0 {
		return nil
	}
	machines, err := h.list()
	if err != nil {
		return err
	}
	for _, m := range machines {
		former := m.Node
		if m.Node = host.PresentNode(former); m.Node == former {
			continue
		}
		if cfg.Instances != nil {
			if err := cfg.Instances.Storage.rename(m.UUID, former, m.Node); err != nil {
				return err
			}
		}
		if err := h.put(m); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a machine, if there is one.
func (h *hypervisor) remove(uuid string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == "" {
		delete(h.memory, uuid)
	} else if err := os.Remove(h.path(uuid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a machine: %w", err)
	}
	h.notifyChange()
	return nil
}

func (h *hypervisor) notifyChange() {
	close(h.stirred)
	h.stirred = make(chan struct{})
}

// change is closed when this process changes a machine.
func (h *hypervisor) change() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stirred
}

// fail crashes the running machines of these names.
func (h *hypervisor) fail(names []string) error {
	if len(names) == 0 {
		return nil
	}
	machines, err := h.list()
	if err != nil {
		return err
	}
	for _, m := range machines {
		if m.Power == plugins.PowerRunning && slices.Contains(names, m.Name) {
			m.Power = plugins.PowerCrashed
			err = errors.Join(err, h.put(m))
		}
	}
	return err
}

// instance is the machine as the agent knows it.
func (m machine) instance() plugins.Instance {
	return plugins.Instance{UUID: m.UUID, Name: m.Name, Power: m.Power, HypervisorName: "fake-" + m.UUID[:8]}
}
