// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// AuditService is the name of the compute API in records.
const AuditService = "compute-api"

// AuditedStore is an API database whose changes are recorded in a log before and after them. With a
// nil log it is the store itself. What a change was before is read before it, except where the
// change itself knows it.
func AuditedStore(s apidb.Store, log *auditlog.Log) apidb.Store {
	if log == nil {
		return s
	}
	return auditedStore{s, log.ForService(AuditService)}
}

type auditedStore struct {
	apidb.Store
	log *auditlog.Log
}

// record writes an audit record before a change and after it. What goes on after the request that
// asked for it is the scheduler's.
func (s auditedStore) record(ctx context.Context, do func(*auditlog.Action) error) error {
	origin := cellwire.OriginOf(ctx)
	err := s.log.Do(ctx, auditlog.Record{Command: "scheduler", GlobalRequestID: origin.RequestID, User: origin.UserID,
		Project: origin.ProjectID}, do)
	if errors.Is(err, auditlog.ErrNotRecorded) {
		return osapi.Errorf(http.StatusServiceUnavailable,
			"The audit log cannot be written to, so that changes are refused.").Because(err)
	}
	return err
}

// recordChange is record for a change that is known before it, unless before and after are equal.
func (s auditedStore) recordChange(ctx context.Context, c auditlog.Change, before, after any, do func() error) error {
	return s.record(ctx, func(a *auditlog.Action) error {
		if err := intendChange(ctx, a, c, before, after); err != nil {
			return err
		}
		return do()
	})
}

func intendChange(ctx context.Context, a *auditlog.Action, c auditlog.Change, before, after any) error {
	if c, differs := c.Differs(before, after); differs {
		return a.Intend(ctx, c)
	}
	return nil
}

// setChange replaces the intended change of an action by what is known after it.
func setChange(a *auditlog.Action, c auditlog.Change, before, after any) {
	if c, differs := c.Differs(before, after); differs {
		a.SetChanges(c)
	}
}

// recordChanges is record for several changes that are known before it.
func (s auditedStore) recordChanges(ctx context.Context, all []auditlog.Change, do func() error) error {
	return s.record(ctx, func(a *auditlog.Action) error {
		if err := a.Intend(ctx, all...); err != nil {
			return err
		}
		return do()
	})
}

// recordCreation records a row that insert makes: as it is asked for, and as it is made. of is the
// row in a record.
func recordCreation[T any](
	ctx context.Context, s auditedStore, asked *T, of func(*T) (auditlog.Change, any), insert func() (T, error),
) (made T, err error) {
	err = s.record(ctx, func(a *auditlog.Action) (err error) {
		c, value := of(asked)
		if err := intendChange(ctx, a, c, nil, value); err != nil {
			return err
		}
		if made, err = insert(); err == nil {
			c, value = of(&made)
			setChange(a, c, nil, value)
		}
		return err
	})
	return made, err
}

// recordEdit records how edit changes a row that update reads and writes. of is the row in a
// record, which shares nothing with it that edit may change.
func recordEdit[T any](
	ctx context.Context, s auditedStore, of func(*T) (auditlog.Change, any), edit func(*T) error,
	update func(edit func(*T) error) (T, error),
) (after T, err error) {
	err = s.record(ctx, func(a *auditlog.Action) (err error) {
		after, err = update(func(row *T) error {
			_, before := of(row)
			if err := edit(row); err != nil {
				return err
			}
			c, value := of(row)
			return intendChange(ctx, a, c, before, value)
		})
		return err
	})
	return after, err
}

