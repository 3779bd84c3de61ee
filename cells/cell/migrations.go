// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// postMigration begins a migration.
func (c *Cell) postMigration(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	request, err := decode[cellwire.MigrateRequest](x)
	if err != nil {
		return nil, err
	}
	m, err := c.config.Store.Migrate(x.requestContext(), uuid, request, c.moment())
	c.notifyHost(m.SourceHost, err)
	return m, err
}

// postMigrationStep does what the compute API says about a migration, and wakes both hosts.
func (c *Cell) postMigrationStep(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	step, err := decode[cellwire.MigrationStep](x)
	if err != nil {
		return nil, err
	}
	m, err := c.config.Store.Step(x.requestContext(), uuid, step, c.moment())
	c.notifyHost(m.SourceHost, err)
	if m.DestNode != "" {
		c.notifyHost(m.DestHost, err)
	}
	return m, err
}

func (c *Cell) getMigrationsDue(x *exchange) (any, error) {
	if _, err := readQuery(x); err != nil {
		return nil, err
	}
	list, err := c.config.Store.MigrationsDue(x.requestContext())
	return cellwire.MigrationsAnswer{Migrations: list}, err
}

func (c *Cell) queryMigrations(x *exchange) (any, error) {
	q, err := decode[cellwire.MigrationQuery](x)
	if err != nil {
		return nil, err
	}
	list, err := c.config.Store.Migrations(x.requestContext(), q)
	return cellwire.MigrationsAnswer{Migrations: list}, err
}

func (c *Cell) getMigrationsOf(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	list, err := c.config.Store.MigrationsOf(x.requestContext(), uuid)
	return cellwire.MigrationsAnswer{Migrations: list}, err
}

// notifyMigrationHosts wakes the hosts of a server's migrations, after a change that is about them
// too. If they are not known, all hosts are woken.
func (c *Cell) notifyMigrationHosts(ctx context.Context, uuid string) {
	list, err := c.config.Store.MigrationsOf(ctx, uuid)
	if err != nil {
		c.broadcasts.notifyAll()
		return
	}
	for _, m := range list {
		c.broadcasts.notify(m.SourceHost)
		c.broadcasts.notify(m.DestHost)
	}
}
