// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/auditlog"
)

// AuditService is the name of the compute API in records.
const AuditService = "compute-api"

// AuditedStore is an API database whose changes are noted in a log. With a nil log it is the store
// itself. What a change was before is read before it, except where the change itself knows it.
func AuditedStore(s apidb.Store, log *auditlog.Log) apidb.Store {
	if log == nil {
		return s
	}
	return auditedStore{s, log.For(AuditService)}
}

type auditedStore struct {
	apidb.Store
	log *auditlog.Log
}

// note notes a change after it is done without an error, unless before and after are equal.
func (s auditedStore) note(ctx context.Context, err error, c auditlog.Change, before, after any) {
	if err != nil {
		return
	}
	c, differs := c.Differs(before, after)
	if !differs {
		return
	}
	// What goes on after the request that asked for it.
	origin := cellwire.OriginOf(ctx)
	s.log.Note(ctx, auditlog.Record{Command: "scheduler", GlobalRequestID: origin.RequestID, User: origin.UserID, Project: origin.ProjectID}, c)
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
		return list[i].Name, cellOf(list[i])
	}
	return "", nil
}

func cellOf(c apidb.Cell) cellValue { return cellValue{c.Name, c.URL, c.Disabled} }

func (s auditedStore) CreateCell(ctx context.Context, c apidb.Cell) (apidb.Cell, error) {
	made, err := s.Store.CreateCell(ctx, c)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindCell, ID: made.UUID, Name: made.Name}, nil, cellOf(made))
	return made, err
}

func (s auditedStore) UpdateCell(ctx context.Context, c apidb.Cell) error {
	_, before := s.cell(ctx, c.UUID)
	err := s.Store.UpdateCell(ctx, c)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindCell, ID: c.UUID, Name: c.Name}, before, cellOf(c))
	return err
}

func (s auditedStore) DeleteCell(ctx context.Context, uuid string, force bool) error {
	name, before := s.cell(ctx, uuid)
	err := s.Store.DeleteCell(ctx, uuid, force)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindCell, ID: uuid, Name: name}, before, nil)
	return err
}

func (s auditedStore) AcceptCell(ctx context.Context, uuid string, seen apidb.CellMark) error {
	known, _ := s.CellDatabases(ctx)
	name, _ := s.cell(ctx, uuid)
	err := s.Store.AcceptCell(ctx, uuid, seen)
	mark := func(m apidb.CellMark) any { return map[string]any{"epoch": m.Epoch, "revision": m.Revision} }
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindCell, ID: uuid, Name: name}, mark(known[uuid].Known), mark(seen))
	return err
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

func (s auditedStore) noteNode(ctx context.Context, before, after *apidb.Node) {
	shown := after
	var was, is any
	if before != nil {
		was, shown = nodeValue{before.Name, before.Host, before.CellUUID}, before
	}
	if after != nil {
		is, shown = nodeValue{after.Name, after.Host, after.CellUUID}, after
	}
	s.note(ctx, nil, auditlog.Change{Kind: auditlog.KindNode, ID: shown.UUID, Name: shown.Name, Host: shown.Host}, was, is)
}

func (s auditedStore) MapNodes(ctx context.Context, nodes []apidb.Node) error {
	return s.mapped(ctx, nodes, func() error { return s.Store.MapNodes(ctx, nodes) })
}

func (s auditedStore) RemapNode(ctx context.Context, node apidb.Node, from string) error {
	return s.mapped(ctx, []apidb.Node{node}, func() error { return s.Store.RemapNode(ctx, node, from) })
}

// mapped notes how nodes are mapped by a change.
func (s auditedStore) mapped(ctx context.Context, nodes []apidb.Node, change func() error) error {
	before := s.nodes(ctx)
	err := change()
	if err == nil {
		for i := range nodes {
			var was *apidb.Node
			if n, there := before[nodes[i].UUID]; there {
				was = &n
			}
			s.noteNode(ctx, was, &nodes[i])
		}
	}
	return err
}

