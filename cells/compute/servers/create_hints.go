// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// mostHinted is how many servers a hint names at most.
const mostHinted = 100

// requestedHints puts the scheduler hints of a request into the specification of its servers.
func (d *Deps) requestedHints(x *api.Exchange, body *js.Object, spec *apidb.RequestSpec) (err error) {
	hints := api.MemberObject(body, hintsMember)
	if hints == nil {
		hints = api.MemberObject(body, hintsMemberLong)
	}
	if hints == nil {
		return nil
	}
	if spec.Group, err = d.hintedGroup(x, api.MemberString(hints, "group")); err != nil {
		return err
	}
	if spec.SameHost, err = d.hintedServers(x, hints, "same_host"); err != nil {
		return err
	}
	spec.DifferentHost, err = d.hintedServers(x, hints, "different_host")
	return err
}

// hintedGroup is the server group that the hint group names, "" for none.
func (d *Deps) hintedGroup(x *api.Exchange, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	g, err := d.Tenant.ServerGroup(x, id)
	if err != nil {
		if refusal := (*osapi.Error)(nil); errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
			err = osapi.BadRequest("Instance group %s could not be found.", id)
		}
		return "", err
	}
	return g.UUID, nil
}

// hintedServers are those that a hint names, one or a list. Nova takes any uuid; here the caller
// has to see the servers, so that a hint tells nothing of those of others, and one that cannot be
// followed is not left out.
func (d *Deps) hintedServers(x *api.Exchange, hints *js.Object, name string) ([]string, error) {
	given, _ := hints.Get(name)
	items, _ := given.([]any)
	if one, is := given.(string); is {
		items = []any{one}
	}
	switch {
	case len(items) == 0:
		return nil, nil
	case len(items) > mostHinted:
		return nil, osapi.BadRequest("os:scheduler_hints: %s names more than %d servers.", name, mostHinted)
	}
	missing := func(uuid string) error {
		return osapi.BadRequest("os:scheduler_hints: the server %s of %s could not be found.",
			osapi.Shortened(uuid), name)
	}
	uuids := make([]string, len(items))
	for i, item := range items {
		if uuids[i] = strings.ToLower(js.PythonStr(item)); !serverview.IsUUID(uuids[i]) {
			return nil, missing(uuids[i])
		}
	}
	found, err := d.Store.MappingsOf(x.Context(), uuids)
	if err != nil {
		return nil, err
	}
	for _, uuid := range uuids {
		if m, is := found[uuid]; !is || m.Queued() || m.ProjectID != x.Who.Project && !x.IsAdmin() {
			return nil, missing(uuid)
		}
	}
	return uuids, nil
}