// Values of changes, in JSON.
type (
	cellValue struct {
		Name     string `json:"name"`
		URL      string `json:"url"`
		Disabled bool   `json:"disabled"`
	}
	nodeValue struct {
		Name string `json:"name"`
		Host string `json:"host"`
		Cell string `json:"cell"`
	}
	requestValue struct {
		Name     string `json:"name"`
		Project  string `json:"project"`
		User     string `json:"user"`
		Flavor   string `json:"flavor"`
		Image    string `json:"image,omitempty"`
		Zone     string `json:"availability_zone,omitempty"`
		Host     string `json:"forced_host,omitempty"`
		Node     string `json:"forced_node,omitempty"`
		Group    string `json:"server_group,omitempty"`
		KeyName  string `json:"key_name,omitempty"`
		UserData int    `json:"user_data_bytes,omitempty"`
	}
	flavorValue struct {
		cellwire.Flavor
		Description *string `json:"description,omitempty"`
		IsPublic    bool    `json:"is_public"`
		Disabled    bool    `json:"disabled"`
	}
	aggregateValue struct {
		Name     string            `json:"name"`
		Hosts    []string          `json:"hosts"`
		Metadata map[string]string `json:"metadata,omitempty"`
	}
	groupValue struct {
		Name    string `json:"name"`
		Project string `json:"project"`
		User    string `json:"user"`
		Policy  string `json:"policy"`
		Max     int64  `json:"max_server_per_host,omitempty"`
	}
	keyPairValue struct {
		User        string `json:"user"`
		Type        string `json:"type"`
		Fingerprint string `json:"fingerprint"`
	}
)

// cell is a cell as it is now; nil if it is not there or cannot be read.
func (s auditedStore) cell(ctx context.Context, uuid string) (name string, value any) {
	list, err := s.Cells(ctx)
	if i := slices.IndexFunc(list, func(c apidb.Cell) bool { return c.UUID == uuid }); err == nil && i >= 0 {
		_, value = cellOf(&list[i])
		return list[i].Name, value
	}
	return "", nil
}

func cellOf(c *apidb.Cell) (auditlog.Change, any) {
	return auditlog.Change{Kind: auditlog.KindCell, ID: c.UUID, Name: c.Name}, cellValue{c.Name, c.URL, c.Disabled}
}

func (s auditedStore) CreateCell(ctx context.Context, c apidb.Cell) (apidb.Cell, error) {
	return recordCreation(ctx, s, &c, cellOf, func() (apidb.Cell, error) { return s.Store.CreateCell(ctx, c) })
}

func (s auditedStore) UpdateCell(ctx context.Context, c apidb.Cell) error {
	_, before := s.cell(ctx, c.UUID)
	change, after := cellOf(&c)
	return s.recordChange(ctx, change, before, after, func() error { return s.Store.UpdateCell(ctx, c) })
}

func (s auditedStore) DeleteCell(ctx context.Context, uuid string, force bool) error {
	name, before := s.cell(ctx, uuid)
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindCell, ID: uuid, Name: name}, before, nil,
		func() error { return s.Store.DeleteCell(ctx, uuid, force) })
}

func (s auditedStore) AcceptCell(ctx context.Context, uuid string, seen apidb.CellMark) error {
	known, _ := s.CellDatabases(ctx)
	name, _ := s.cell(ctx, uuid)
	mark := func(m apidb.CellMark) any { return map[string]any{"epoch": m.Epoch, "revision": m.Revision} }
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindCell, ID: uuid, Name: name},
		mark(known[uuid].Known), mark(seen), func() error {
			return s.Store.AcceptCell(ctx, uuid, seen)
		})
}

// nodes are the mapped nodes by uuid; nil if they cannot be read.
func (s auditedStore) nodes(ctx context.Context) map[string]apidb.Node {
	list, err := s.Nodes(ctx)
	if err != nil {
		return nil
	}
	byUUID := make(map[string]apidb.Node, len(list))
	for _, n := range list {
		byUUID[n.UUID] = n
	}
	return byUUID
}

// nodeChange returns the audit record's change of a node; false if nothing differs.
func nodeChange(before, after *apidb.Node) (auditlog.Change, bool) {
	shown := after
	var was, is any
	if before != nil {
		was, shown = nodeValue{before.Name, before.Host, before.CellUUID}, before
	}
	if after != nil {
		is, shown = nodeValue{after.Name, after.Host, after.CellUUID}, after
	}
	return auditlog.Change{Kind: auditlog.KindNode, ID: shown.UUID, Name: shown.Name, Host: shown.Host}.Differs(was, is)
}

