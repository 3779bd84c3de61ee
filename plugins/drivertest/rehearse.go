// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// Pass is one pass over all nodes of a driver, with a tree in memory in the place of Placement's.
type Pass struct {
	Nodes []NodePass
	// Health is the problem that the driver reports of itself, or "".
	Health string
	// Warnings are what the driver warns of after the pass, in its order.
	Warnings []plugins.Warning
	// Gone are nodes of the pass before that the driver names no more. An agent leaves what Placement says of them.
	Gone []string
	// Watch says why changes are not noticed any more, or never are, once: "" if they are, and with a single pass.
	Watch string
}

// NodePass is what a pass made of one node.
type NodePass struct {
	Node string
	UUID string
	// Tree is what Placement would have after the pass: as before it, if Problem says why nothing came of it.
	Tree *providertree.Tree
	// Changes are what the pass changed, a line each.
	Changes []string
	// Reshape is the reason that the driver gave for one, which was then made with no consumers; "" if there was none.
	Reshape string
	Problem string
}

// Names are those of the resource classes and traits that the nodes have after the pass, in no
// order.
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

// ErrNoPlugin says that there is no plugin to rehearse with: it does not start, or refuses its configuration.
var ErrNoPlugin = errors.New("the plugin cannot be used")

// Describe starts a plugin, asks who it is and what its configuration looks like, and ends it again. The schema is nil if the driver takes no
// configuration.
//
// Errors: [ErrNoPlugin].
func Describe(ctx context.Context, opts Options) (report Report, schema []byte, err error) {
	b, err := newBench(opts)
	if err != nil {
		return Report{}, nil, err
	}
	defer b.close() //nolint:contextcheck // it ends in any case
	p, err := b.start(ctx)
	if err != nil {
		return Report{}, nil, unusable(err)
	}
	info, err := p.info(ctx)
	if err != nil {
		return Report{}, nil, fmt.Errorf("%w: Info: %s", ErrNoPlugin, said(err))
	}
	if schema, err = p.schema(ctx); err != nil {
		return Report{}, nil, fmt.Errorf("%w: ConfigSchema: %s", ErrNoPlugin, said(err))
	}
	return Report{
		Path: opts.Path, Name: info.GetName(), Version: info.GetVersion(), SDK: info.GetSdk(),
		Capabilities: append([]string{}, info.GetCapabilities()...),
	}, schema, nil
}

func unusable(err error) error {
	var f *finding
	if errors.As(err, &f) {
		return fmt.Errorf("%w: %s: %s", ErrNoPlugin, f.sent, f.came)
	}
	return fmt.Errorf("%w: %w", ErrNoPlugin, err)
}

// Rehearse starts a plugin and makes a pass, as an agent would on a host that Placement has nothing of. With again it makes another one
// whenever the driver says that something changed, and every interval, until ctx ends; each starts from what the one before left.
//
// Errors: [ErrNoPlugin]; that of each. The end of ctx is none.
func Rehearse(ctx context.Context, opts Options, again bool, interval time.Duration, each func(Pass) error) error {
	b, err := newBench(opts)
	if err != nil {
		return err
	}
	defer b.close() //nolint:contextcheck // it ends in any case
	p, err := b.configured(ctx)
	if err != nil {
		return unusable(err)
	}
	if b.info, err = p.info(ctx); err != nil {
		return fmt.Errorf("%w: Info: %s", ErrNoPlugin, said(err))
	}
	var changed chan struct{}
	var broken chan string
	watch := ""
	switch {
	case again && b.announces(wire.CapabilityWatch):
		changed, broken = make(chan struct{}, 1), make(chan string, 1)
		watching, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); broken <- p.notice(watching, changed) }()
		defer func() { stop(); <-ended }()
	case again:
		watch = fmt.Sprintf("the plugin does not announce the capability %q", wire.CapabilityWatch)
	}
	trees, named := map[string]*providertree.Tree{}, []string(nil)
	for {
		pass := p.pass(ctx, trees, &named)
		if again && ctx.Err() != nil { // what was under way was cancelled, which is no news
			return nil
		}
		pass.Watch, watch = watch, ""
		if err := each(pass); err != nil || !again {
			return err
		}
		timer := time.NewTimer(interval)
		select {
		case <-changed:
		case watch = <-broken:
		case <-timer.C:
		case <-p.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrNoPlugin, p.Exit())
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// notice passes on that something changed, until ctx ends or the stream breaks, and returns how it did.
func (p *proc) notice(ctx context.Context, changed chan<- struct{}) string {
	stream, err := p.Driver().Watch(ctx, &driverv1.WatchRequest{HeartbeatMs: wire.HeartbeatInterval.Milliseconds()})
	if err != nil {
		return "Watch: " + said(err)
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return "Watch returned, which it is to do only when its context ends"
		}
		if err != nil {
			return "Watch: " + said(err)
		}
		if event.GetChanged() != nil {
			select {
			case changed <- struct{}{}:
			default: // a pass is due already
			}
		}
	}
}

