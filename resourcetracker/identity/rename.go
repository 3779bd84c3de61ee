// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// UnknownServers is given by an operator in place of the number of servers on a host if the cell
// does not answer.
const UnknownServers = "unknown"

// Rename is a provider and its new name.
type Rename struct {
	Provider providertree.Provider
	Name     string
}

// PlanRenames returns the renames that follow from a new name of the root of a tree: those of the
// root and of all providers below it that are named after it. A provider that has its new name
// already, after a crash, is left out. Errors: an [*Error] for a name that is taken or not valid.
func PlanRenames(
	ctx context.Context, placement *reportclient.Client, tree *providertree.Tree, root, from, to string,
) (renames []Rename, err error) {
	if strings.HasPrefix(to, from+"_") {
		// After a crash it would be unknown which of the providers have their new name already.
		return nil, &Error{
			Problem: fmt.Sprintf(
				"the new name %s begins with the old one and an underscore, as the names of the providers below %s do",
				to, from),
			Hint: "give the host another name",
		}
	}
	for _, uuid := range tree.Subtree(root) {
		p, _ := tree.Provider(uuid)
		name := p.Name
		switch rest, after := strings.CutPrefix(p.Name, from+"_"); {
		case uuid == root:
			name = to
		case after:
			name = to + "_" + rest
		}
		if name == p.Name {
			continue
		}
		if err := providertree.ValidateProviderName(name); err != nil {
			return nil, &Error{
				Problem: fmt.Sprintf("resource provider %s (%s) cannot be renamed: %v", p.Name, p.UUID, err),
				Hint:    "give the host a shorter name",
			}
		}
		// Names are unique in all of Placement, not only in a tree.
		other, taken, err := placement.FindNamesake(ctx, name)
		if err != nil {
			return nil, err
		}
		if taken && other != p.UUID {
			return nil, &Error{
				Problem: fmt.Sprintf("resource provider %s (%s) cannot be renamed: %s has the name %s",
					p.Name, p.UUID, other, name),
				Hint: "rename or delete that one first (openstack resource provider set --name NAME UUID)",
			}
		}
		renames = append(renames, Rename{p, name})
	}
	return renames, nil
}

// RenameProviders gives providers their new names, one after the other.
func RenameProviders(ctx context.Context, placement *reportclient.Client, renames []Rename) error {
	for _, r := range renames {
		if err := placement.RenameProvider(ctx, r.Provider, r.Name); err != nil {
			return fmt.Errorf(
				"renaming resource provider %s (%s) to %s: %w; run the same command again: it continues "+
					"where it stopped",
				r.Provider.Name, r.Provider.UUID, r.Name, err)
		}
	}
	return nil
}