func (s auditedStore) MapNodes(ctx context.Context, nodes []apidb.Node) error {
	return s.recordMappings(ctx, nodes, func() error { return s.Store.MapNodes(ctx, nodes) })
}

func (s auditedStore) RemapNode(ctx context.Context, node apidb.Node, from string) error {
	return s.recordMappings(ctx, []apidb.Node{node}, func() error { return s.Store.RemapNode(ctx, node, from) })
}

// recordMappings is record for a change of the mappings of nodes.
func (s auditedStore) recordMappings(ctx context.Context, nodes []apidb.Node, change func() error) error {
	before := s.nodes(ctx)
	var changes []auditlog.Change
	for i := range nodes {
		var was *apidb.Node
		if n, there := before[nodes[i].UUID]; there {
			was = &n
		}
		if c, differs := nodeChange(was, &nodes[i]); differs {
			changes = append(changes, c)
		}
	}
	return s.recordChanges(ctx, changes, change)
}

func (s auditedStore) DeleteHost(ctx context.Context, host string) error {
	before := s.nodes(ctx)
	hosts, _ := s.Hosts(ctx)
	var changes []auditlog.Change
	if i := slices.IndexFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == host }); i >= 0 {
		c, _ := auditlog.Change{Kind: auditlog.KindHost,
			ID: host, Host: host}.Differs(map[string]string{"cell": hosts[i].CellUUID}, nil)
		changes = append(changes, c)
	}
	for _, uuid := range slices.Sorted(maps.Keys(before)) {
		if n := before[uuid]; n.Host == host {
			c, _ := nodeChange(&n, nil)
			changes = append(changes, c)
		}
	}
	return s.recordChanges(ctx, changes, func() error { return s.Store.DeleteHost(ctx, host) })
}

func (s auditedStore) BeginRename(ctx context.Context, r apidb.HostRename) error {
	return s.record(ctx, func(a *auditlog.Action) error {
		before, err := s.Enrolment(ctx, r.To)
		if err == nil && !before.Renames(r.From) {
			c, _ := auditlog.Change{Kind: auditlog.KindHost, ID: r.From, Host: r.From}.Differs(nil,
				map[string]string{"new_name": r.To})
			err = a.Intend(ctx, c)
		}
		if err != nil {
			return err
		}
		return s.Store.BeginRename(ctx, r)
	})
}

func (s auditedStore) FinishRename(ctx context.Context, r apidb.HostRename) (e apidb.Enrolment, err error) {
	before := s.nodes(ctx)
	var changes []auditlog.Change
	for _, uuid := range slices.Sorted(maps.Keys(before)) {
		if was := before[uuid]; was.Host == r.From {
			is := was
			is.Host = r.To
			if name, renamed := r.Nodes[uuid]; renamed {
				is.Name = name
			}
			c, _ := nodeChange(&was, &is)
			changes = append(changes, c)
		}
	}
	if len(changes) > 0 {
		c, _ := auditlog.Change{Kind: auditlog.KindHost,
			ID: r.From, Host: r.From}.Differs(map[string]string{"name": r.From}, map[string]string{"name": r.To})
		changes = append(changes, c)
	}
	err = s.recordChanges(ctx, changes, func() (err error) {
		e, err = s.Store.FinishRename(ctx, r)
		return err
	})
	return e, err
}

func (s auditedStore) CreateServers(
	ctx context.Context, servers []apidb.RequestSpec, check func(apidb.Counts) error,
) error {
	changes := make([]auditlog.Change, 0, len(servers))
	for i := range servers {
		r := &servers[i]
		c, _ := auditlog.Change{Kind: auditlog.KindServer, ID: r.UUID, Name: r.Name}.Differs(nil, requestValue{
			Name: r.Name, Project: r.ProjectID, User: r.UserID, Flavor: r.Flavor.Name, Image: r.ImageRef, Zone: r.Zone,
			Host: r.ForcedHost, Node: r.ForcedNode, Group: r.Group, KeyName: r.KeyName, UserData: len(r.UserData),
		})
		changes = append(changes, c)
	}
	return s.recordChanges(ctx, changes, func() error { return s.Store.CreateServers(ctx, servers, check) })
}

