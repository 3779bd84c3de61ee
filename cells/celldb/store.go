// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
)

// Errors of a database, beside the refusals, which are *cellwire.Error.
var (
	// ErrUnavailable says that the database cannot be used now: locked for too long, full,
	// unreadable. Nothing was written.
	ErrUnavailable = errors.New("cell database unavailable")
	// ErrDamaged says that what is in the database cannot be read, which does not end by itself. It
	// comes with ErrUnavailable.
	ErrDamaged = errors.New("cell database damaged")
	// ErrSchema says that the database is of a newer program, or none of this program's. It was not
	// touched.
	ErrSchema = errors.New("schema cannot be used")
	// ErrName says that the database is another cell's.
	ErrName = errors.New("database of another cell")
	// ErrNoCell says that there is no cell's database yet.
	ErrNoCell = errors.New("no database of a cell")
)

// Moment is the time of a call, by the cell's clock, and how long a host then counts as up.
type Moment struct {
	Now time.Time
	// DownTime is how long after its last heartbeat a host still counts as up.
	DownTime time.Duration
}

// Alive reports whether a host with that last heartbeat counts as up. As in Nova, a heartbeat from
// the future, after the clock was set back, counts as one from the past.
func (m Moment) Alive(lastSeenUp time.Time) bool {
	return !lastSeenUp.IsZero() && m.Now.Sub(lastSeenUp).Abs() <= m.DownTime
}

// Info is whose database it is.
type Info struct {
	Name string
	// Epoch identifies the database; it is drawn when that is made.
	Epoch string
	// Revision is the revision of the last change; at least 1.
	Revision int64
	// Term is the highest term of a change; 0 if none had one.
	Term int64
}

// MaxUnfinished bounds each list of servers of an answer of Unfinished, oldest first.
const MaxUnfinished = 10000

// Store is a cell's database, for the compute API and for the agents of the cell's hosts. All
// methods are safe for concurrent use. A refusal is a *cellwire.Error; other errors wrap those
// above, or that of the context. A method that returns an error has written nothing; only when the
// disk failed in the middle of a commit it may have, which is why all of them can be repeated.
//
// A change whose context has a term ([cellwire.WithTerm]) lower than that of a change before is
// refused (outdated).
//
// Servers in answers carry HostUp, HostDisabled and HostForcedDown as of the moment.
type Store interface {
	ServerStore
	MigrationStore
	HostStore
	NodeStore
	AgentStore

	// Check reports whether the database is whole: the one that was opened, with all of its tables.
	// It is cheap enough for every request: it reads one row, and waits for no other method.
	Check(ctx context.Context) error
	// Info returns whose database it is. It waits for no other method.
	Info(ctx context.Context) (Info, error)
	// SchemaVersion returns how many schema steps the database has had, and how many this program
	// knows.
	SchemaVersion(ctx context.Context) (has, knows int, err error)
	// Close closes the database. No other method may be called any more.
	Close() error
}