// pass is passNodes with what the driver says of itself: its health before, its warnings after, since many are of what it finds in a pass.
func (p *proc) pass(ctx context.Context, trees map[string]*providertree.Tree, named *[]string) Pass {
	health, err := p.health(ctx)
	if err != nil {
		health = said(err)
	}
	out := p.passNodes(ctx, trees, named)
	out.Health = health
	if reply, err := p.healthReply(ctx); err == nil {
		for _, w := range reply.GetWarnings() {
			out.Warnings = append(out.Warnings, plugins.Warning{Name: w.GetName(), Text: w.GetText()})
		}
	}
	return out
}

// passNodes asks for the nodes and their trees, and keeps both: the trees by node, the names of the last answer in named.
func (p *proc) passNodes(ctx context.Context, trees map[string]*providertree.Tree, named *[]string) Pass {
	var out Pass
	nodes, err := p.nodes(ctx)
	if err != nil {
		return Pass{Nodes: []NodePass{{Problem: "AvailableNodes: " + said(err)}}}
	}
	for _, name := range *named {
		if !slices.ContainsFunc(nodes, func(n plugins.Node) bool { return n.Name == name }) {
			out.Gone = append(out.Gone, name)
		}
	}
	*named = nil
	called := map[string]string{}
	for _, n := range nodes {
		np := NodePass{Node: n.Name, UUID: rootOf(n)}
		*named = append(*named, n.Name)
		if other, taken := called[np.UUID]; taken {
			np.Problem = fmt.Sprintf("AvailableNodes: it has the uuid of the node %s, and an agent refuses both: a driver with several nodes gives each its own (plugins.Node)", other)
		}
		called[np.UUID] = n.Name
		if np.Problem == "" && trees[n.Name] == nil {
			if trees[n.Name], err = bareTree(np.UUID, n.Name); err != nil {
				np.Problem = err.Error()
			}
		}
		if np.Problem == "" {
			np = p.passNode(ctx, np, trees[n.Name])
			trees[n.Name] = np.Tree
		}
		out.Nodes = append(out.Nodes, np)
	}
	return out
}

func (p *proc) passNode(ctx context.Context, np NodePass, before *providertree.Tree) NodePass {
	np.Tree = before
	reply, err := p.update(ctx, before, np.Node, nil)
	if kind(err) == wire.KindReshapeNeeded {
		np.Reshape = said(err)
		reply, err = p.update(ctx, before, np.Node, providertree.Allocations{})
	}
	if err != nil {
		np.Problem = "UpdateProviderTree: " + said(err)
		return np
	}
	after, err := wire.ToTree(reply.GetTree())
	if err == nil {
		err = providertree.Check(before, after, np.Node).Err()
	}
	if err == nil {
		err = capable(after, np.UUID, reply.GetCapabilityTraits())
	}
	if err != nil {
		np.Problem = "UpdateProviderTree: a tree that cannot be used: " + err.Error()
		return np
	}
	np.Changes, np.Tree = differences(before, after), asStored(after)
	return np
}

// capable puts the capability traits on the root that it has, and takes off those that it has not.
func capable(tree *providertree.Tree, root string, traits map[string]bool) error {
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
