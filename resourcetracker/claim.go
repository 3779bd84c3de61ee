// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// ClaimedError says that a driver does not get a node that it names, because another driver has the
// node or names it too. Nothing that this driver reports for the node is written.
type ClaimedError struct {
	Node plugins.Node
	// Driver is the driver that does not get the node.
	Driver string
	// Owner is the driver that has the node by the state directory, "" if none has.
	Owner string
	// Others are the other drivers that name the node now, sorted.
	Others []string
}

func (e *ClaimedError) Error() string {
	node := fmt.Sprintf("node %s (%s)", e.Node.Name, e.Node.UUID)
	switch {
	case e.Owner == "":
		drivers := append([]string{e.Driver}, e.Others...)
		slices.Sort(drivers)
		return fmt.Sprintf(
			"%s is named by the drivers %s, and none of them is recorded as its owner: nothing is written for it",
			node, strings.Join(drivers, " and "))
	case slices.Contains(e.Others, e.Owner):
		return fmt.Sprintf(
			"%s belongs to driver %s, and driver %s names it too: what driver %s reports for it is not written",
			node, e.Owner, e.Driver, e.Driver)
	}
	return fmt.Sprintf("%s belongs to driver %s, which does not name it now, and driver %s names it: what driver %s "+
		"reports for it is not written",
		node, e.Owner, e.Driver, e.Driver)
}

// Hint is the hint for the operator.
func (e *ClaimedError) Hint() string {
	give := fmt.Sprintf("compute-agent node give %s --to ", e.Node.Name)
	if e.Owner == "" {
		return fmt.Sprintf(
			"assign it to one driver with `%sDRIVER`, and remove the node from the configuration of the other", give)
	}
	return fmt.Sprintf("remove the node from the configuration of driver %s; or, to assign it to driver %s: `%s%s`",
		e.Driver, e.Driver, give, e.Driver)
}

// Contested is a node that the driver names and does not get, because another driver has it or
// names it too.
type Contested struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid"`
	Owner string `json:"owner,omitempty"`
	Error string `json:"error"`
	Hint  string `json:"remedy"`
}

func contestedNodes(held []*ClaimedError) []Contested {
	var out []Contested
	for _, e := range held {
		out = append(out, Contested{Name: e.Node.Name,
			UUID: e.Node.UUID, Owner: e.Owner, Error: e.Error(), Hint: e.Hint()})
	}
	return out
}

// claim requests the nodes that the driver has named, and returns those that it gets and those that
// it does not. An error of the driver is passed on, so that no other driver waits for this one.
func (t *Tracker) claim(
	ctx context.Context, nodes []plugins.Node, err error,
) (granted []plugins.Node, held []*ClaimedError) {
	if t.config.Claim == nil {
		return nodes, nil
	}
	refused := t.config.Claim(ctx, nodes, err)
	granted = make([]plugins.Node, 0, len(nodes))
	for _, n := range nodes {
		if e := refused[n.UUID]; e != nil {
			held = append(held, e)
		} else {
			granted = append(granted, n)
		}
	}
	return granted, held
}

// BetweenPasses runs f between two passes of this tracker.
func (t *Tracker) BetweenPasses(ctx context.Context, f func() error) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	defer t.end()
	return f()
}