// ServerStore has the servers of a cell and what clients asked for them. The methods that change a
// server, but for Insert and Discard, run the method of the same name of [serverstate.Record].
type ServerStore interface {
	// Servers returns a page of servers, without hidden ones: as many as fit into MaxAnswer, and at
	// least one. The cost of a page that is sorted by created_at is O(limit).
	Servers(ctx context.Context, q cellwire.ServerQuery, m Moment) (cellwire.ServerPage, error)
	// Server returns one server in any state, hidden and deleted ones too.
	Server(ctx context.Context, uuid string, m Moment) (cellwire.Server, error)
	// Insert writes a hidden row. If the same row was inserted before, it returns that as it is
	// now; another row with the uuid is refused (exists).
	Insert(ctx context.Context, s cellwire.Server, m Moment) (cellwire.Server, error)
	// Release shows a hidden row, and its host may build the server.
	Release(ctx context.Context, uuid string, m Moment) (cellwire.Server, error)
	// Discard erases a hidden row. A released one is refused (conflict); a missing one is no error.
	Discard(ctx context.Context, uuid string) error
	// Delete asks the host to delete the server, or deletes the row.
	Delete(ctx context.Context, uuid string, kind cellwire.DeleteKind, m Moment) (cellwire.DeleteAnswer, error)
	// Restore undoes a soft delete.
	Restore(ctx context.Context, uuid string, m Moment) (cellwire.Server, error)
	// Patch changes the name, the description, the metadata and the tags of a server.
	Patch(ctx context.Context, uuid string, patch cellwire.ServerPatch, m Moment) (cellwire.Server, error)
	// Rebuild begins to make the guest of a server again from an image. It is refused (unable) if
	// the host of the server cannot do it.
	Rebuild(ctx context.Context, uuid string, request cellwire.RebuildRequest, m Moment) (cellwire.Server, error)
	// Power begins a power action.
	Power(ctx context.Context, uuid string, action cellwire.PowerAction, m Moment) (cellwire.Server, error)
	// Reset sets the state of a server for an administrator.
	Reset(ctx context.Context, uuid string, request cellwire.ResetRequest, m Moment) (cellwire.Server, error)
	// MarkFreed records that the compute API has removed the allocations of a deleted server.
	MarkFreed(ctx context.Context, uuid string) error
	// Actions returns what clients asked for a server, deleted or not: the last
	// [cellwire.MaxActions]. The origin of an action is that of the context of the call that asked
	// ([cellwire.WithOrigin]).
	Actions(ctx context.Context, uuid string) (cellwire.ActionsAnswer, error)
	// States returns the states of servers; unknown servers are missing.
	States(ctx context.Context, uuids []string) ([]cellwire.ServerState, error)
	// ServerHosts returns the hosts of servers that are released and not deleted for good: of those
	// with the uuids, or of the first one that is found on some hosts. Unknown servers are missing.
	ServerHosts(ctx context.Context, q cellwire.HostsRequest) ([]cellwire.ServerHosts, error)
	// Unfinished returns the servers that are hidden since before the first time, deleted and not
	// freed, and softly deleted since before the second (zero: none of these). Each list has at
	// most MaxUnfinished, the oldest first. All is of one snapshot, and so are epoch and revision.
	Unfinished(ctx context.Context, hiddenBefore, softBefore time.Time) (cellwire.Unfinished, error)
}

// MigrationStore has the moves of servers between hosts.
type MigrationStore interface {
	// Migrate begins a migration of a server; see [serverstate.Record.Migrate]. Its client is in
	// the context ([cellwire.WithOrigin]).
	Migrate(ctx context.Context, uuid string, q cellwire.MigrateRequest, m Moment) (cellwire.Migration, error)
	// Step does a step of the compute API in the migration with the uuid; see
	// [serverstate.Record.Step].
	Step(ctx context.Context, uuid string, step cellwire.MigrationStep, m Moment) (cellwire.Migration, error)
	// MigrationsDue returns the migrations for which the compute API has something to do: those
	// without a destination, or with allocations to give back. At most MaxUnfinished, the oldest
	// first.
	MigrationsDue(ctx context.Context) ([]cellwire.Migration, error)
	// MigrationsOf returns the open migrations of a server, the oldest first.
	MigrationsOf(ctx context.Context, uuid string) ([]cellwire.Migration, error)
	// Migrations returns the migrations that match a query, open or over, the newest first.
	Migrations(ctx context.Context, q cellwire.MigrationQuery) ([]cellwire.Migration, error)
}

