// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// ErrUnusable says that a plugin does not start, or rejects its configuration.
var ErrUnusable = errors.New("the plugin cannot be used")

const (
	// Host is the name of the host that the plugin gets.
	Host = "drivertest-host"
	// Node is the uuid of a node for which the driver reports none.
	Node = "0d5a6f1c-5f3e-4c55-8d7a-6a8f2f0c9e11"
)

// Description is what a plugin reports about itself.
type Description struct {
	Path         string   `json:"path"`
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	SDK          string   `json:"sdk"`
	Capabilities []string `json:"capabilities"`
	// Sandbox is what the process was started in, such as "landlock 6, seccomp"; SandboxLacks what
	// it can do in it on this machine that it cannot in a complete one. Empty if it was not
	// started.
	Sandbox      string   `json:"sandbox,omitempty"`
	SandboxLacks []string `json:"sandbox_lacks,omitempty"`
}

// Unconfined reports whether the process ran without any sandbox.
func (d Description) Unconfined() bool { return strings.HasPrefix(d.Sandbox, "none") }

// Pass is one pass over all nodes of a driver, with a tree in memory instead of Placement's.
type Pass struct {
	Nodes []NodePass
	// Health is the problem that the driver reports, or "".
	Health string
	// Warnings are the warnings of the driver after the pass, by name.
	Warnings []plugins.Warning
	// Removed lists nodes of the previous pass that the driver no longer lists. An agent does not
	// delete them in Placement.
	Removed []string
	// Watch says once why changes are not, or no longer, watched.
	Watch string
}

// NodePass is the result of a pass for one node.
type NodePass struct {
	Node string
	UUID string
	// Tree is what Placement would have after the pass; unchanged if there is a Problem.
	Tree *providertree.Tree
	// ProductNames are the product names of the providers of Tree, by name.
	ProductNames map[string]string
	// Changes describe what the pass changed, a line each.
	Changes []string
	// Reshape is why the driver needed a reshape, which was made without consumers; "" if it did
	// not.
	Reshape string
	Problem string
}

// Failed reports whether the driver reported no tree, or one that is wrong.
func (p Pass) Failed() bool {
	return len(p.Nodes) == 0 || slices.ContainsFunc(p.Nodes, func(node NodePass) bool { return node.Problem != "" })
}

// Names returns the resource classes and traits of the nodes after the pass, unsorted.
func (p Pass) Names() (classes, traits []string) {
	for _, node := range p.Nodes {
		if node.Tree == nil {
			continue
		}
		for rp := range node.Tree.All() {
			classes, traits = slices.AppendSeq(classes, maps.Keys(rp.Inventories)), append(traits, rp.Traits...)
		}
	}
	return classes, traits
}

// Describe starts a plugin, returns its description and the schema of its configuration, and stops
// it. The schema is nil if the driver takes no configuration.
//
// Errors: [ErrUnusable].
func Describe(ctx context.Context, spec pluginhost.Spec, log zerolog.Logger) (Description, []byte, error) {
	r, err := rehearse(ctx, spec, log)
	if err != nil {
		return Description{}, nil, err
	}
	defer r.end()
	schema, err := r.ConfigSchema(ctx)
	if err != nil {
		return Description{}, nil, fmt.Errorf("%w: %s", ErrUnusable, r.problem(err))
	}
	is, lacks := r.session.Sandbox()
	return Description{
		Path: spec.Path, Name: r.info.Name, Version: r.info.Version, SDK: r.info.SDK,
		Capabilities: append([]string{}, r.info.Capabilities...),
		Sandbox:      is, SandboxLacks: lacks,
	}, schema, nil
}

