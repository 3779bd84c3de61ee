// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// claimPatience is how long a node that no driver has waits for the drivers that have not named
// their nodes yet. It is for the first start only: then the order in which drivers answer must not
// matter.
const claimPatience = 15 * time.Second

// Owner is the driver that has a node, and the name of the node.
type Owner struct{ Driver, Node string }

// Claims says which driver has which node. A recorded driver keeps its node, whether it runs or
// not. A node without a recorded driver goes to the only driver that names it, and to none if
// several do.
type Claims struct {
	// Recorded reads the owners, by the uuid of the node, from the state directory; nil: no
	// owners.
	Recorded func() map[string]Owner
	// Dry: no agent runs, and nothing is granted.
	Dry bool

	mu      sync.Mutex
	owners  map[string]Owner          // as recorded; nil: to be read
	granted map[string]Owner          // since the start, and perhaps not recorded yet
	named   map[string][]plugins.Node // by driver, when it last named them
	pending map[string]bool           // drivers that have not answered yet
	moved   chan struct{}             // closed at the next change; nil: none waits
}

// Expect says that drivers are about to be asked for their nodes.
func (c *Claims) Expect(drivers ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		c.pending = map[string]bool{}
	}
	for _, d := range drivers {
		c.pending[d] = true
	}
}

// SetNodes records which nodes a driver names, or that it could not list them.
func (c *Claims) SetNodes(driver string, nodes []plugins.Node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.named == nil {
			c.named = map[string][]plugins.Node{}
		}
		c.named[driver] = slices.Clone(nodes)
	}
	delete(c.pending, driver)
	c.notifyWaiting()
}

// notifyWaiting wakes those that wait. c.mu is held.
func (c *Claims) notifyWaiting() {
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// Claim decides about the nodes that a driver has just named. It waits only if a node has no owner
// and another driver has not answered yet since the start.
func (c *Claims) Claim(
	ctx context.Context, driver string, nodes []plugins.Node, err error,
) map[string]*resourcetracker.ClaimedError {
	c.SetNodes(driver, nodes, err)
	if err != nil {
		return nil
	}
	patience := time.NewTimer(claimPatience)
	defer patience.Stop()
	for late := false; ; {
		c.mu.Lock()
		held, undecided := map[string]*resourcetracker.ClaimedError{}, false
		for _, node := range nodes {
			e := c.checkOwner(driver, node)
			if e != nil {
				held[node.UUID] = e
			}
			undecided = undecided || c.owner(driver, node) == ""
		}
		if late || !undecided || len(c.pending) == 0 {
			c.grant(driver, nodes, held)
			c.mu.Unlock()
			return held
		}
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		select {
		case <-moved:
		case <-patience.C:
			late = true
		case <-ctx.Done():
			late = true
		}
	}
}

// Check decides about one node without granting it.
func (c *Claims) Check(driver string, node plugins.Node) *resourcetracker.ClaimedError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkOwner(driver, node)
}

// checkOwner returns why a driver does not get a node; nil: it does. c.mu is held.
func (c *Claims) checkOwner(driver string, node plugins.Node) *resourcetracker.ClaimedError {
	owner, others := c.owner(driver, node), c.others(driver, node)
	if owner == driver || owner == "" && len(others) == 0 {
		return nil
	}
	return &resourcetracker.ClaimedError{Node: node, Driver: driver, Owner: owner, Others: others}
}

// owner is the driver that has a node, "" if none: by its uuid or else by its name, since names are
// unique in Placement. c.mu is held.
func (c *Claims) owner(driver string, node plugins.Node) string {
	if c.owners == nil && c.Recorded != nil {
		c.owners = c.Recorded()
	}
	for _, known := range []map[string]Owner{c.granted, c.owners} {
		if o := known[node.UUID]; o.Driver != "" {
			return o.Driver
		}
	}
	var found []string
	for _, known := range []map[string]Owner{c.granted, c.owners} {
		for _, o := range known {
			if node.Name != "" && strings.EqualFold(o.Node, node.Name) && o.Driver != "" {
				found = append(found, o.Driver)
			}
		}
	}
	switch {
	case len(found) == 0:
		return ""
	case slices.Contains(found, driver):
		return driver
	}
	return slices.Min(found)
}

// others are the other drivers that name a node. c.mu is held.
func (c *Claims) others(driver string, node plugins.Node) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		same := func(n plugins.Node) bool { return n.UUID == node.UUID || strings.EqualFold(n.Name, node.Name) }
		if name != driver && slices.ContainsFunc(c.named[name], same) {
			out = append(out, name)
		}
	}
	return out
}

// grant keeps the nodes that are not held as the driver's. c.mu is held.
func (c *Claims) grant(driver string, nodes []plugins.Node, held map[string]*resourcetracker.ClaimedError) {
	if c.Dry {
		return
	}
	if c.granted == nil {
		c.granted = map[string]Owner{}
	}
	for _, n := range nodes {
		if held[n.UUID] == nil {
			c.granted[n.UUID] = Owner{Driver: driver, Node: n.Name}
		}
	}
}

// Names returns a driver's node of that uuid or name, as it last named them. known: it has named
// its nodes.
func (c *Claims) Names(driver, uuid, name string) (node plugins.Node, found, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, known := c.named[driver]
	for _, n := range nodes {
		if n.UUID == uuid || !found && strings.EqualFold(n.Name, name) {
			node, found = n, true
		}
	}
	return node, found, known
}

// HasOtherDriver reports whether another driver has a node.
func (c *Claims) HasOtherDriver(root, driver string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := c.owner(driver, plugins.Node{UUID: root})
	return owner != "" && owner != driver
}

// Assign makes a node a driver's.
func (c *Claims) Assign(root, name, driver string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.granted == nil {
		c.granted = map[string]Owner{}
	}
	c.granted[root] = Owner{Driver: driver, Node: name}
}

// Forget drops a node that is gone from Placement: it is no driver's any more.
func (c *Claims) Forget(root string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.granted, root)
	c.owners = nil
}

// Release forgets what a driver that is no longer wanted has named. The nodes that the state
// directory records for it stay its own.
func (c *Claims) Release(driver string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.granted, func(_ string, o Owner) bool { return o.Driver == driver })
	delete(c.named, driver)
	delete(c.pending, driver)
	c.owners = nil
	c.notifyWaiting()
}