// HostStore has the hosts of a cell, each with its service.
type HostStore interface {
	// Discovery returns what a boot needs: the usage of the project, and all hosts.
	Discovery(ctx context.Context, projectID string, m Moment) (cellwire.Discovery, error)
	// Usage returns what the servers of a project use.
	Usage(ctx context.Context, projectID string) (cellwire.Usage, error)
	// Services returns the services of all hosts, by ID.
	Services(ctx context.Context, m Moment) ([]cellwire.Service, error)
	// PatchService changes a service; its host learns of it.
	PatchService(ctx context.Context, uuid string, p cellwire.ServicePatch, m Moment) (cellwire.Service, error)
	// DeleteService forgets a host and its nodes, and returns its service as it was. It is refused
	// while the host has servers that are not deleted (in use), and while its agent lives
	// (conflict), whether it is forced down or not: with its next report it would be back.
	DeleteService(ctx context.Context, uuid string, m Moment) (cellwire.Service, error)
	// RenameHost gives the host of a service another name, and new names to nodes of it: servers,
	// guests and the service stay as they are. A host that has the name already is returned as it
	// is. It is refused (conflict) while its agent lives or if there is another host of the name,
	// and (in use) while a server on it has a task, or moves from there or to there. With Check it
	// is only refused, or not.
	RenameHost(ctx context.Context, service string, r cellwire.RenameRequest, m Moment) (cellwire.Service, error)
}

// NodeStore has the compute nodes that hosts report.
type NodeStore interface {
	// ComputeNodes returns the nodes that hosts report, by uuid: all, or the unmapped ones.
	ComputeNodes(ctx context.Context, unmapped bool, m Moment) ([]cellwire.ComputeNode, error)
	// CountedNodes returns all nodes that hosts report, each with its number of servers. It reads
	// all living servers.
	CountedNodes(ctx context.Context, m Moment) ([]cellwire.ComputeNode, error)
	// ForgottenNodes returns the uuids of the nodes that the cell forgets as soon as the compute
	// API has.
	ForgottenNodes(ctx context.Context) ([]string, error)
	// NodesState records what the compute API says about nodes.
	NodesState(ctx context.Context, r cellwire.NodesRequest, m Moment) error
	// ForgetNodes forgets nodes and claims that hosts do not report any more. n is how many rows it
	// changed, at most some thousand in one call.
	ForgetNodes(ctx context.Context, m Moment) (n int, err error)
	// CheckAbility refuses (unable) what the host of a server cannot do by its last report, by the
	// name of the ability, and a server without a host (conflict).
	CheckAbility(ctx context.Context, of cellwire.Server, ability string) error
	// MarkMapped records that nodes are in the API database. Unknown nodes are ignored.
	MarkMapped(ctx context.Context, uuids []string) error
}

// AgentStore is what the agents of hosts report, and the work that they receive.
type AgentStore interface {
	// Report registers a host, or records that it lives. Nodes with problems get no new servers on
	// it: all of them, while several agents report as the host. A node's host changes only for one
	// whose certificate names the node.
	Report(ctx context.Context, who serverstate.Reporter, r cellwire.HostReport, m Moment) (
		service cellwire.Service, problems []cellwire.NodeProblem, err error)
	// NodeReporter returns a host, other than the one given, that reports a node; "" if no other
	// does. A host whose certificate names other nodes only is refused (not found).
	NodeReporter(ctx context.Context, who serverstate.Reporter, node string) (host string, err error)
	// Work returns what is new for a host after a revision of an epoch, by revision: as much as
	// fits into MaxAnswer, and at least one item. changed is false if there is nothing. A host that
	// never reported is refused (not found).
	Work(ctx context.Context, host string, after int64, epoch string, m Moment) (
		work cellwire.Work, changed bool, err error)
	// Changes returns the hosts whose work has changed after a revision, by any process, and the
	// revision up to which the list is complete.
	Changes(ctx context.Context, after int64) (hosts []string, revision int64, err error)
	// Apply checks each report of a host about its servers separately, and applies those that pass,
	// all in one transaction.
	Apply(ctx context.Context, host string, reports []cellwire.Report, m Moment) (Applied, error)
}
