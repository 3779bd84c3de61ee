// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Errors that callers decide on.
var (
	// ErrNotFound says that there is no such thing.
	ErrNotFound = errors.New("not found")
	// ErrExists says that there is one of that name or identifier already.
	ErrExists = errors.New("exists already")
	// ErrInUse says that something cannot be removed because other things need it.
	ErrInUse = errors.New("in use")
	// ErrGone says that the build request of a server was removed meanwhile: its owner deleted it.
	ErrGone = errors.New("deleted meanwhile")
	// ErrPlaced says that a server was placed elsewhere before.
	ErrPlaced = errors.New("placed already")
	// ErrInvalid says that what was asked for makes no sense, whatever is in the database.
	ErrInvalid = errors.New("not valid")
	// ErrSchema says that the database is of a newer program, of an older one and not upgraded, or
	// none of this program's.
	ErrSchema = errors.New("schema cannot be used")
	// ErrUnavailable says that the database cannot be used now: locked for too long, full,
	// unreadable. Nothing was written.
	ErrUnavailable = errors.New("API database unavailable")
)

// Cell0UUID is the cell that has no hosts, for servers that could not be placed.
const Cell0UUID = "00000000-0000-0000-0000-000000000000"

// Cell is a row of cell_mappings.
type Cell struct {
	ID   int64
	UUID string
	Name string
	// URL is where the cell's process answers: http://, https:// or unix:///PATH.
	URL      string
	Disabled bool // nothing new is placed there
}

// IsCell0 reports whether it is the cell without hosts.
func (c Cell) IsCell0() bool { return c.UUID == Cell0UUID }

// CellMark is which database a cell has, and how far that is: its epoch, and the revision of its
// last change.
type CellMark struct {
	Epoch    string
	Revision int64
}

// CellDatabase is what is recorded of the database of a cell: nothing but CellUUID before its first
// answer.
type CellDatabase struct {
	CellUUID string
	// Known is the database that is the cell's, with the highest revision that was seen of it.
	Known CellMark
	// Suspect is what was seen instead, when that began: another database, or an older copy of it.
	// Nil: nothing else. It stays until an operator has accepted what there is; another database is
	// also forgotten when the known one is back.
	Suspect *CellMark
	// Since is when that was found out.
	Since time.Time
}

// Fits says whether an answer comes from the database that is the cell's. The answer must have been
// asked for after d was read, since the revision goes on. An older copy does not become the right
// one by having as many changes: once there was one, nothing fits.
func (d CellDatabase) Fits(seen CellMark) bool {
	switch {
	case d.Known.Epoch == "":
		return true // the first contact
	case d.Suspect != nil && d.Suspect.Epoch == d.Known.Epoch:
		return false
	}
	return seen.Epoch == d.Known.Epoch && seen.Revision >= d.Known.Revision
}

// Node is a compute node that is mapped to a host and so to a cell.
type Node struct {
	UUID     string // of its root provider
	Name     string // hypervisor_hostname
	Host     string
	CellUUID string
}

// HostMapping says in which cell a host is.
type HostMapping struct {
	Host     string
	CellUUID string
}

// Mapping is a row of instance_mappings.
type Mapping struct {
	ID           int64
	InstanceUUID string
	CellUUID     string // "" while it is placed nowhere
	ProjectID    string
	UserID       string
	// QueuedForDelete is nil in rows that are older than the column, until they are migrated: such
	// a server counts as living.
	QueuedForDelete *bool
	CreatedAt       time.Time
	UpdatedAt       *time.Time
}

// Queued reports whether the server is known to be deleted or about to be.
func (m Mapping) Queued() bool { return m.QueuedForDelete != nil && *m.QueuedForDelete }

