// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Deps are all that the calls of this package may touch.
type Deps struct {
	Store Store
	Quota Quotas
	// MaxLimit is how many records a list has at most.
	MaxLimit int
	// MemberPrefixes are the prefixes of extra specs that the scheduler reads beside Nova's.
	MemberPrefixes []string
	// Unread limits what is logged about boots by flavors with extra specs that nothing reads, by
	// flavor and extra spec.
	Unread *osapi.LogLimiter
}

// Store is what the calls need of the API database.
type Store interface {
	Flavor(ctx context.Context, id string) (apidb.Flavor, error)
	Flavors(ctx context.Context) ([]apidb.Flavor, error)
	CreateFlavor(ctx context.Context, f apidb.Flavor) error
	ChangeFlavor(ctx context.Context, id string, change func(*apidb.Flavor) error) (apidb.Flavor, error)
	DeleteFlavor(ctx context.Context, id string) error

	KeyPair(ctx context.Context, userID, name string) (apidb.KeyPair, error)
	KeyPairs(ctx context.Context, userID, after string, limit int) ([]apidb.KeyPair, error)
	CreateKeyPair(ctx context.Context, k apidb.KeyPair, check func(has int64) error) (apidb.KeyPair, error)
	DeleteKeyPair(ctx context.Context, userID, name string) error

	ServerGroup(ctx context.Context, uuid string) (apidb.ServerGroup, error)
	ServerGroups(ctx context.Context, projectID string) ([]apidb.ServerGroup, error)
	CreateServerGroup(ctx context.Context, g apidb.ServerGroup, check func(has int64) error) (apidb.ServerGroup, error)
	DeleteServerGroup(ctx context.Context, uuid string) error
	CountServerGroups(ctx context.Context, projectID, userID string) (int64, error)

	SetQuotas(ctx context.Context, projectID string, q apidb.QuotaSet) error
	DeleteQuotas(ctx context.Context, projectID string) error
}

// Quotas is what the calls need of a *quota.Quotas.
type Quotas interface {
	// Limits returns the limits of a project, with the defaults for what is not set.
	Limits(ctx context.Context, project string) (apidb.QuotaSet, error)
	// Usage is what a project has, or a user of it ("": all), exact in an outage as well, and the
	// cells that are down.
	Usage(ctx context.Context, project, user string) (cellwire.Usage, []apidb.Cell, error)
	// Defaults are the limits of projects for which nothing is set.
	Defaults() apidb.QuotaSet
}

// Routes are the calls of this package.
func (d *Deps) Routes() []api.Route {
	return slices.Concat(d.flavorRoutes(), d.flavorManageRoutes(), d.extraSpecRoutes(), d.limitRoutes(),
		d.quotaSetRoutes(), d.serverGroupRoutes(), d.keyPairRoutes())
}
