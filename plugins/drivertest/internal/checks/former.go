// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// FormerError says why Plugin.FormerPath cannot be used as a former release of the plugin.
type FormerError struct {
	Path    string
	Problem string
}

func (e *FormerError) Error() string {
	return fmt.Sprintf("the former release %s %s", e.Path, e.Problem)
}

// former is what the former release reports on a new node.
type former struct {
	version string
	nodes   []plugins.Node
	tree    *providertree.Tree // as Placement has it
}

// runFormer runs the former release once, with its own state directory, and keeps what it reports.
// Its log is not checked.
//
// Errors: a [*FormerError].
func (b *Bench) runFormer(ctx context.Context) error {
	fail := func(format string, args ...any) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &FormerError{Path: b.plugin.FormerPath, Problem: fmt.Sprintf(format, args...)}
	}
	same, err := sameContent(b.plugin.FormerPath, b.plugin.Path)
	switch {
	case err != nil:
		return fail("cannot be read: %v", err)
	case same:
		return fail("is the same program as %s: give the binary of the last release", b.plugin.Path)
	}
	dir, state := filepath.Join(b.scratch, "former"), filepath.Join(b.scratch, "former-state")
	for _, d := range []string{dir, state} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("making a directory for the former release: %w", err)
		}
	}
	h, err := pluginhost.New(
		pluginhost.Options{RuntimeDir: dir, Logger: zerolog.New(io.Discard).Level(zerolog.InfoLevel)})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() //nolint:contextcheck // it ends in any case
	s, err := h.Open(ctx, pluginhost.Spec{Name: "former", Path: b.plugin.FormerPath, Args: b.plugin.Args,
		Env: b.plugin.Env, Timeouts: b.limits, Sandbox: b.plugin.Sandbox})
	if err != nil {
		return fail("does not start: %v", err)
	}
	p := &proc{Session: s, limits: b.limits}
	defer p.Kill()
	info, err := p.info(ctx)
	if err != nil {
		return fail("does not answer Info: %s", describe(err))
	}
	config := b.plugin.Former
	if config == nil {
		config = b.plugin.Config
	}
	if err := p.configure(ctx, config, state); err != nil {
		return fail("rejects its configuration: %s. Give one that it accepts with --former-config (Options.Former)",
			describe(err))
	}
	f := &former{version: info.GetVersion()}
	if f.nodes, err = p.nodes(ctx); err != nil {
		return fail("does not answer AvailableNodes: %s", describe(err))
	}
	present, err := b.shared(ctx)
	if err != nil { // start/handshake and others report why
		return nil // it is a result of the suite, not a fault of the former release
	}
	switch {
	case b.info.GetName() != info.GetName():
		return fail("is the driver %q, and %s is the driver %q", info.GetName(), b.plugin.Path, b.info.GetName())
	case newer(info.GetVersion(), b.info.GetVersion()):
		return fail("is version %s, which is newer than version %s of %s: give the older one as the former release",
			info.GetVersion(), b.info.GetVersion(), b.plugin.Path)
	case p.layout > present.layout && present.layout > 0:
		return fail("has layout version %d, which is newer than version %d of %s: give the older one as the "+
			"former release", p.layout, present.layout, b.plugin.Path)
	}
	base, _, err := b.base(ctx)
	if err != nil {
		return nil
	}
	if !slices.ContainsFunc(f.nodes, func(n plugins.Node) bool { return n.Name == base.node }) {
		return fail("has no node %q: its nodes are %s", base.node, nodeNames(f.nodes))
	}
	tree, err := p.tree(ctx, base.bare, base.node)
	if err != nil {
		var v *violation
		if errors.As(err, &v) {
			return fail("makes no tree: %s", v.came)
		}
		return err
	}
	f.tree = trial.Stored(tree)
	b.former = f
	return nil
}

func nodeNames(nodes []plugins.Node) string {
	if len(nodes) == 0 {
		return "none"
	}
	names := make([]string, 0, len(nodes))
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return quoted(names)
}

func sameContent(a, b string) (bool, error) {
	one, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	other, err := os.ReadFile(b)
	return err == nil && bytes.Equal(one, other), err
}

// newer reports whether a version is newer than another, if both have three numbers: v1.2.3. Others
// cannot be compared.
func newer(a, b string) bool {
	va, ok := numbers(a)
	vb, also := numbers(b)
	return ok && also && slices.Compare(va, vb) > 0
}

func numbers(version string) ([]int, bool) {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	out := make([]int, 0, len(parts))
	for _, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, false
		}
		out = append(out, n)
	}
	return out, len(out) == 3
}