// RequestSpec is the server that a client asked for, and where it may be placed. Zone is the
// requested zone, "" for none. While the server is built all fields are stored, afterwards those of
// [RequestSpec.Stored], as long as the mapping exists.
//
// In its JSON host and node are the forced ones: a server that was asked for is on no host yet.
type RequestSpec struct {
	cellwire.Server
	// ForcedHost and ForcedNode are chosen by an administrator; "": any.
	ForcedHost string `json:"host,omitempty"`
	ForcedNode string `json:"node,omitempty"`
	// Group is the uuid of the server group that it was asked for in; "": none.
	Group string `json:"server_group,omitempty"`
	// SameHost and DifferentHost are uuids of servers: it is put on the host of one of the first,
	// and not on those of the others. These are the scheduler hints of the same names.
	SameHost      []string `json:"same_host,omitempty"`
	DifferentHost []string `json:"different_host,omitempty"`
	// RequestID is the ID of the request which asked for it.
	RequestID string `json:"request_id,omitempty"`
	// Traceparent is the W3C trace context of that request; "" for none.
	Traceparent string `json:"traceparent,omitempty"`
}

// Stored is what is kept of it as long as the mapping. Extra conditions of the flavor (resources:,
// trait:) are in Flavor.ExtraSpecs.
func (r RequestSpec) Stored() RequestSpec {
	r.Server = cellwire.Server{
		UUID: r.UUID, ProjectID: r.ProjectID, UserID: r.UserID, Flavor: r.Flavor, ImageRef: r.ImageRef,
		Zone: r.Zone, CreatedAt: r.CreatedAt,
	}
	return r
}

// BuildRequest is a server that is not in a cell yet, or not yet released there.
type BuildRequest struct {
	RequestSpec
	// CellUUID is the cell of the mapping: not "" when it is placed and not released yet.
	CellUUID string
}

// PendingBuild is the part of a [BuildRequest] that decides who works on it.
type PendingBuild struct{ InstanceUUID, CellUUID string }

// Claim says that allocations of a server may be in Placement although no cell accounts for them.
type Claim struct {
	InstanceUUID string
	NodeUUID     string
	CellUUID     string
	CreatedAt    time.Time
}

// Flavor is one of the flavors that are offered.
type Flavor struct {
	cellwire.Flavor
	Description *string
	IsPublic    bool
	Disabled    bool
	RxTxFactor  float64
}

// QuotaSet has limits by resource ("instances", "cores", "ram", "metadata_items", "key_pairs",
// ...). -1 is unlimited.
type QuotaSet map[string]int64

// MappingFilter chooses mappings.
type MappingFilter struct {
	ProjectID string   // "": all
	CellUUIDs []string // nil: all with a cell
	// Living leaves out those that are queued for delete.
	Living bool
	// Limit bounds them; 0 is no bound. Order is created_at, newest first, then uuid.
	Limit int
}

// Counts is what a project has, counted in the API database alone.
type Counts struct {
	Instances, Cores, RAM int64
	// Known is how many of Instances are known to be living: the count of instances when usage
	// comes from Placement, as long as nothing is Unmigrated.
	Known int64
	// Unmigrated are mappings without a queued_for_delete, or without a user.
	Unmigrated int64
	// GroupMembers are, for the check of CreateServers, the members that the user has in the server
	// group of the new servers.
	GroupMembers int64
}