func (s auditedStore) DeleteHost(ctx context.Context, host string) error {
	before := s.nodes(ctx)
	hosts, _ := s.Hosts(ctx)
	err := s.Store.DeleteHost(ctx, host)
	if err != nil {
		return err
	}
	var was any
	if i := slices.IndexFunc(hosts, func(h apidb.HostMapping) bool { return h.Host == host }); i >= 0 {
		was = map[string]string{"cell": hosts[i].CellUUID}
	}
	s.note(ctx, nil, auditlog.Change{Kind: auditlog.KindHost, ID: host, Host: host}, was, nil)
	for _, uuid := range slices.Sorted(maps.Keys(before)) {
		if n := before[uuid]; n.Host == host {
			s.noteNode(ctx, &n, nil)
		}
	}
	return nil
}

func (s auditedStore) CreateServers(ctx context.Context, servers []apidb.RequestSpec, check func(apidb.Counts) error) error {
	err := s.Store.CreateServers(ctx, servers, check)
	for i := range servers {
		r := &servers[i]
		s.note(ctx, err, auditlog.Change{Kind: auditlog.KindServer, ID: r.UUID, Name: r.Name}, nil, requestValue{
			Name: r.Name, Project: r.ProjectID, User: r.UserID, Flavor: r.Flavor.Name, Image: r.ImageRef, Zone: r.Zone,
			Host: r.ForcedHost, Node: r.ForcedNode, Group: r.Group, KeyName: r.KeyName, UserData: len(r.UserData),
		})
	}
	return err
}

func (s auditedStore) Place(ctx context.Context, uuid, cellUUID string) error {
	err := s.Store.Place(ctx, uuid, cellUUID)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindServer, ID: uuid}, map[string]string{"cell": ""}, map[string]string{"cell": cellUUID})
	return err
}

func (s auditedStore) AbandonBuild(ctx context.Context, uuid string) error {
	err := s.Store.AbandonBuild(ctx, uuid)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindServer, ID: uuid}, map[string]string{"state": "building"}, nil)
	return err
}

func (s auditedStore) SetQuotas(ctx context.Context, project string, q apidb.QuotaSet) error {
	before, _ := s.Quotas(ctx, project)
	err := s.Store.SetQuotas(ctx, project, q)
	after := maps.Clone(before)
	if after == nil {
		after = apidb.QuotaSet{}
	}
	maps.Copy(after, q)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindQuota, ID: project}, before, after)
	return err
}

func (s auditedStore) DeleteQuotas(ctx context.Context, project string) error {
	before, _ := s.Quotas(ctx, project)
	err := s.Store.DeleteQuotas(ctx, project)
	if len(before) > 0 {
		s.note(ctx, err, auditlog.Change{Kind: auditlog.KindQuota, ID: project}, before, nil)
	}
	return err
}

func flavorOf(f *apidb.Flavor) flavorValue {
	return flavorValue{f.Flavor, f.Description, f.IsPublic, f.Disabled}
}

func (s auditedStore) CreateFlavor(ctx context.Context, f apidb.Flavor) error {
	err := s.Store.CreateFlavor(ctx, f)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindFlavor, ID: f.ID, Name: f.Name}, nil, flavorOf(&f))
	return err
}

func (s auditedStore) ChangeFlavor(ctx context.Context, id string, change func(*apidb.Flavor) error) (apidb.Flavor, error) {
	var before apidb.Flavor
	after, err := s.Store.ChangeFlavor(ctx, id, func(f *apidb.Flavor) error {
		before = *f
		before.ExtraSpecs = maps.Clone(f.ExtraSpecs)
		return change(f)
	})
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindFlavor, ID: id, Name: after.Name}, flavorOf(&before), flavorOf(&after))
	return after, err
}

func (s auditedStore) DeleteFlavor(ctx context.Context, id string) error {
	before, _ := s.Flavor(ctx, id)
	err := s.Store.DeleteFlavor(ctx, id)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindFlavor, ID: id, Name: before.Name}, flavorOf(&before), nil)
	return err
}

