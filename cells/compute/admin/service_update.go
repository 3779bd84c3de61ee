// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/providertree"
)

// serviceUpdates are the bodies of PUT /os-services/{id}: before 2.53 {id} is an action, and the
// body names the service.
var serviceUpdates = api.Fields{
	{Name: "status", Since: vServiceUUID, Schema: js.Schema{js.Type("string"), js.Enum("enabled", "disabled")}},
	{Name: "host", Until: vServiceUUID - 1, Schema: api.SchemaHost},
	{Name: "binary", Until: vServiceUUID - 1, Schema: js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255)}},
	{Name: "disabled_reason", Schema: js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255)}},
	{Name: "forced_down", Since: vForcedDown, Schema: api.SchemaBoolean},
}.Steps(func(v api.Version, members js.Properties) js.Schema {
	if v >= vServiceUUID {
		return js.ClosedObject(members)
	}
	return js.ClosedObject(members, "host", "binary")
})

// updateService answers PUT /os-services/{id}. Cost: one question to all cells, and the change in
// one of them.
func (d *Deps) updateService(x *api.Exchange) error {
	if !x.AtLeast(vServiceUUID) {
		return d.updateServiceOf(x)
	}
	id := x.Param("id")
	if !providertree.IsUUID(id) {
		return osapi.BadRequest("Invalid uuid %s", osapi.Shortened(id))
	}
	if err := x.AllowOwn(ruleServicesUpdate); err != nil {
		return err
	}
	all, err := d.services(x.Context())
	if err != nil {
		return err
	}
	s := all.find(func(s *service) bool { return s.UUID == id })
	switch {
	case s == nil && len(all.down) > 0:
		return unknownService(id)
	case s == nil:
		return osapi.NotFound("Service %s could not be found.", id)
	}
	patch, err := servicePatch(x.Asked)
	if err != nil {
		return err
	}
	if err := d.checkForcedUp(x.Context(), s, patch); err != nil {
		return err
	}
	changed, err := d.patchService(x.Context(), s, patch)
	if cellclient.IsNotFound(err) {
		return osapi.NotFound("Service %s could not be found.", id)
	}
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("service", serviceView(x, &service{changed, s.cell, s.zone})))
}

// unknownService is for a service that may be in a cell that is down.
func unknownService(id string) error {
	return osapi.Errorf(http.StatusInternalServerError,
		"NovaException: Service %s is in no cell that is responding, and not all are. Try again when they are back.",
		id)
}

// servicePatch is the change that a body of 2.53 and later asks for.
func servicePatch(body *js.Object) (cellwire.ServicePatch, error) {
	var patch cellwire.ServicePatch
	reason := api.MemberString(body, "disabled_reason")
	switch api.MemberString(body, "status") {
	case "enabled":
		if reason != "" {
			return patch, osapi.BadRequest("Specifying 'disabled_reason' with status 'enabled' is invalid.")
		}
		patch.Disabled, patch.DisabledReason = new(false), new("")
	case "disabled":
		patch.Disabled, patch.DisabledReason = new(true), new(reason)
	}
	if _, has := body.Get("forced_down"); has {
		patch.ForcedDown = new(api.MemberBool(body, "forced_down", false))
	}
	if patch == (cellwire.ServicePatch{}) {
		return patch, osapi.BadRequest(
			"No updates were requested. Fields 'status' or 'forced_down' should be specified.")
	}
	return patch, nil
}