func (s auditedStore) Place(ctx context.Context, uuid, cellUUID string) error {
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindServer, ID: uuid}, map[string]string{"cell": ""},
		map[string]string{"cell": cellUUID}, func() error {
			return s.Store.Place(ctx, uuid, cellUUID)
		})
}

func (s auditedStore) AbandonBuild(ctx context.Context, uuid string) error {
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindServer, ID: uuid},
		map[string]string{"state": "building"}, nil, func() error {
			return s.Store.AbandonBuild(ctx, uuid)
		})
}

func (s auditedStore) SetQuotas(ctx context.Context, project string, q apidb.QuotaSet) error {
	before, _ := s.Quotas(ctx, project)
	after := maps.Clone(before)
	if after == nil {
		after = apidb.QuotaSet{}
	}
	maps.Copy(after, q)
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindQuota, ID: project}, before, after,
		func() error { return s.Store.SetQuotas(ctx, project, q) })
}

func (s auditedStore) DeleteQuotas(ctx context.Context, project string) error {
	before, _ := s.Quotas(ctx, project)
	if len(before) == 0 {
		return s.Store.DeleteQuotas(ctx, project)
	}
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindQuota, ID: project}, before, nil,
		func() error { return s.Store.DeleteQuotas(ctx, project) })
}

func flavorOf(f *apidb.Flavor) (auditlog.Change, any) {
	value := flavorValue{f.Flavor, f.Description, f.IsPublic, f.Disabled}
	value.ExtraSpecs = maps.Clone(f.ExtraSpecs)
	return auditlog.Change{Kind: auditlog.KindFlavor, ID: f.ID, Name: f.Name}, value
}

func (s auditedStore) CreateFlavor(ctx context.Context, f apidb.Flavor) error {
	c, value := flavorOf(&f)
	return s.recordChange(ctx, c, nil, value, func() error { return s.Store.CreateFlavor(ctx, f) })
}

func (s auditedStore) ChangeFlavor(
	ctx context.Context, id string, change func(*apidb.Flavor) error,
) (apidb.Flavor, error) {
	return recordEdit(ctx, s, flavorOf, change, func(edit func(*apidb.Flavor) error) (apidb.Flavor, error) {
		return s.Store.ChangeFlavor(ctx, id, edit)
	})
}

func (s auditedStore) DeleteFlavor(ctx context.Context, id string) error {
	flavor, _ := s.Flavor(ctx, id)
	c, before := flavorOf(&flavor)
	c.ID = id
	return s.recordChange(ctx, c, before, nil, func() error { return s.Store.DeleteFlavor(ctx, id) })
}

func aggregateOf(a *apidb.Aggregate) (auditlog.Change, any) {
	c := auditlog.Change{Kind: auditlog.KindAggregate, Name: a.Name}
	if a.ID > 0 {
		c.ID = strconv.FormatInt(a.ID, 10)
	}
	return c, aggregateValue{a.Name, slices.Clone(a.Hosts), maps.Clone(a.Metadata)}
}

func (s auditedStore) CreateAggregate(
	ctx context.Context, name string, metadata map[string]string,
) (apidb.Aggregate, error) {
	return recordCreation(ctx, s, &apidb.Aggregate{Name: name, Metadata: metadata}, aggregateOf,
		func() (apidb.Aggregate, error) { return s.Store.CreateAggregate(ctx, name, metadata) })
}

func (s auditedStore) ChangeAggregate(
	ctx context.Context, id int64, change func(a *apidb.Aggregate, others []apidb.Aggregate) error,
) (apidb.Aggregate, error) {
	var others []apidb.Aggregate
	return recordEdit(ctx, s, aggregateOf, func(a *apidb.Aggregate) error { return change(a, others) },
		func(edit func(*apidb.Aggregate) error) (apidb.Aggregate, error) {
			return s.Store.ChangeAggregate(ctx, id, func(a *apidb.Aggregate, all []apidb.Aggregate) error {
				others = all
				return edit(a)
			})
		})
}