// Store is the API database. All methods are safe for concurrent use. Errors wrap those above;
// [ErrUnavailable] can come from any. A method that returns an error has written nothing.
type Store interface {
	// Cells are all cells in the order of their making, disabled ones and cell0 among them.
	Cells(ctx context.Context) ([]Cell, error)
	// CreateCell makes one; its uuid is given or, if "", made. [ErrExists] for a uuid, name or URL
	// that there is.
	CreateCell(ctx context.Context, c Cell) (Cell, error)
	// UpdateCell changes name, URL and Disabled of the cell with the uuid.
	UpdateCell(ctx context.Context, c Cell) error
	// DeleteCell removes a cell. [ErrInUse] if hosts or servers are mapped to it; with force only
	// servers that are not queued for delete keep it.
	DeleteCell(ctx context.Context, uuid string, force bool) error

	// CellDatabases are the recorded databases of cells, by the uuids of the cells.
	CellDatabases(ctx context.Context) (map[string]CellDatabase, error)
	// RecordMark records which database a cell has, and returns what is known now. before is what
	// was known before the cell was asked: what does not fit that, and still does not fit, makes
	// the database suspect. [ErrNotFound] for a cell that is not there. Nothing is written when
	// nothing is new.
	RecordMark(ctx context.Context, before CellDatabase, seen CellMark) (CellDatabase, error)
	// AcceptCell makes the database of a cell the right one, whatever was known. [ErrNotFound] for
	// a cell that is not there.
	AcceptCell(ctx context.Context, cellUUID string, seen CellMark) error

	// MapNodes maps nodes and their hosts to cells. [ErrExists], naming the host or node, for one
	// that is mapped to another cell or host.
	MapNodes(ctx context.Context, nodes []Node) error
	// RemapNode maps a node as MapNodes does, and takes it from a host that it is mapped to. The
	// other host stays mapped. [ErrExists] for one that is mapped to a third host.
	RemapNode(ctx context.Context, node Node, from string) error
	// Nodes are all mapped nodes, Hosts all mapped hosts by name.
	Nodes(ctx context.Context) ([]Node, error)
	Hosts(ctx context.Context) ([]HostMapping, error)
	// DeleteHost unmaps a host and its nodes; it leaves its aggregates. If it was evicted, another
	// host may have its nodes then, and if it was renamed, its former name.
	DeleteHost(ctx context.Context, host string) error
	// BeginRename keeps the new name of a host for it, until FinishRename. Repeating it is no
	// error. [ErrNotFound] for a host that is not mapped, [ErrExists] for a name that is another
	// host's or could be in the way of one, [ErrInUse] if the rename to another name is begun.
	BeginRename(ctx context.Context, r HostRename) error
	// FinishRename gives a host its new name, with its nodes, aggregates and enrolment, and evicts
	// the old one. A host that was enrolled is invited under the new name, without a token: its
	// certificates name the old one. What it returns has no state if the host had no enrolment.
	// Repeating it is no error. [ErrNotFound] without BeginRename.
	FinishRename(ctx context.Context, r HostRename) (Enrolment, error)
	// UnmapNodes unmaps nodes of the hosts of a cell; the hosts stay mapped.
	UnmapNodes(ctx context.Context, cellUUID string, uuids []string) error

	// CreateServers writes the mapping (placed nowhere, not queued), the specification and the
	// build request of each server, all or none. check runs in the transaction with what the
	// project has, these not counted; its error is returned and nothing written. It may be nil. All
	// are of one user, and of one server group or none; [ErrGroup] if that is gone.
	CreateServers(ctx context.Context, servers []RequestSpec, check func(Counts) error) error
	// BuildRequests returns the build requests of a project ("": all), newest first, at most limit
	// (0: all).
	BuildRequests(ctx context.Context, projectID string, limit int) ([]BuildRequest, error)
	// PendingBuilds are all build requests, oldest first, without the servers: for who goes through
	// all of them now and then.
	PendingBuilds(ctx context.Context) ([]PendingBuild, error)
	// BuildRequest returns the build request of a server. [ErrNotFound].
	BuildRequest(ctx context.Context, uuid string) (BuildRequest, error)
	// Claim notes that allocations are about to be made for a server. [ErrGone] without a build
	// request, [ErrPlaced] if its mapping has a cell.
	Claim(ctx context.Context, c Claim) error
	// Claims returns the claims that were made before a time.
	Claims(ctx context.Context, before time.Time) ([]Claim, error)
	// Unclaim forgets the claim of a server: its allocations are removed, or accounted for by a
	// cell. Nothing happens without one.
	Unclaim(ctx context.Context, uuid string) error
	// Place gives the mapping of a server its cell, once and for all: this decides where the server
	// is. [ErrGone] if the build request is gone, [ErrPlaced] if another cell won. Repeating it is
	// no error.
	Place(ctx context.Context, uuid, cellUUID string) error
	// FinishBuild removes the build request and the claim of a server that is placed and released.
	// In cell0 the claim stays: no allocation accounts for it there, so a late one is not refused.
	FinishBuild(ctx context.Context, uuid string) error
	// AbandonBuild is the deletion of a server by its owner while it is placed nowhere: the build
	// request goes, the mapping stays and is queued for delete; a claim stays. [ErrNotFound]
	// without a build request; [ErrPlaced] if it is placed meanwhile: then the cell has to be
	// asked.
	AbandonBuild(ctx context.Context, uuid string) error

	// Mapping returns the mapping of a server. [ErrNotFound].
	Mapping(ctx context.Context, uuid string) (Mapping, error)
	// Mappings chooses some.
	Mappings(ctx context.Context, f MappingFilter) ([]Mapping, error)
	// MappingsOf returns the mappings of the named servers, by uuid. Servers without one are
	// missing.
	MappingsOf(ctx context.Context, uuids []string) (map[string]Mapping, error)
	// MappingsAfter pages through the mappings of a cell with a known queued_for_delete by ID, for
	// the reconciler.
	MappingsAfter(ctx context.Context, cellUUID string, afterID int64, limit int) ([]Mapping, error)
	// SetQueued sets queued_for_delete of servers. Servers without a mapping are left out.
	SetQueued(ctx context.Context, queued map[string]bool) error
	// ProjectCells are the cells that a project has mappings in, by uuid.
	ProjectCells(ctx context.Context, projectID string) ([]string, error)
	// Unmigrated are mappings of a cell with a NULL queued_for_delete, at most limit;
	// UnmigratedCells the cells with such mappings.
	Unmigrated(ctx context.Context, cellUUID string, limit int) ([]Mapping, error)
	UnmigratedCells(ctx context.Context) ([]string, error)

	// RequestSpec returns what is stored of a server's request spec. Errors: [ErrNotFound].
	RequestSpec(ctx context.Context, uuid string) (RequestSpec, error)

	// CountProject counts what a project has, or a user of it ("": all): instances from mappings
	// that are living and in one of the cells (nil: in any, or placed nowhere), cores and RAM from
	// their specifications. Mappings that do not say whose they are count for the project alone.
	CountProject(ctx context.Context, projectID, userID string, cellUUIDs []string) (Counts, error)
	// Quotas are the limits set for a project; SetQuotas sets some of them, DeleteQuotas all back
	// to the defaults.
	Quotas(ctx context.Context, projectID string) (QuotaSet, error)
	SetQuotas(ctx context.Context, projectID string, q QuotaSet) error
	DeleteQuotas(ctx context.Context, projectID string) error

	// Flavors are all, by flavorid; Flavor is one by its flavorid. [ErrNotFound].
	Flavors(ctx context.Context) ([]Flavor, error)
	Flavor(ctx context.Context, id string) (Flavor, error)
	// CreateFlavor makes one. [ErrExists] for a flavorid or name that there is.
	CreateFlavor(ctx context.Context, f Flavor) error
	// ChangeFlavor has change set description and extra specs of a flavor under the write lock; of
	// two changes at once none is lost. An error of change is returned and nothing written.
	// [ErrNotFound].
	ChangeFlavor(ctx context.Context, id string, change func(*Flavor) error) (Flavor, error)
	DeleteFlavor(ctx context.Context, id string) error

	// Aggregates are all host aggregates, in the order of their making; Aggregate is one.
	// [ErrNotFound].
	Aggregates(ctx context.Context) ([]Aggregate, error)
	Aggregate(ctx context.Context, id int64) (Aggregate, error)
	// CreateAggregate makes one. [ErrExists] for a name that there is.
	CreateAggregate(ctx context.Context, name string, metadata map[string]string) (Aggregate, error)
	// ChangeAggregate has change set name, hosts and metadata of an aggregate under the write lock;
	// it also gets all others. An error of change is returned and nothing written. [ErrNotFound],
	// [ErrExists] for a name that there is.
	ChangeAggregate(ctx context.Context, id int64,
		change func(a *Aggregate, others []Aggregate) error) (Aggregate, error)
	// DeleteAggregate deletes one without hosts. [ErrNotFound], [ErrInUse].
	DeleteAggregate(ctx context.Context, id int64) error
	// HostAggregates says in which aggregates a host is, and in which not.
	HostAggregates(ctx context.Context, host string) (HostAggregates, error)
	// DeletedAggregates are the uuids of deleted ones, until ForgetAggregate: Placement may still
	// have providers in them.
	DeletedAggregates(ctx context.Context) ([]string, error)
	ForgetAggregate(ctx context.Context, uuid string) error
	// UnmappedNodes returns the nodes of unmapped hosts, with uuid and host, until ForgetNode or
	// until they are mapped again: Placement may still have their providers in aggregates.
	UnmappedNodes(ctx context.Context) ([]Node, error)
	ForgetNode(ctx context.Context, uuid string) error

	// ServerGroups returns the server groups of a project ("": all) in the order of their creation;
	// ServerGroup returns one by its uuid, ServerGroupOf the group of a server. [ErrNotFound].
	ServerGroups(ctx context.Context, projectID string) ([]ServerGroup, error)
	ServerGroup(ctx context.Context, uuid string) (ServerGroup, error)
	ServerGroupOf(ctx context.Context, server string) (ServerGroup, error)
	// CountServerGroups is how many a project has, or a user in it ("": all).
	CountServerGroups(ctx context.Context, projectID, userID string) (int64, error)
	// CreateServerGroup makes one. check runs in the transaction with how many the project had
	// before; its error is returned and nothing written. It may be nil.
	CreateServerGroup(ctx context.Context, g ServerGroup, check func(has int64) error) (ServerGroup, error)
	// DeleteServerGroup deletes one; its members stay. [ErrNotFound].
	DeleteServerGroup(ctx context.Context, uuid string) error

	// KeyPairs returns the key pairs of a user whose names come after one ("": all) in the order of
	// bytes, at most limit (0: all), by name; KeyPair returns one. [ErrNotFound].
	KeyPairs(ctx context.Context, userID, after string, limit int) ([]KeyPair, error)
	KeyPair(ctx context.Context, userID, name string) (KeyPair, error)
	// CreateKeyPair makes one. check runs in the transaction with how many the user had before; its
	// error is returned and nothing written. It may be nil. [ErrExists] for a name that there is.
	CreateKeyPair(ctx context.Context, k KeyPair, check func(has int64) error) (KeyPair, error)
	// DeleteKeyPair deletes one; servers that were made with it keep it. [ErrNotFound].
	DeleteKeyPair(ctx context.Context, userID, name string) error

	// AddConsoleToken keeps the hash of a token that leads to a server's console until it expires,
	// or SetQueued says that the server is deleted. Those that have expired go. ConsoleToken is the
	// uuid of the server of one. [ErrNotFound].
	AddConsoleToken(ctx context.Context, token, instance string, expires time.Time) error
	ConsoleToken(ctx context.Context, token string) (instance string, err error)

	// Enrolments returns the enrolments of all hosts, by name; Enrolment returns one, without a
	// state if the host has none; EnrolmentOfToken returns the one whose token has the ID.
	// [ErrNotFound].
	Enrolments(ctx context.Context) ([]Enrolment, error)
	Enrolment(ctx context.Context, host string) (Enrolment, error)
	EnrolmentOfToken(ctx context.Context, id string) (Enrolment, error)
	// ChangeEnrolment has change set the enrolment of a host under the write lock; without a state
	// there was none. An error of change is returned and nothing written. A [NodeTakenError] for a
	// node of another host.
	ChangeEnrolment(ctx context.Context, host string, change func(*Enrolment) error) (Enrolment, error)

	// SchemaVersion is how many schema steps the database has had, and how many this program knows.
	SchemaVersion(ctx context.Context) (has, knows int, err error)
	Close() error
}
