// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

const abilitiesOf = "SELECT abilities FROM compute_nodes WHERE host = ? AND (uuid = ? OR hypervisor_hostname = ?) " +
	"ORDER BY present DESC LIMIT 1"

// checkAbility refuses (unable) what the host of a server cannot do, and (conflict) a server
// without a host. It is for changes to call before anything is written; what the host reports later
// makes no difference to a change that was begun.
func checkAbility(ctx context.Context, db sqldb.Querier, s *cellwire.Server, ability string) error {
	if s.Host == "" {
		return serverstate.Conflict("Instance %s is not ready", s.UUID)
	}
	kept, _, err := sqldb.One(ctx, db, sqldb.Value[string], abilitiesOf, s.Host, s.NodeUUID, s.Node)
	if err == nil && !slices.Contains(strings.Split(kept, ","), ability) {
		return cellwire.Unable(s.UUID, ability)
	}
	return err
}

// CheckAbility implements [Store].
func (d *DB) CheckAbility(ctx context.Context, of cellwire.Server, ability string) error {
	return d.kit.Explain(ctx, "reading the abilities of a node from", checkAbility(ctx, d.kit.Reader, &of, ability))
}