func (s auditedStore) DeleteAggregate(ctx context.Context, id int64) error {
	aggregate, _ := s.Aggregate(ctx, id)
	aggregate.ID = id
	c, before := aggregateOf(&aggregate)
	return s.recordChange(ctx, c, before, nil, func() error { return s.Store.DeleteAggregate(ctx, id) })
}

func groupOf(g *apidb.ServerGroup) (auditlog.Change, any) {
	return auditlog.Change{Kind: auditlog.KindServerGroup, ID: g.UUID, Name: g.Name},
		groupValue{g.Name, g.ProjectID, g.UserID, g.Policy, g.MaxPerHost}
}

func (s auditedStore) CreateServerGroup(
	ctx context.Context, g apidb.ServerGroup, check func(has int64) error,
) (apidb.ServerGroup, error) {
	return recordCreation(ctx, s, &g, groupOf,
		func() (apidb.ServerGroup, error) { return s.Store.CreateServerGroup(ctx, g, check) })
}

func (s auditedStore) DeleteServerGroup(ctx context.Context, uuid string) error {
	group, _ := s.ServerGroup(ctx, uuid)
	group.UUID = uuid
	c, before := groupOf(&group)
	return s.recordChange(ctx, c, before, nil, func() error { return s.Store.DeleteServerGroup(ctx, uuid) })
}

func keyPairOf(k *apidb.KeyPair) keyPairValue { return keyPairValue{k.UserID, k.Type, k.Fingerprint} }

func (s auditedStore) CreateKeyPair(
	ctx context.Context, k apidb.KeyPair, check func(has int64) error,
) (apidb.KeyPair, error) {
	var made apidb.KeyPair
	err := s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindKeyPair, ID: k.Name}, nil, keyPairOf(&k),
		func() (err error) {
			made, err = s.Store.CreateKeyPair(ctx, k, check)
			return err
		})
	return made, err
}

func (s auditedStore) DeleteKeyPair(ctx context.Context, userID, name string) error {
	before, _ := s.KeyPair(ctx, userID, name)
	return s.recordChange(ctx, auditlog.Change{Kind: auditlog.KindKeyPair, ID: name}, keyPairOf(&before), nil,
		func() error { return s.Store.DeleteKeyPair(ctx, userID, name) })
}

// enrolmentOf is an enrolment in a record, without token and key.
func enrolmentOf(e *apidb.Enrolment) any {
	if e.State == "" {
		return nil
	}
	nodes := make(map[string]string, len(e.Nodes))
	for _, n := range e.Nodes {
		nodes[n.UUID] = n.Name
	}
	v := map[string]any{"state": e.State, "cell": e.CellUUID, "nodes": nodes, "invited_by": e.CreatedBy,
		"enrolled_from": e.EnrolledFrom, "serial": e.Serial, "reason": e.Reason}
	if e.RenewedFrom != "" {
		v["renewed_from"] = e.RenewedFrom
	}
	if c := e.Conflict; c != nil {
		v["refused_key"] = map[string]any{"at": c.At, "from": c.From, "key": c.Key}
	}
	if !e.DeniedBefore.IsZero() {
		v["denied_before"] = e.DeniedBefore
	}
	return v
}

func (s auditedStore) ChangeEnrolment(
	ctx context.Context, host string, change func(*apidb.Enrolment) error,
) (apidb.Enrolment, error) {
	of := func(e *apidb.Enrolment) (auditlog.Change, any) {
		return auditlog.Change{Kind: auditlog.KindEnrolment, ID: host, Host: host}, enrolmentOf(e)
	}
	return recordEdit(ctx, s, of, change, func(edit func(*apidb.Enrolment) error) (apidb.Enrolment, error) {
		return s.Store.ChangeEnrolment(ctx, host, edit)
	})
}
