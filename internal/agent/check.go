// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// ScratchDir makes a directory for the sockets of drivers that run for a moment only. The caller removes it. Paths of sockets are short: where
// TMPDIR is long, it is in /tmp.
func ScratchDir() (string, error) {
	const longest = 40
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "compute-agent-")
}

// DriverCheck is what a driver says of its own table of the configuration.
type DriverCheck struct {
	Driver string `json:"driver"`
	// Problems are what the driver does not take, and where each is written; none if it takes all.
	Problems []string `json:"problems,omitempty"`
	// Unchecked is why the driver could not be asked, "" if it was.
	Unchecked string `json:"unchecked,omitempty"`
	// Nodes are those that the driver names, NodesUnknown is why it could not tell.
	Nodes        []CheckedNode `json:"nodes,omitempty"`
	NodesUnknown string        `json:"nodes_unknown,omitempty"`
	// Warnings are what the driver warns of after a look at this machine, Unseen why it could not look.
	Warnings []DriverWarning `json:"warnings,omitempty"`
	Unseen   string          `json:"unseen,omitempty"`
}

// DriverWarning is one of a driver's.
type DriverWarning struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// CheckedNode is a node that a driver names.
type CheckedNode struct {
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
}

// CheckDrivers has each enabled driver read its configuration and name its nodes: a process of it is started, configured, asked and ended,
// with directories of its own, so that it may be done beside an agent that runs. Nothing is written but to those. That a driver names a node
// of another one is a problem of it.
func CheckDrivers(ctx context.Context, cfg *config.Config) (checks []DriverCheck, err error) {
	checks = []DriverCheck{}
	names := cfg.EnabledDrivers()
	if len(names) == 0 {
		return checks, nil
	}
	dir, err := ScratchDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h, err := host.New(host.Options{Dir: cfg.Plugins.Dir, RuntimeDir: dir, Logger: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }() //nolint:contextcheck // what is closed has no time limit
	a := &Agent{opts: Options{Config: cfg}, state: statedir.New(cfg.Agent.StateDir), log: zerolog.Nop()}
	a.claims.Recorded = a.owners
	for _, name := range names {
		spec, err := a.spec(cfg, name)
		if err != nil {
			return nil, err
		}
		if spec.HostInfo.StateDir, err = os.MkdirTemp(dir, "state-"); err != nil {
			return nil, err
		}
		checks = append(checks, checkDriver(ctx, cfg, h, spec))
	}
	a.checkNodes(checks)
	return checks, nil
}

// checkNodes finds the nodes that a driver names and that are another one's, or that another one names too.
func (a *Agent) checkNodes(checks []DriverCheck) {
	// The host's own identity stands for the node without a uuid. Where it cannot be read the node is told by its name.
	own, _ := resourcetracker.FindIdentity(a.opts.Config.Agent.StateDir, filepath.Dir(a.opts.Config.File()))
	nodes := make([][]plugins.Node, len(checks))
	for i, c := range checks {
		for _, n := range c.Nodes {
			node := plugins.Node{Name: n.Name, UUID: cmp.Or(n.UUID, own, "the host's own")}
			if canonical, err := providertree.CanonicalUUID(node.UUID); err == nil {
				node.UUID = canonical
			}
			nodes[i] = append(nodes[i], node)
		}
		a.claims.Note(c.Driver, nodes[i], nil)
	}
	for i := range checks {
		for _, node := range nodes[i] {
			if claimed := a.claims.Check(checks[i].Driver, node); claimed != nil {
				checks[i].Problems = append(checks[i].Problems, fmt.Sprintf("drivers.%s: %v; %s", checks[i].Driver, claimed, claimed.Remedy()))
			}
		}
	}
}

// checkDriver asks one.
func checkDriver(ctx context.Context, cfg *config.Config, h *host.Host, spec host.Spec) DriverCheck {
	check := DriverCheck{Driver: spec.Name}
	plugin, err := h.Plugin(spec)
	if err == nil {
		err = plugin.Start(ctx)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Plugins.ShutdownTimeout+time.Second)
		defer cancel()
		defer func() { _ = plugin.Stop(ending) }() // one that does not end is killed
	}
	var refused *plugins.ConfigError
	switch {
	case errors.As(err, &refused):
		for _, one := range refused.All() {
			check.Problems = append(check.Problems, notTaken(cfg, spec.Name, one))
		}
	case err != nil:
		check.Unchecked = err.Error()
	default:
		check.look(ctx, plugin)
	}
	return check
}

// look has a driver name its nodes and look at the machine.
func (c *DriverCheck) look(ctx context.Context, plugin *host.Plugin) {
	nodes, err := plugin.AvailableNodes(ctx)
	if err != nil {
		c.NodesUnknown, c.Unseen = err.Error(), err.Error()
		return
	}
	for _, n := range nodes {
		c.Nodes = append(c.Nodes, CheckedNode(n))
	}
	if c.Warnings, err = warnings(ctx, plugin, nodes); err != nil {
		c.Unseen = err.Error()
	}
}

// warnings has a driver look at the machine, as on a host that Placement has nothing of, and returns what it warns of then.
func warnings(ctx context.Context, plugin *host.Plugin, nodes []plugins.Node) ([]DriverWarning, error) {
	for _, node := range nodes {
		tree := &providertree.Tree{}
		if err := tree.AddRoot(cmp.Or(node.UUID, uuid.NewString()), node.Name); err != nil {
			return nil, err
		}
		if _, _, err := plugin.UpdateProviderTree(ctx, tree, node.Name, nil); err != nil && !errors.Is(err, plugins.ErrReshapeNeeded) {
			return nil, err
		}
	}
	told, err := plugin.Warnings(ctx)
	out := make([]DriverWarning, 0, len(told))
	for _, w := range told {
		out = append(out, DriverWarning(w))
	}
	return out, err
}

// notTaken says where what a driver does not take is written, as the other problems of a configuration are told.
func notTaken(cfg *config.Config, driver string, refused plugins.ConfigError) string {
	table := "drivers." + driver + ".config"
	key := table
	if refused.Key != "" {
		key += "." + refused.Key
	}
	text := key + ": " + refused.Problem
	best := ""
	var where config.Source
	for _, e := range cfg.Entries() {
		if e.Source.Kind == config.FromDefault || len(e.Key) < len(best) || !strings.HasPrefix(e.Key, table+".") {
			continue
		}
		if rest, ok := strings.CutPrefix(key, e.Key); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			best, where = e.Key, e.Source
		}
	}
	if best == "" {
		return text
	}
	return fmt.Sprintf("%s: %s", where, text)
}