// formerTree returns a tree that may need a reshape, or nil, and describes its source. A real one
// was made by a driver.
func (b *Bench) formerTree(
	ctx context.Context, base *baseline,
) (tree *providertree.Tree, source string, real bool, err error) {
	if b.former != nil {
		for _, n := range b.former.nodes {
			if n.Name == base.node && rootOf(n) != base.root {
				return nil, "", true, failf("AvailableNodes, of the former release and of this one",
					"node %s has the uuid %s now, had %s: it is another node, and the former one's "+
						"allocations are lost", n.Name, base.root, rootOf(n))
			}
		}
		return b.former.tree.Clone(), strings.TrimSpace("the tree of the former release " + b.former.version), true, nil
	}
	if b.plugin.Former == nil {
		tree, err := base.flat()
		return tree, "its own tree with all inventory on the root, which possibly no release has made", false, err
	}
	p, err := b.start(ctx)
	if err != nil {
		return nil, "", true, err
	}
	if err := p.configure(ctx, b.plugin.Former, b.stateDir()); err != nil {
		return nil, "", true, failf("Configure with the former configuration", "%s", describe(err))
	}
	tree, err = p.tree(ctx, base.bare, base.node)
	if err != nil {
		return nil, "", true, err
	}
	return trial.Stored(tree), "the tree that it makes with the former configuration", true, nil
}

// compareToNew compares the result of a reshape with the tree of a new node, by names: uuids can be
// those of providers of the former tree.
func compareToNew(base *baseline, after *providertree.Tree) []string {
	var out []string
	for _, id := range base.own.Subtree(base.root) {
		want, _ := base.own.Provider(id)
		is, ok := after.ProviderByName(want.Name)
		if !ok {
			out = append(out, want.Name+" is missing")
			continue
		}
		is.UUID, is.ParentUUID = want.UUID, want.ParentUUID
		out = append(out, providertree.Change{Before: want, After: is}.Lines()...)
	}
	return out
}

// compareMovedToNew is compareToNew for a made-up former tree, which can have inventory where no
// release had any. It compares the classes that the driver moved, and the traits and aggregates of
// the providers that it added for them.
func compareMovedToNew(base *baseline, r *reshaped) []string {
	moved := map[string]bool{}
	for _, at := range placesReduced(r, base.root) {
		moved[r.renames.Present(at.Class)] = true
	}
	var out []string
	for _, id := range base.own.Subtree(base.root) {
		want, _ := base.own.Provider(id)
		is, ok := r.after.ProviderByName(want.Name)
		touched := withOnly(want.Inventories, moved)
		if !ok {
			if len(touched) > 0 {
				out = append(out, want.Name+" is missing")
			}
			continue
		}
		want.Inventories, is.Inventories = touched, withOnly(is.Inventories, moved)
		is.UUID, is.ParentUUID = want.UUID, want.ParentUUID
		if _, before := r.before.ProviderByName(want.Name); before || len(touched) == 0 {
			is.Traits, is.Aggregates = want.Traits, want.Aggregates
		}
		out = append(out, providertree.Change{Before: want, After: is}.Lines()...)
	}
	return out
}

func withOnly(inventories providertree.Inventories, classes map[string]bool) providertree.Inventories {
	out := providertree.Inventories{}
	for class, inv := range inventories {
		if classes[class] {
			out[class] = inv
		}
	}
	return out
}

// placesReduced returns the places of the node's tree from which a reshape removed inventory.
func placesReduced(r *reshaped, root string) []plugins.Place {
	var out []plugins.Place
	for _, id := range r.before.Subtree(root) {
		p, _ := r.before.Provider(id)
		for _, class := range sortedKeys(p.Inventories) {
			if _, still := r.after.Inventory(id, class); !still {
				out = append(out, plugins.Place{Provider: id, Class: class})
			}
		}
	}
	return out
}

func checkComplete(ctx context.Context, b *Bench) error {
	base, _, r, err := b.done(ctx)
	switch {
	case r != nil && r.upgraded != nil: // by the former release, and without a reshape
		return failLines(r.sent(base, nil), compareToNew(base, r.upgraded))
	case err != nil:
		return err
	case r.real:
		return failLines(r.sent(base, r.given), compareToNew(base, r.after))
	}
	return failLines(r.sent(base, r.given), compareMovedToNew(base, r))
}

// upgrade returns the result for a former release's tree without a reshape; nil if the driver needs
// one, or fails.
func (r *reshaped) upgrade(root string) *providertree.Tree {
	if r.withoutError != nil || r.movedSilently(root) {
		return nil
	}
	after, err := protocol.ToTree(r.without.GetTree())
	if err != nil {
		return nil
	}
	return after
}
