// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Client reads and writes the provider trees of one agent's compute nodes. Its methods may be
// called from several goroutines; those for one node run one at a time.
type Client struct {
	placement *placementclient.Client
	config    Config
	refresh   atomic.Int64 // nanoseconds; 0: never

	mu      sync.Mutex
	nodes   map[string]*node // by uuid of the root
	ensured map[string]bool  // custom classes and traits that this client made sure of
	unknown map[string]bool  // standard traits that this Placement is too old for
}

// node is what the client knows of one compute node's tree.
type node struct {
	known atomic.Pointer[snapshot] // a copy of tree, for readers that must not wait
	// the next Tree compares, however recent the last comparison is
	recheck atomic.Bool

	mu       sync.Mutex
	tree     *providertree.Tree // nil: nothing known
	stale    map[string]bool    // providers whose cached state may be wrong after a failed write
	verified time.Time          // when the tree was last compared with Placement
	jitter   float64            // the jitter of the next comparison, 0 <= jitter < 1
}

// snapshot is a tree as it was read last, and as it was written since.
type snapshot struct {
	tree *providertree.Tree
	read time.Time // when it was last compared with Placement
}

// Microversion is what every request asks for: 1.37 is the newest whose allocations can be read and
// written back as they are (1.38 wants a consumer type that older consumers do not have), and the
// first that lets a provider move.
const Microversion = "1.37"

// Config says how to reach Placement, and how often.
type Config struct {
	// Config configures the Placement client; its Microversion is always [Microversion].
	placementclient.Config
	// RefreshInterval is how long a cached tree is used before it is compared with Placement. Zero:
	// it is not compared again.
	RefreshInterval time.Duration
	// Jitter returns random numbers, 0 <= x < 1. Nil: math/rand.
	Jitter func() float64
	// ReshapeLog is called for each reshape before it is posted and after. Nil: nothing is.
	ReshapeLog ReshapeLog
}

// New checks the configuration and returns a client. It makes no request: Placement may come up
// later than the agent.
func New(cfg Config) (*Client, error) {
	cfg.Microversion = Microversion
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	placement, err := placementclient.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	c := &Client{placement: placement, config: cfg,
		nodes: map[string]*node{}, ensured: map[string]bool{}, unknown: map[string]bool{}}
	c.SetRefreshInterval(cfg.RefreshInterval)
	return c, nil
}

// SetRefreshInterval changes [Config].RefreshInterval.
func (c *Client) SetRefreshInterval(d time.Duration) { c.refresh.Store(int64(d)) }

// CloseIdle closes the idle connections; the client stays usable.
func (c *Client) CloseIdle() { c.placement.CloseIdle() }

// Endpoint returns the URL of Placement. It makes no request: the URL is empty until the catalog
// was read.
func (c *Client) Endpoint() string { return c.placement.Endpoint() }

// Probe opens a connection to Placement and closes it, once it is known where Placement is. It
// makes no request. Errors: [ErrUnavailable].
func (c *Client) Probe(ctx context.Context) error {
	if c.placement.Endpoint() == "" {
		return nil
	}
	return c.placement.Probe(ctx)
}

// Tree returns what Placement says of a compute node: its root and all providers below it, and
// beside them, as roots of their own, the providers that share something with one of these through
// an aggregate. A node that Placement does not have yet comes back as a lone root with
// [providertree.NoGeneration]; the plan made from it creates it.
//
// The tree is a copy that the caller may edit. Without changes on either side it costs no request
// within the refresh interval (a connection is opened and closed, see [Config].Dial), one GET after
// it, one more for each 100 aggregates that the providers are in, and three more for each provider
// whose generation moved.
//
// Errors: [ErrIdentity] if Placement has this name under another uuid, or this uuid under another
// name or parent; those of [RequestError] otherwise.
func (c *Client) Tree(ctx context.Context, uuid, name string) (*providertree.Tree, error) {
	n := c.node(uuid)
	n.mu.Lock()
	defer n.mu.Unlock()
	// Up to a tenth earlier, by chance, so that the looks of a thousand agents spread out.
	refresh := time.Duration(c.refresh.Load())
	due := refresh - time.Duration(n.jitter*float64(refresh)/10)
	if n.tree != nil && len(n.stale) == 0 && !n.recheck.Load() && c.placement.VersionChecked(ctx) &&
		(refresh == 0 || c.config.Now().Sub(n.verified) < due) {
		if err := c.placement.Probe(ctx); err != nil {
			return nil, err
		}
		return n.tree.Clone(), nil
	}
	if err := c.placement.CheckVersion(ctx); err != nil {
		return nil, err
	}
	asked := n.recheck.Swap(false) // before the read: one that is asked for during it is another
	tree, err := c.read(ctx, n, uuid, name)
	if err != nil {
		if asked {
			n.recheck.Store(true)
		}
		return nil, err
	}
	n.tree, n.stale, n.verified = tree, nil, c.config.Now()
	n.jitter = c.config.Jitter()
	n.publish()
	return tree.Clone(), nil
}

