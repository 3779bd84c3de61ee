// SPDX-License-Identifier: Apache-2.0

package commands

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

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// scratchDir creates a directory for sockets of drivers that a command starts. The caller removes
// it. It is in /tmp if TMPDIR is too long for a socket's path.
func scratchDir() (string, error) {
	const longest = 40
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "compute-agent-")
}

// DriverCheck is a driver's check of its own configuration table.
type DriverCheck struct {
	Driver string `json:"driver"`
	// Problems are the errors in the table, with file and line.
	Problems []string `json:"problems,omitempty"`
	// Unchecked is why the driver could not check the table, or "".
	Unchecked string `json:"unchecked,omitempty"`
	// Nodes are the driver's nodes; NodesUnknown is why it could not list them.
	Nodes        []CheckedNode `json:"nodes,omitempty"`
	NodesUnknown string        `json:"nodes_unknown,omitempty"`
	// Warnings are about this machine; Unseen is why the driver could not check it.
	Warnings []DriverWarning `json:"warnings,omitempty"`
	Unseen   string          `json:"unseen,omitempty"`
}

// DriverWarning is a warning of a driver.
type DriverWarning struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// CheckedNode is a node that a driver lists.
type CheckedNode struct {
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
}

// CheckDrivers starts each enabled driver to check its configuration, list its nodes and check the
// machine. The processes use temporary directories, so that an agent may be running. A driver that
// lists another driver's node has a problem.
func CheckDrivers(ctx context.Context, cfg *config.Config) (checks []DriverCheck, err error) {
	checks = []DriverCheck{}
	names := cfg.EnabledDrivers()
	if len(names) == 0 {
		return checks, nil
	}
	dir, err := scratchDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h, err := pluginhost.New(pluginhost.Options{Dir: cfg.Plugins.Dir, RuntimeDir: dir, Logger: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }() //nolint:contextcheck // closing has no time limit
	for _, name := range names {
		spec, err := agent.Spec(cfg, name, nil)
		if err != nil {
			return nil, err
		}
		if spec.HostInfo.StateDir, err = os.MkdirTemp(dir, "state-"); err != nil {
			return nil, err
		}
		checks = append(checks, checkDriver(ctx, cfg, h, spec))
	}
	checkNodes(cfg, checks)
	return checks, nil
}

// checkNodes adds a problem for each node that belongs to another driver, or that two drivers list.
func checkNodes(cfg *config.Config, checks []DriverCheck) {
	claims := statedir.Claims{Recorded: func() map[string]statedir.Owner {
		return statedir.New(cfg.Agent.StateDir).Owners(zerolog.Nop())
	}}
	// A node without a uuid has the host's identity. If that cannot be read, the name identifies
	// it.
	own, _ := resourcetracker.FindIdentity(cfg.Agent.StateDir, filepath.Dir(cfg.File()))
	nodes := make([][]plugins.Node, len(checks))
	for i, c := range checks {
		for _, n := range c.Nodes {
			node := plugins.Node{Name: n.Name, UUID: cmp.Or(n.UUID, own, "the host's own")}
			if canonical, err := providertree.CanonicalUUID(node.UUID); err == nil {
				node.UUID = canonical
			}
			nodes[i] = append(nodes[i], node)
		}
		claims.SetNodes(c.Driver, nodes[i], nil)
	}
	for i := range checks {
		for _, node := range nodes[i] {
			if claimed := claims.Check(checks[i].Driver, node); claimed != nil {
				checks[i].Problems = append(checks[i].Problems,
					fmt.Sprintf("drivers.%s: %v; %s", checks[i].Driver, claimed, claimed.Hint()))
			}
		}
	}
}

// checkDriver checks one driver.
func checkDriver(ctx context.Context, cfg *config.Config, h *pluginhost.Host, spec pluginhost.Spec) DriverCheck {
	check := DriverCheck{Driver: spec.Name}
	plugin, err := h.Plugin(spec)
	if err == nil {
		err = plugin.Start(ctx)
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Plugins.ShutdownTimeout+time.Second)
		defer cancel()
		defer func() { _ = plugin.Stop(stopCtx) }() // kills it if needed
	}
	var refused *plugins.ConfigError
	switch {
	case errors.As(err, &refused):
		for _, one := range refused.All() {
			check.Problems = append(check.Problems, configProblem(cfg, spec.Name, one))
		}
	case err != nil:
		check.Unchecked = err.Error()
	default:
		check.examine(ctx, plugin)
	}
	return check
}

// examine lets a driver list its nodes and check the machine.
func (c *DriverCheck) examine(ctx context.Context, plugin *pluginhost.Plugin) {
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

// warnings lets a driver report an empty host, and returns its warnings.
func warnings(ctx context.Context, plugin *pluginhost.Plugin, nodes []plugins.Node) ([]DriverWarning, error) {
	for _, node := range nodes {
		tree := &providertree.Tree{}
		if err := tree.AddRoot(cmp.Or(node.UUID, uuid.NewString()), node.Name); err != nil {
			return nil, err
		}
		if _, _, err := plugin.UpdateProviderTree(ctx, tree, node.Name, nil); err != nil &&
			!errors.Is(err, plugins.ErrReshapeNeeded) {
			return nil, err
		}
	}
	found, err := plugin.Warnings(ctx)
	out := make([]DriverWarning, 0, len(found))
	for _, w := range found {
		out = append(out, DriverWarning(w))
	}
	return out, err
}

// configProblem formats a driver's configuration error like the agent's own, with file and line.
func configProblem(cfg *config.Config, driver string, refused plugins.ConfigError) string {
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
