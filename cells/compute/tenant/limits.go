// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
)

// limitRoutes has the call about limits.
func (d *Deps) limitRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/limits", Query: &limitsQuery, Rule: ruleLimits,
			Handle: d.showLimits, Rules: []api.Rule{ruleLimitsOther}},
	}
}

// The policies of limits.
var (
	ruleLimits      = api.Rule{Name: "os_compute_api:limits", Default: api.AnyUser}
	ruleLimitsOther = api.Rule{Name: "os_compute_api:limits:other_project", Default: api.Admins}
)

// limitsQuery are the parameters of GET /limits.
var limitsQuery = api.Parameters{All: []api.Parameter{{Name: "tenant_id", Schema: api.SchemaText,
	Text: "The project whose limits are meant, for administrators."}}}

// showLimits answers GET /limits: what the project may have, and what it has. The usage is exact
// also while cells are down, where Nova's leaves out what is in them. Cost: a question to all
// cells, and when one is down a count in the API database.
func (d *Deps) showLimits(x *api.Exchange) error {
	project := x.Caller.Project
	if x.Params.Has("tenant_id") {
		project = x.Params.Last("tenant_id")
		if err := x.AllowOwn(ruleLimitsOther); err != nil {
			return err
		}
	}
	limits, usage, err := d.limitsAndUsage(x.Context(), project, "")
	if err != nil {
		return err
	}
	absolute := new(api.Object)
	for i := range quotaResources {
		r := &quotaResources[i]
		for _, name := range r.max {
			if r.existsAt(x.Version) && (name != maxImageMeta || x.Version < vNoImageMeta) {
				absolute.Add(name, r.limit(limits))
			}
		}
	}
	for i := range quotaResources {
		if r := &quotaResources[i]; r.used != "" && r.existsAt(x.Version) {
			absolute.Add(r.used, r.inUse(usage))
		}
	}
	return x.JSON(http.StatusOK, new(api.Object).
		Add("limits", new(api.Object).Add("rate", api.List{}).Add("absolute", absolute)))
}

// The microversions of limits and quotas.
const (
	vNoNetworkQuotas api.Version = 36 // nothing of networks any more
	vNoImageMeta     api.Version = 39 // no maxImageMeta among limits
)

// quotaResource is something that there are quotas for. Only servers, cores, memory, metadata,
// server groups and key pairs exist here; the others have limits because clients look for them, and
// nothing of them is ever used.
type quotaResource struct {
	name string
	// fallback is Nova's default, where the configuration has none.
	fallback int64
	// until is the last microversion that has it, shown and in the body of a quota set; 0: all do.
	until api.Version
	// max are its names among limits, used that of what is used of it; "" and nil for none.
	max  []string
	used string
}

// quotaResources are in the order that limits have. Quota sets have them by name.
var quotaResources = []quotaResource{
	{name: "instances", fallback: 10, max: []string{"maxTotalInstances"}, used: "totalInstancesUsed"},
	{name: "cores", fallback: 20, max: []string{"maxTotalCores"}, used: "totalCoresUsed"},
	{name: "ram", fallback: 50 << 10, max: []string{"maxTotalRAMSize"}, used: "totalRAMUsed"},
	metadataItems,
	{name: "injected_files", fallback: 5, until: api.VNoInjectedFiles - 1, max: []string{"maxPersonality"}},
	{name: "injected_file_content_bytes", fallback: 10 << 10, until: api.VNoInjectedFiles - 1,
		max: []string{"maxPersonalitySize"}},
	{name: "injected_file_path_bytes", fallback: 255, until: api.VNoInjectedFiles - 1},
	keyPairs,
	serverGroups,
	{name: "server_group_members", fallback: 10, max: []string{"maxServerGroupMembers"}},
	{name: "fixed_ips", fallback: -1, until: vNoNetworkQuotas - 1},
	{name: "floating_ips", fallback: -1, until: vNoNetworkQuotas - 1, max: []string{"maxTotalFloatingIps"},
		used: "totalFloatingIpsUsed"},
	{name: "security_groups", fallback: -1, until: vNoNetworkQuotas - 1, max: []string{"maxSecurityGroups"},
		used: "totalSecurityGroupsUsed"},
	{name: "security_group_rules", fallback: -1, until: vNoNetworkQuotas - 1, max: []string{"maxSecurityGroupRules"}},
}

// metadataItems are how much metadata a server may have.
var metadataItems = quotaResource{name: "metadata_items", fallback: 128, max: []string{"maxServerMeta", maxImageMeta}}

// MetadataLimit is how many items of metadata a server of a project may have; -1 is no limit.
func (d *Deps) MetadataLimit(ctx context.Context, project string) (int64, error) {
	limits, err := d.Quota.Limits(ctx, project)
	return metadataItems.limit(limits), err
}

// serverGroups is how many server groups a project may have.
var serverGroups = quotaResource{name: "server_groups", fallback: 10, max: []string{"maxServerGroups"},
	used: "totalServerGroupsUsed"}

// keyPairs is how many key pairs a user may have. As in Nova, none counts as used by a project.
var keyPairs = quotaResource{name: "key_pairs", fallback: 100, max: []string{"maxTotalKeypairs"}}

// maxImageMeta is the limit on metadata of images, which Nova passed on until 2.38.
const maxImageMeta = "maxImageMeta"

// existsAt reports whether a microversion shows the resource.
func (r *quotaResource) existsAt(v api.Version) bool { return r.until == 0 || v <= r.until }

// limit returns the limit in a quota set, or the default of the resource.
func (r *quotaResource) limit(q apidb.QuotaSet) int64 {
	if n, has := q[r.name]; has {
		return n
	}
	return r.fallback
}

// quotaUsage is what a project has.
type quotaUsage struct {
	cellwire.Usage
	serverGroups int64
}

// inUse is how much of it a project has.
func (r *quotaResource) inUse(u quotaUsage) int64 {
	switch r.name {
	case "server_groups":
		return u.serverGroups
	case "instances":
		return u.Instances
	case "cores":
		return u.Cores
	case "ram":
		return u.RAM
	}
	return 0
}

// limitsAndUsage are the limits of a project and what it has, or a user of it ("": all), which is
// exact also while cells are down.
func (d *Deps) limitsAndUsage(ctx context.Context, project, user string) (apidb.QuotaSet, quotaUsage, error) {
	limits, err := d.Quota.Limits(ctx, project)
	if err != nil {
		return nil, quotaUsage{}, err
	}
	usage, err := d.quotaUsage(ctx, project, user)
	return limits, usage, err
}

func (d *Deps) quotaUsage(ctx context.Context, project, user string) (usage quotaUsage, err error) {
	if usage.Usage, _, err = d.Quota.Usage(ctx, project, user); err == nil {
		usage.serverGroups, err = d.Store.CountServerGroups(ctx, project, user)
	}
	return usage, err
}