// publish stores a copy of the tree for Known. n.mu is held.
func (n *node) publish() { n.known.Store(&snapshot{tree: n.tree.Clone(), read: n.verified}) }

// Recheck makes the next [Client.Tree] of every node compare the tree with Placement, whatever the
// refresh interval.
func (c *Client) Recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.recheck.Store(true)
	}
}

// Requests returns how many requests were sent so far, each try counted, and how many of them were
// writes.
func (c *Client) Requests() (all, writes int64) {
	return c.placement.Requests()
}

// Known returns the cached tree of a node, and when it was last compared with Placement, without a
// request and without waiting for other calls about the node; nil if nothing is cached yet.
func (c *Client) Known(uuid string) (*providertree.Tree, time.Time) {
	if last := c.node(uuid).known.Load(); last != nil {
		return last.tree.Clone(), last.read
	}
	return nil, time.Time{}
}

func (c *Client) node(uuid string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[uuid]
	if n == nil {
		n = &node{}
		c.nodes[uuid] = n
	}
	return n
}

// read lists the tree and reads what moved since n.tree.
func (c *Client) read(ctx context.Context, n *node, uuid, name string) (*providertree.Tree, error) {
	list, err := c.placement.ProvidersInTree(ctx, uuid)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return c.newNode(ctx, uuid, name)
	}
	providers := make([]providertree.Provider, 0, len(list))
	for _, rp := range list {
		p, err := c.fill(ctx, n, rp)
		if err != nil {
			return nil, err
		}
		providers = append(providers, p)
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(providers); err != nil {
		return nil, fmt.Errorf("%w: the tree of %s (%s) is invalid: %w", ErrUnexpected, name, uuid, err)
	}
	if err := checkIdentity(tree, uuid, name); err != nil {
		return nil, err
	}
	return tree, c.addSharing(ctx, n, tree)
}

// fill turns a provider of a list into a whole one: from the cache if its generation did not move,
// else by three GETs. What the three say is consistent only if nothing was written meanwhile, so
// they must agree on the generation.
func (c *Client) fill(ctx context.Context, n *node, rp wire.ResourceProvider) (providertree.Provider, error) {
	p := providertree.Provider{UUID: rp.UUID, Name: rp.Name, Generation: rp.Generation}
	if rp.Parent != nil {
		p.ParentUUID = *rp.Parent
	}
	if n.tree != nil && !n.stale[rp.UUID] {
		if old, known := n.tree.Provider(rp.UUID); known && old.Generation == rp.Generation {
			p.Inventories, p.Traits, p.Aggregates, p.Resources = old.Inventories, old.Traits,
				old.Aggregates, old.Resources
			return p, nil
		}
	}
	const tries = 3
	for range tries {
		complete, err := c.fillOnce(ctx, &p)
		if errors.Is(err, ErrNotFound) {
			return p, fmt.Errorf("%w: it was deleted while it was read: %w", ErrConflict, err)
		}
		if err != nil || complete {
			return p, err
		}
	}
	return p, &RequestError{
		Method: http.MethodGet, Path: "/resource_providers/" + p.UUID, Kind: ErrConflict,
		Detail: fmt.Sprintf("it was written %d times while it was read", tries),
	}
}