// updateServiceOf is updateService before 2.53: the last segment of the path is an action. The
// answer has what was asked for.
func (d *Deps) updateServiceOf(x *api.Exchange) error {
	if err := x.AllowOwn(ruleServicesUpdate); err != nil {
		return err
	}
	host, binary := api.MemberString(x.Asked, "host"), api.MemberString(x.Asked, "binary")
	answer := new(api.Object).Add("host", host).Add("binary", binary)
	var patch cellwire.ServicePatch
	switch action := x.Param("id"); {
	case action == "enable":
		patch.Disabled, patch.DisabledReason = new(false), new("")
		answer.Add("status", "enabled")
	case action == "disable":
		patch.Disabled, patch.DisabledReason = new(true), new("")
		answer.Add("status", "disabled")
	case action == "disable-log-reason":
		reason := api.MemberString(x.Asked, "disabled_reason")
		if reason == "" {
			return osapi.BadRequest("Missing disabled reason field")
		}
		patch.Disabled, patch.DisabledReason = new(true), new(reason)
		answer.Add("status", "disabled").Add("disabled_reason", reason)
	case action == "force-down" && x.AtLeast(vForcedDown):
		if _, has := x.Asked.Get("forced_down"); !has {
			return osapi.BadRequest("Missing forced_down field")
		}
		down := api.MemberBool(x.Asked, "forced_down", false)
		patch.ForcedDown = new(down)
		answer.Add("forced_down", down)
	default:
		return osapi.NotFound("Unknown action")
	}
	s, err := d.serviceOf(x, host, binary)
	if err != nil {
		return err
	}
	if err := d.checkForcedUp(x.Context(), s, patch); err != nil {
		return err
	}
	if _, err := d.patchService(x.Context(), s, patch); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("service", answer))
}

// checkForcedUp refuses to force a host up that has not removed yet what was evacuated from it, as
// Nova does. It costs a question to the cell of the host, for forced_down false alone.
func (d *Deps) checkForcedUp(ctx context.Context, s *service, patch cellwire.ServicePatch) error {
	if patch.ForcedDown == nil || *patch.ForcedDown {
		return nil
	}
	query := cellwire.MigrationQuery{
		SourceHost: s.Host, Type: cellwire.MigrationEvacuation, Status: cellwire.MigrationDone, Limit: 1,
	}
	done, err := gather.One(ctx, d.Gatherer, s.cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Migration, error) {
			done, err := c.Migrations(ctx, query)
			if cellclient.IsNoCall(err) { // of an older version, which evacuates nothing
				err = nil
			}
			return done, err
		})
	switch {
	case err != nil:
		return serviceFault(err)
	case len(done) > 0:
		return osapi.BadRequest(
			"Unable to force up host %s as `done` evacuation migration records remain associated with the host. "+
				"Ensure the compute service has been "+
				"restarted, allowing these records to move to `completed` before retrying this request.", s.Host)
	}
	return nil
}

// serviceOf is the service of a host that is mapped.
func (d *Deps) serviceOf(x *api.Exchange, host, binary string) (*service, error) {
	if binary != computeBinary {
		return nil, osapi.BadRequest(
			"Updating a %s service is not supported. Only nova-compute services can be updated.",
			osapi.Shortened(binary))
	}
	hosts, err := d.Store.Hosts(x.Context())
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == host })
	if at < 0 {
		return nil, osapi.NotFound("Host '%s' is not mapped to any cell", host)
	}
	cell, err := apidb.CellOf(x.Context(), d.Store, hosts[at].CellUUID)
	if err != nil {
		return nil, err
	}
	services, err := gather.One(x.Context(), d.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) ([]cellwire.Service, error) { return c.Services(ctx) })
	if err != nil {
		return nil, serviceFault(err)
	}
	for _, s := range services {
		if s.Host == host && s.Binary == binary {
			return &service{Service: s, cell: cell}, nil
		}
	}
	return nil, osapi.NotFound("Could not find binary %s on host %s.", binary, host)
}