// Run starts a plugin and makes one pass, as an agent does on a new host. With watch it makes
// another one whenever the driver reports a change, and every interval, until ctx ends; each starts
// from the previous result.
//
// Errors: [ErrUnusable]; that of each. The end of ctx is not an error.
func Run(
	ctx context.Context, spec pluginhost.Spec, log zerolog.Logger, watch bool, interval time.Duration,
	each func(Pass) error,
) error {
	r, err := rehearse(ctx, spec, log)
	if err != nil {
		return err
	}
	defer r.end()
	if err := r.Configure(ctx, r.spec.Config, r.spec.HostInfo, r.spec.Timeouts); err != nil {
		return fmt.Errorf("%w: %s", ErrUnusable, r.problem(err))
	}
	changed, broken := make(chan struct{}, 1), make(chan error, 1)
	notWatched := ""
	switch {
	case watch && r.has(protocol.CapabilityWatch):
		watching, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			broken <- r.Watch(watching, func(string) {
				select {
				case changed <- struct{}{}:
				default: // a pass is already pending
				}
			})
		}()
		defer func() { stop(); <-ended }()
	case watch:
		notWatched = fmt.Sprintf("the plugin does not announce the capability %q", protocol.CapabilityWatch)
	}
	for {
		pass := r.pass(ctx)
		if watch && ctx.Err() != nil { // running calls were cancelled
			return nil
		}
		pass.Watch, notWatched = notWatched, ""
		if err := each(pass); err != nil || !watch {
			return err
		}
		timer := time.NewTimer(interval)
		select {
		case <-changed:
		case err := <-broken:
			notWatched = r.problem(err)
		case <-timer.C:
		case <-r.session.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrUnusable, r.session.Exit())
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// rehearsal is a process for passes without an agent.
type rehearsal struct {
	*driverclient.Client
	session *pluginhost.Session
	info    driverclient.Info

	spec  pluginhost.Spec
	end   func()
	trees map[string]*providertree.Tree // of each node, as Placement would have them
	nodes []string                      // of the last pass
}

// rehearse starts the process and calls Info; the caller calls end.
func rehearse(ctx context.Context, spec pluginhost.Spec, log zerolog.Logger) (*rehearsal, error) {
	var err error
	if spec.Path, err = filepath.Abs(spec.Path); err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	spec.Name = "tested"
	scratch, err := os.MkdirTemp("/tmp", "rehearsal") // short, because a socket's path is limited
	if err != nil {
		return nil, fmt.Errorf("making a directory for the plugin's sockets: %w", err)
	}
	spec.HostInfo = plugins.HostInfo{Name: Host, StateDir: filepath.Join(scratch, "state")}
	r := &rehearsal{trees: map[string]*providertree.Tree{}, end: func() { _ = os.RemoveAll(scratch) }}
	if err := os.Mkdir(spec.HostInfo.StateDir, 0o700); err != nil {
		r.end()
		return nil, fmt.Errorf("making a state directory for the plugin: %w", err)
	}
	if r.spec, err = spec.Complete(""); err != nil {
		r.end()
		return nil, err
	}
	h, err := pluginhost.New(pluginhost.Options{RuntimeDir: scratch, Logger: log})
	if err != nil {
		r.end()
		return nil, err
	}
	r.end = func() { //nolint:contextcheck // the host ends its session in any case
		_, _ = h.Close(), os.RemoveAll(scratch)
	}
	s, err := h.Open(ctx, r.spec)
	if err == nil {
		r.Client, r.session = s.Client(), s
		r.info, err = r.Info(ctx)
	}
	if err != nil {
		r.end()
		return nil, fmt.Errorf("%w: %s", ErrUnusable, r.problem(err))
	}
	return r, nil
}

func (r *rehearsal) has(capability string) bool {
	return slices.Contains(r.info.Capabilities, capability)
}

// problem returns the error of a call without the driver's name. If the process ended during the
// call, that is the reason.
func (r *rehearsal) problem(err error) string {
	var failed *driverclient.CallError
	if !errors.As(err, &failed) {
		return err.Error()
	}
	if errors.Is(err, driverclient.ErrUnavailable) {
		if ended := r.session.EndsWithin(r.spec.Timeouts.Health); ended != nil {
			return failed.Call + ": " + ended.Error()
		}
	}
	return failed.Call + ": " + failed.Err.Error()
}

// pass makes one pass. It takes the driver's health before it and its warnings after it: many of
// them come from a pass.
func (r *rehearsal) pass(ctx context.Context) Pass {
	out := Pass{}
	if _, err := r.Health(ctx); err != nil {
		out.Health = r.problem(err)
	}
	r.passNodes(ctx, &out)
	out.Warnings, _ = r.Health(ctx)
	return out
}

func (r *rehearsal) passNodes(ctx context.Context, out *Pass) {
	nodes, err := r.AvailableNodes(ctx)
	if err != nil {
		out.Nodes = []NodePass{{Problem: r.problem(err)}}
		return
	}
	last := r.nodes
	r.nodes = nil
	users := map[string]string{} // of each uuid
	for _, n := range nodes {
		pass := NodePass{Node: n.Name, UUID: n.UUID}
		if pass.UUID == "" {
			pass.UUID = Node
		}
		r.nodes = append(r.nodes, n.Name)
		if other, taken := users[pass.UUID]; taken {
			pass.Problem = fmt.Sprintf(
				"AvailableNodes: it has the uuid of the node %s, and an agent rejects both: a driver with several "+
					"nodes gives each its own (plugins.Node)",
				other,
			)
		} else if users[pass.UUID] = n.Name; r.trees[n.Name] == nil {
			r.trees[n.Name], err = BareTree(pass.UUID, n.Name)
			if err != nil {
				pass.Problem = err.Error()
			}
		}
		if pass.Problem == "" {
			r.passNode(ctx, &pass)
		}
		out.Nodes = append(out.Nodes, pass)
	}
	for _, name := range last {
		if !slices.Contains(r.nodes, name) {
			out.Removed = append(out.Removed, name)
		}
	}
}

func (r *rehearsal) passNode(ctx context.Context, pass *NodePass) {
	before := r.trees[pass.Node]
	pass.Tree = before
	got, err := r.UpdateProviderTree(ctx, before, pass.Node, nil)
	if errors.Is(err, plugins.ErrReshapeNeeded) {
		pass.Reshape = r.problem(err)
		got, err = r.UpdateProviderTree(ctx, before, pass.Node, providertree.Allocations{})
	}
	if err == nil {
		err = setTraits(got.Tree, pass.UUID, got.Capabilities)
	}
	if err != nil {
		pass.Problem = r.problem(err)
		return
	}
	pass.Changes, pass.Tree = providertree.Diff(before, got.Tree).Lines(), Stored(got.Tree)
	pass.ProductNames = got.ProductNames
	r.trees[pass.Node] = pass.Tree
}

// setTraits adds the capability traits that are true to the root and removes the others.
func setTraits(tree *providertree.Tree, root string, traits map[string]bool) error {
	for trait, has := range traits {
		change := tree.RemoveTraits
		if has {
			change = tree.AddTraits
		}
		if _, err := change(root, trait); err != nil {
			return fmt.Errorf("capability trait %s: %w", trait, err)
		}
	}
	return nil
}

// BareTree returns a node's tree without inventory, as Placement has it.
func BareTree(root, node string) (*providertree.Tree, error) {
	tree := &providertree.Tree{}
	if err := tree.AddRoot(root, node); err != nil {
		return nil, err
	}
	return tree, tree.SetGeneration(root, 3)
}

// Stored returns a tree as Placement stores it: new providers have a generation.
func Stored(tree *providertree.Tree) *providertree.Tree {
	out := tree.Clone()
	for p := range tree.All() {
		if p.Generation == providertree.NoGeneration {
			_ = out.SetGeneration(p.UUID, 1) // cannot fail: the provider exists
		}
	}
	return out
}