// fillOnce reads inventories, traits and aggregates and reports whether all are of one generation.
func (c *Client) fillOnce(ctx context.Context, p *providertree.Provider) (bool, error) {
	path := "/resource_providers/" + p.UUID
	var inventories wire.Inventories
	var traits wire.ProviderTraits
	var aggregates wire.AggregateList
	for _, get := range []struct {
		what string
		out  any
	}{{"/inventories", &inventories}, {"/traits", &traits}, {"/aggregates", &aggregates}} {
		if err := c.placement.Do(ctx, http.MethodGet, path+get.what, nil, get.out); err != nil {
			return false, err
		}
	}
	p.Inventories = inventoriesFromWire(inventories.Inventories)
	p.Traits, p.Aggregates = traits.Traits, aggregates.Aggregates
	if aggregates.Generation == nil {
		return false, missingGeneration(http.MethodGet, path+"/aggregates")
	}
	p.Generation = *aggregates.Generation
	return inventories.Generation == p.Generation && traits.Generation == p.Generation, nil
}

// newNode is the tree of a node that Placement does not know: unless it knows the name.
func (c *Client) newNode(ctx context.Context, uuid, name string) (*providertree.Tree, error) {
	list, err := c.placement.Providers(ctx, url.Values{"name": {name}})
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		return nil, fmt.Errorf(
			"%w: resource provider %q has uuid %s there, but this node's identity is %s; if this host was "+
				"reinstalled, adopt it (compute-agent adopt --node %[5]s --uuid %[3]s), and if the provider is a "+
				"leftover, delete it (openstack resource provider delete %[3]s)",
			ErrIdentity, list[0].Name, list[0].UUID, uuid, name)
	}
	tree := &providertree.Tree{}
	if err := tree.AddRoot(uuid, name); err != nil {
		return nil, err
	}
	return tree, nil
}

func checkIdentity(tree *providertree.Tree, uuid, name string) error {
	root, found := tree.Provider(uuid)
	switch {
	case !found:
		return fmt.Errorf("%w: the tree of %s does not contain it", ErrUnexpected, uuid)
	case root.ParentUUID != "":
		return fmt.Errorf("%w: resource provider %s is a child of %s there, and a compute node must be a root",
			ErrIdentity, uuid, root.ParentUUID)
	case root.Name != name:
		return fmt.Errorf(
			"%w: resource provider %s is named %q there, but this node is named %q; if the host was renamed, rename "+
				"the provider "+
				"too (compute-agent adopt --rename --node %[4]s --uuid %[2]s) or restore the host's old name "+
				"(agent.host); if this is another host, it uses a "+
				"copied compute_id file: remove it", ErrIdentity, uuid, root.Name, name)
	}
	return nil
}

// Usages reads how much of each inventory of a provider is allocated, by resource class. One GET,
// never cached.
func (c *Client) Usages(ctx context.Context, provider string) (providertree.Resources, error) {
	var out wire.ProviderUsages
	if err := c.placement.Do(ctx, http.MethodGet, "/resource_providers/"+provider+"/usages", nil, &out); err != nil {
		return nil, err
	}
	return out.Usages, nil
}

// ZeroRatio stands for an allocation ratio of 0, with which an administrator closes an inventory.
// In a tree a ratio of 0 is the default, so Placement's 0 is read as, and written from, the least
// number above it.
const ZeroRatio = math.SmallestNonzeroFloat64

func inventoriesFromWire(inventories map[string]wire.Inventory) providertree.Inventories {
	out := make(providertree.Inventories, len(inventories))
	for class, i := range inventories {
		if i.AllocationRatio == 0 {
			i.AllocationRatio = ZeroRatio
		}
		out[class] = providertree.Inventory(i)
	}
	return out
}

func toWire(inventories providertree.Inventories) map[string]wire.Inventory {
	out := make(map[string]wire.Inventory, len(inventories))
	for class, i := range inventories {
		i = i.Normalize()
		if i.AllocationRatio == ZeroRatio {
			i.AllocationRatio = 0
		}
		out[class] = wire.Inventory(i)
	}
	return out
}

// canonical is a uuid of an answer in the form that a tree keeps: Placement gives it back as it was
// written. The Placement client refuses answers in which something else stands for one.
func canonical(uuid string) string {
	out, _ := providertree.CanonicalUUID(uuid)
	return out
}

// markStale notes that providers must be read again before the next plan.
func (n *node) markStale(uuids ...string) {
	if n.stale == nil {
		n.stale = map[string]bool{}
	}
	for _, u := range slices.Compact(uuids) {
		n.stale[u] = true
	}
}