// deleteService answers DELETE /os-services/{id}: a host that is gone is forgotten, with its nodes,
// by its cell, and by the API database if it is mapped to that cell. It is refused while the host
// has servers, as in Nova, and while its agent reports to the cell, for it would be back at once.
// The resource provider of the host stays, where Nova removes it: the agent of the host may report
// it for another cell. Cost: one question to all cells, the deletion in one of them, and the host
// mappings.
func (d *Deps) deleteService(x *api.Exchange) error {
	id, is := x.Param("id"), func(s *service) bool { return s.UUID == x.Param("id") }
	if x.AtLeast(vServiceUUID) {
		if !providertree.IsUUID(id) {
			return osapi.BadRequest("Invalid uuid %s", osapi.Shortened(id))
		}
	} else {
		number, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return osapi.BadRequest("Invalid input received: id must be an integer")
		}
		is = func(s *service) bool { return s.ID == number }
	}
	all, err := d.services(x.Context())
	if err != nil {
		return err
	}
	s := all.find(is)
	switch {
	// each cell counts from 1
	case s == nil && len(all.down) > 0, s != nil && !x.AtLeast(vServiceUUID) && len(all.down) > 0:
		return unknownService(id)
	case s == nil:
		return osapi.NotFound("Service %s not found.", id)
	case all.find(func(other *service) bool { return other != s && is(other) }) != nil:
		return osapi.BadRequest("Service id %s refers to multiple services.", id)
	}
	if err := d.removeService(x, s); err != nil {
		return err
	}
	return x.Empty(http.StatusNoContent)
}

// removeService removes a service from its cell, and its host from the API database, unless that
// has it in another cell.
func (d *Deps) removeService(x *api.Exchange, s *service) error {
	_, err := gather.One(x.Context(), d.Gatherer, s.cell,
		func(ctx context.Context, c *cellclient.Client) (struct{}, error) {
			return struct{}{}, c.DeleteService(ctx, s.UUID)
		})
	var refusal *cellwire.Error
	switch {
	case cellclient.IsNotFound(err):
		return osapi.NotFound("Service %s not found.", x.Param("id"))
	case errors.As(err, &refusal) && refusal.Code == cellwire.CodeInUse:
		return api.Conflict(
			"Unable to delete compute service that is hosting instances. Migrate or delete the instances first.")
	case cellclient.IsConflict(err):
		return api.Conflict(
			"Unable to delete compute service whose agent reports to its cell. Stop compute-agent on the host, or " +
				"take away its [cell_client], and delete the service when it is down.",
		)
	case err != nil:
		return serviceFault(err)
	}
	hosts, err := d.Store.Hosts(x.Context())
	if err == nil && slices.Contains(hosts, apidb.HostMapping{Host: s.Host, CellUUID: s.cell.UUID}) {
		if err = d.removeFromAggregates(x, s.Host); err == nil {
			err = d.Store.DeleteHost(x.Context(), s.Host)
		}
		if errors.Is(err, apidb.ErrNotFound) {
			err = nil // unmapped meanwhile
		}
	}
	if err != nil {
		return fmt.Errorf(
			"unmapping host %s, whose service is deleted (compute-agent cells manage delete-host does it, too): %w",
			s.Host, err)
	}
	return nil
}

// removeFromAggregates takes a host out of all aggregates, here and in Placement, where its node
// may stay.
func (d *Deps) removeFromAggregates(x *api.Exchange, host string) error {
	all, err := d.Store.Aggregates(x.Context())
	if err != nil {
		return err
	}
	left := false
	for i := range all {
		if !slices.Contains(all[i].Hosts, host) {
			continue
		}
		_, err := d.Store.ChangeAggregate(x.Context(), all[i].ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
			a.Hosts = without(a.Hosts, host)
			return nil
		})
		if err != nil {
			return err
		}
		left = true
	}
	if left {
		d.Scheduler.MirrorHost(x.Context(), host)
	}
	return nil
}

func (d *Deps) patchService(ctx context.Context, s *service, patch cellwire.ServicePatch) (cellwire.Service, error) {
	changed, err := gather.One(ctx, d.Gatherer, s.cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Service, error) {
			return c.PatchService(ctx, s.UUID, patch)
		})
	return changed, serviceFault(err)
}

// serviceFault is the error of a service's cell that is down. Whether a change was made is unknown
// then; it is safe to retry.
func serviceFault(err error) error {
	if errors.Is(err, gather.ErrDown) {
		return osapi.Errorf(http.StatusInternalServerError,
			"NovaException: The service's cell is not responding. Try again when it is back.").Because(err)
	}
	return err
}
