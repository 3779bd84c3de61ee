// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// FindByName returns the uuid of the resource provider of a name; ok is false if there is none. One
// GET, nothing is cached.
func (c *Client) FindByName(ctx context.Context, name string) (uuid string, ok bool, err error) {
	list, err := c.findByName(ctx, name)
	for _, rp := range list {
		if rp.Name == name {
			return canonical(rp.UUID), true, err
		}
	}
	return "", false, err
}

// FindNamesake returns the uuid of the resource provider that has a name, or one that Placement
// takes for the same ([providertree.SameName]), so that no other provider can get the name. ok is
// false if there is none. One GET, nothing is cached.
func (c *Client) FindNamesake(ctx context.Context, name string) (uuid string, ok bool, err error) {
	list, err := c.findByName(ctx, name)
	if len(list) == 0 {
		return "", false, err
	}
	return canonical(list[0].UUID), true, err
}

// findByName lists those whose names are the same.
func (c *Client) findByName(ctx context.Context, name string) ([]wire.ResourceProvider, error) {
	if err := c.placement.CheckVersion(ctx); err != nil {
		return nil, err
	}
	list, err := c.placement.Providers(ctx, url.Values{"name": {name}})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(rp wire.ResourceProvider) bool {
		return !providertree.SameName(rp.Name, name) // databases may compare names without regard to case
	}), nil
}

// TreeOf reads the whole tree that has a provider from Placement, without the cache and without
// checking identity. Sharing providers that are not part of it are left out.
//
// Errors: [ErrNotFound] if Placement has no such provider; [ErrConflict] if it was written to while
// it was read.
//
// Cost: one GET, and three for each provider.
func (c *Client) TreeOf(ctx context.Context, uuid string) (*providertree.Tree, error) {
	if err := c.placement.CheckVersion(ctx); err != nil {
		return nil, err
	}
	list, err := c.placement.ProvidersInTree(ctx, uuid)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: there is no resource provider %s", ErrNotFound, uuid)
	}
	providers := make([]providertree.Provider, 0, len(list))
	for _, rp := range list {
		p, err := c.fill(ctx, &node{}, rp)
		if err != nil {
			return nil, err
		}
		providers = append(providers, p)
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(providers); err != nil {
		return nil, fmt.Errorf("%w: the tree of %s is invalid: %w", ErrUnexpected, uuid, err)
	}
	if !tree.Exists(uuid) {
		return nil, fmt.Errorf("%w: the tree of %s does not contain it", ErrUnexpected, uuid)
	}
	return tree, nil
}

// ConsumersOf reads the allocations of one provider: by consumer, then by resource class. One GET,
// nothing is cached.
func (c *Client) ConsumersOf(ctx context.Context, provider string) (map[string]providertree.Resources, error) {
	held, err := c.placement.AllocationsOf(ctx, provider)
	if err != nil {
		return nil, err
	}
	consumers := make(map[string]providertree.Resources, len(held))
	for consumer, a := range held {
		consumers[consumer] = a.Resources
	}
	return consumers, nil
}

// RenameProvider gives another name to a provider that was read before. If the provider has the
// name already, nothing is written, so that a call can be repeated.
//
// Placement takes no generation with a new name. So the provider is read once more right before the
// write, which is not made if its name or generation is another one than in before.
//
// Errors: [ErrConflict] if the provider has changed; [ErrDuplicate] if another provider has the
// name; [ErrNotFound].
//
// Cost: one GET and one PUT.
func (c *Client) RenameProvider(ctx context.Context, before providertree.Provider, name string) error {
	path := "/resource_providers/" + before.UUID
	var now wire.ResourceProvider
	if err := c.placement.Do(ctx, http.MethodGet, path, nil, &now); err != nil {
		return err
	}
	switch {
	case now.Name == name:
		return nil
	case now.Name != before.Name || now.Generation != before.Generation:
		return &RequestError{Method: http.MethodPut, Path: path, Unsent: true, Kind: ErrConflict,
			Detail: "it changed since it was read"}
	}
	var out wire.ResourceProvider
	if err := c.placement.Do(ctx, http.MethodPut, path, wire.ProviderUpdate{Name: name}, &out); err != nil {
		return err
	}
	if out.Name != name {
		return &RequestError{Method: http.MethodPut, Path: path, Status: http.StatusOK, Kind: ErrUnexpected,
			Detail: fmt.Sprintf("its name is then %q, not %q", out.Name, name)}
	}
	return nil
}