func aggregateOf(a *apidb.Aggregate) aggregateValue {
	return aggregateValue{a.Name, a.Hosts, a.Metadata}
}

func (s auditedStore) noteAggregate(ctx context.Context, err error, id int64, name string, before, after any) {
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindAggregate, ID: strconv.FormatInt(id, 10), Name: name}, before, after)
}

func (s auditedStore) CreateAggregate(ctx context.Context, name string, metadata map[string]string) (apidb.Aggregate, error) {
	made, err := s.Store.CreateAggregate(ctx, name, metadata)
	s.noteAggregate(ctx, err, made.ID, name, nil, aggregateOf(&made))
	return made, err
}

func (s auditedStore) ChangeAggregate(
	ctx context.Context, id int64, change func(a *apidb.Aggregate, others []apidb.Aggregate) error,
) (apidb.Aggregate, error) {
	var before aggregateValue
	after, err := s.Store.ChangeAggregate(ctx, id, func(a *apidb.Aggregate, others []apidb.Aggregate) error {
		before = aggregateValue{a.Name, slices.Clone(a.Hosts), maps.Clone(a.Metadata)}
		return change(a, others)
	})
	s.noteAggregate(ctx, err, id, after.Name, before, aggregateOf(&after))
	return after, err
}

func (s auditedStore) DeleteAggregate(ctx context.Context, id int64) error {
	before, _ := s.Aggregate(ctx, id)
	err := s.Store.DeleteAggregate(ctx, id)
	s.noteAggregate(ctx, err, id, before.Name, aggregateOf(&before), nil)
	return err
}

func groupOf(g *apidb.ServerGroup) groupValue {
	return groupValue{g.Name, g.ProjectID, g.UserID, g.Policy, g.MaxPerHost}
}

func (s auditedStore) CreateServerGroup(ctx context.Context, g apidb.ServerGroup, check func(has int64) error) (apidb.ServerGroup, error) {
	made, err := s.Store.CreateServerGroup(ctx, g, check)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindServerGroup, ID: made.UUID, Name: made.Name}, nil, groupOf(&made))
	return made, err
}

func (s auditedStore) DeleteServerGroup(ctx context.Context, uuid string) error {
	before, _ := s.ServerGroup(ctx, uuid)
	err := s.Store.DeleteServerGroup(ctx, uuid)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindServerGroup, ID: uuid, Name: before.Name}, groupOf(&before), nil)
	return err
}

func keyPairOf(k *apidb.KeyPair) keyPairValue { return keyPairValue{k.UserID, k.Type, k.Fingerprint} }

func (s auditedStore) CreateKeyPair(ctx context.Context, k apidb.KeyPair, check func(has int64) error) (apidb.KeyPair, error) {
	made, err := s.Store.CreateKeyPair(ctx, k, check)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindKeyPair, ID: made.Name}, nil, keyPairOf(&made))
	return made, err
}

func (s auditedStore) DeleteKeyPair(ctx context.Context, userID, name string) error {
	before, _ := s.KeyPair(ctx, userID, name)
	err := s.Store.DeleteKeyPair(ctx, userID, name)
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindKeyPair, ID: name}, keyPairOf(&before), nil)
	return err
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
	v := map[string]any{"state": e.State, "cell": e.CellUUID, "nodes": nodes, "invited_by": e.CreatedBy, "enrolled_from": e.EnrolledFrom, "serial": e.Serial, "reason": e.Reason}
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

func (s auditedStore) ChangeEnrolment(ctx context.Context, host string, change func(*apidb.Enrolment) error) (apidb.Enrolment, error) {
	var before any
	after, err := s.Store.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
		before = enrolmentOf(e)
		return change(e)
	})
	s.note(ctx, err, auditlog.Change{Kind: auditlog.KindEnrolment, ID: host, Host: host}, before, enrolmentOf(&after))
	return after, err
}
