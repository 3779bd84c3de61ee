// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"sync"

	"github.com/compute-agent/compute-agent/plugins"
)

// claims says which driver reports which node. The first to name a node has it.
type claims struct {
	mu    sync.Mutex
	owner map[string]string // uuid of the node -> driver
}

// claim gives a node to a driver, or says who has it.
func (c *claims) claim(node plugins.Node, driver string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, taken := c.owner[node.UUID]; taken && owner != driver {
		return fmt.Errorf("node %s (%s) is reported by another driver already, %s: they would undo each other's inventory at every pass; "+
			"one of them must go from the configuration, or have a node of its own", node.Name, node.UUID, owner)
	}
	if c.owner == nil {
		c.owner = map[string]string{}
	}
	c.owner[node.UUID] = driver
	return nil
}

// elsewhere reports whether another driver has a node.
func (c *claims) elsewhere(root, driver string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, taken := c.owner[root]
	return taken && owner != driver
}

// release takes all nodes from a driver that is no longer wanted.
func (c *claims) release(driver string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.owner, func(_, owner string) bool { return owner == driver })
}