// RemoveProvider deletes a provider that was read before, if it has not changed since and no
// consumer has allocations of it. It succeeds if Placement does not have the provider.
//
// Placement takes no generation with a DELETE. It refuses to delete a provider that has allocations
// or children, also if they were created after the last read here. Only a change of inventory,
// traits or aggregates after that read is not noticed: it is lost with the provider.
//
// Errors: [ErrConflict] if the provider has changed; [ErrProviderInUse].
//
// Cost: two GETs and one DELETE.
func (c *Client) RemoveProvider(ctx context.Context, before providertree.Provider) error {
	path := "/resource_providers/" + before.UUID
	var now wire.ResourceProvider
	err := c.placement.Do(ctx, http.MethodGet, path, nil, &now)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if now.Name != before.Name || now.Generation != before.Generation {
		return &RequestError{Method: http.MethodDelete, Path: path, Unsent: true, Kind: ErrConflict,
			Detail: "it changed since it was read"}
	}
	consumers, err := c.ConsumersOf(ctx, before.UUID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if len(consumers) > 0 {
		return &RequestError{
			Method: http.MethodDelete,
			Path:   path,
			Unsent: true,
			Kind:   ErrProviderInUse,
			Detail: fmt.Sprintf("%d consumers have allocations of it now", len(consumers)),
		}
	}
	if err := c.placement.Do(ctx, http.MethodDelete, path, nil, nil); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Forget drops what is known of a compute node's tree: the next Tree reads it whole.
func (c *Client) Forget(root string) {
	n := c.node(root)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tree, n.stale = nil, nil
	n.known.Store(nil)
}

// aggregatesPerQuery keeps the URL of a query below half of the 8 KiB that web servers take.
const aggregatesPerQuery = 100

// addSharing puts the providers that share something with the tree's (they are in an aggregate with
// one of them, and have the trait MISC_SHARES_VIA_AGGREGATE) beside it, each as a root of its own,
// wherever it is in its own tree. Each is read once, however many aggregates lead to it; what
// shares with them in turn is not looked for.
//
// They are external: Placement has them for several hosts, so they are shown, written to only where
// an operator's provider.yaml says so, and never deleted.
//
// Cost: nothing if no provider of the tree is in an aggregate; else one GET for each 100
// aggregates, and three for each sharing provider whose generation moved.
func (c *Client) addSharing(ctx context.Context, n *node, tree *providertree.Tree) error {
	var aggregates []string
	for p := range tree.All() {
		aggregates = append(aggregates, p.Aggregates...)
	}
	slices.Sort(aggregates)
	for chunk := range slices.Chunk(slices.Compact(aggregates), aggregatesPerQuery) {
		list, err := c.placement.Providers(ctx,
			url.Values{"required": {providertree.TraitSharesViaAggregate},
				"member_of": {"in:" + strings.Join(chunk, ",")}})
		if err != nil {
			return err
		}
		for _, rp := range list {
			if tree.Exists(canonical(rp.UUID)) {
				continue // found before, or one of the node's own
			}
			p, err := c.fill(ctx, n, rp)
			switch {
			case errors.Is(err, ErrNotFound):
				continue // deleted meanwhile
			// so many hosts claim of it that it never stood still; the next look reads it again
			case errors.Is(err, ErrConflict):
				p.Generation = rp.Generation
			case err != nil:
				return err
			}
			p.ParentUUID = ""
			if err := tree.Populate([]providertree.Provider{p}); err != nil {
				c.config.Logger.Warn().Str("resource_provider", rp.UUID).Err(err).
					Msg(
						"Ignoring an invalid sharing provider: the driver does not see it. Correct it with the " +
							"openstack command.")
			}
		}
	}
	return nil
}
