// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
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

// Moment is when something is done, by the cell's clock, and what counts as life then.
type Moment struct {
	Now time.Time
	// DownTime is how long after its last word a host still counts as up.
	DownTime time.Duration
}

// Alive says whether a host with that last word shows life: as in Nova, a word from the future,
// after the clock was set back, is as good as one from the past.
func (m Moment) Alive(lastSeenUp time.Time) bool {
	return !lastSeenUp.IsZero() && m.Now.Sub(lastSeenUp).Abs() <= m.DownTime
}

// Info is whose database it is.
type Info struct {
	Name string
	// Epoch is made with the database.
	Epoch string
	// Revision is that of the last change; at least 1.
	Revision int64
	// Term is the highest of a change that came with one; 0: none did.
	Term int64
}

// MaxUnfinished is how many servers of each kind an answer of Unfinished has at most, oldest first.
const MaxUnfinished = 10000

// Store is a cell's database. All methods are safe for concurrent use. A refusal is a
// *cellwire.Error; other errors wrap those above, or that of the context. A method that returns an
// error has written nothing; only when the disk failed in the middle of a commit it may have, which
// is why all of them can be repeated.
//
// A change whose context has a term ([cellwire.WithTerm]) lower than that of a change before is
// refused (outdated).
//
// Servers in answers carry HostUp, HostDisabled and HostForcedDown as of the moment.
type Store interface {
	// Check reports whether the database is whole: the one that was opened, with all of its tables.
	// It is cheap enough for every request: it reads one row, and waits for no other method.
	Check(ctx context.Context) error
	// Info is whose database it is. It waits for no other method.
	Info(ctx context.Context) (Info, error)

	// Servers is a page of servers, hidden ones not among them: as many as fit into MaxAnswer, and
	// at least one. The cost of a page that is sorted by created_at is O(limit).
	Servers(ctx context.Context, q cellwire.ServerQuery, m Moment) (cellwire.ServerPage, error)
	// Server is one server, in whatever state: hidden and deleted ones too.
	Server(ctx context.Context, uuid string, m Moment) (cellwire.Server, error)
	// Insert makes a hidden row. The same row again is answered as it is by now; another one of the
	// uuid is refused (exists).
	Insert(ctx context.Context, s cellwire.Server, m Moment) (cellwire.Server, error)
	// Release shows a hidden row and lets its host begin.
	Release(ctx context.Context, uuid string, m Moment) (cellwire.Server, error)
	// Discard erases a hidden row; a released one is refused (conflict), and one that is not there
	// is no error.
	Discard(ctx context.Context, uuid string) error
	// Delete asks the host to delete, or deletes; see [Record.Delete].
	Delete(ctx context.Context, uuid string, kind cellwire.DeleteKind, m Moment) (cellwire.DeleteAnswer, error)
	// Restore takes a soft delete back.
	Restore(ctx context.Context, uuid string, m Moment) (cellwire.Server, error)
	// Patch changes what a server is called and marked with; see [Record.Patch].
	Patch(ctx context.Context, uuid string, patch cellwire.ServerPatch, m Moment) (cellwire.Server, error)
	// Rebuild begins to make the guest of a server again.
	Rebuild(ctx context.Context, uuid string, request cellwire.RebuildRequest, m Moment) (cellwire.Server, error)
	// Power begins a power action; see [Record.Power].
	Power(ctx context.Context, uuid string, action cellwire.PowerAction, m Moment) (cellwire.Server, error)
	// Reset has an administrator say in which state a server is; see [Record.Reset].
	Reset(ctx context.Context, uuid string, request cellwire.ResetRequest, m Moment) (cellwire.Server, error)
	// Migrate begins a migration of a server; see [Record.Migrate]. Its client is in the context
	// ([cellwire.WithOrigin]).
	Migrate(ctx context.Context, uuid string, q cellwire.MigrateRequest, m Moment) (cellwire.Migration, error)
	// Step does what the compute API says about a migration, by its uuid; see [Record.Step].
	Step(ctx context.Context, uuid string, step cellwire.MigrationStep, m Moment) (cellwire.Migration, error)
	// MigrationsDue are those about which the compute API has something to do: without a
	// destination, or with allocations to give back. At most MaxUnfinished, the oldest first.
	MigrationsDue(ctx context.Context) ([]cellwire.Migration, error)
	// MigrationsOf are those of a server that are not over.
	MigrationsOf(ctx context.Context, uuid string) ([]cellwire.Migration, error)
	// Migrations are those of a query, over or not, the newest first.
	Migrations(ctx context.Context, q cellwire.MigrationQuery) ([]cellwire.Migration, error)
	// Actions are what clients asked for a server with Insert, Delete, Restore and Power, at most
	// [cellwire.MaxActions], deleted or not. Their origin is that of the context
	// ([cellwire.WithOrigin]).
	Actions(ctx context.Context, uuid string) (cellwire.ActionsAnswer, error)
	// Freed notes that the compute API has removed the allocations of a deleted server.
	Freed(ctx context.Context, uuid string) error
	// States returns the states of servers; unknown servers are missing.
	States(ctx context.Context, uuids []string) ([]cellwire.ServerState, error)
	// ServerHosts are the hosts of servers that are released and not deleted for good, by their
	// uuids, or of the first one that is found on some hosts; unknown servers are missing.
	ServerHosts(ctx context.Context, q cellwire.HostsRequest) ([]cellwire.ServerHosts, error)
	// Unfinished has the servers that are hidden since before the first time, deleted and not
	// freed, and softly deleted since before the second (zero: none of these). Each at most
	// MaxUnfinished, oldest first. All is of one snapshot, and so are epoch and revision.
	Unfinished(ctx context.Context, hiddenBefore, softBefore time.Time) (cellwire.Unfinished, error)

	// Discovery is what a boot asks: what the project uses, and all hosts.
	Discovery(ctx context.Context, projectID string, m Moment) (cellwire.Discovery, error)
	// Usage is that of a project alone.
	Usage(ctx context.Context, projectID string) (cellwire.Usage, error)
	// Services are those of all hosts, by ID.
	Services(ctx context.Context, m Moment) ([]cellwire.Service, error)
	// PatchService changes a service; its host learns of it.
	PatchService(ctx context.Context, uuid string, p cellwire.ServicePatch, m Moment) (cellwire.Service, error)
	// DeleteService forgets a host and its nodes, and says what the service was. It is refused
	// while the host has servers that are not deleted (in use), and while its agent lives
	// (conflict), whether it is forced down or not: with its next report it would be back.
	DeleteService(ctx context.Context, uuid string, m Moment) (cellwire.Service, error)
	// RenameHost gives the host of a service another name, and new names to nodes of it: servers,
	// guests and the service stay as they are. A host that has the name already is answered as it
	// is. It is refused (conflict) while its agent lives or if there is another host of the name,
	// and (in use) while a server on it has a task, or moves from there or to there. With Check it
	// is only refused, or not.
	RenameHost(ctx context.Context, service string, r cellwire.RenameRequest, m Moment) (cellwire.Service, error)
	// ComputeNodes are the nodes that hosts report, by uuid: all, or those that are not mapped.
	ComputeNodes(ctx context.Context, unmapped bool, m Moment) ([]cellwire.ComputeNode, error)
	// CountedNodes are all of them with how many servers each has; it reads all living servers.
	CountedNodes(ctx context.Context, m Moment) ([]cellwire.ComputeNode, error)
	// ForgottenNodes are those that ForgetNodes waits with for the compute API.
	ForgottenNodes(ctx context.Context) ([]string, error)
	// NodesState takes what the compute API says about nodes.
	NodesState(ctx context.Context, r cellwire.NodesRequest, m Moment) error
	// ForgetNodes forgets nodes and claims that hosts do not report any more. n is how many rows it
	// changed, at most some thousand in one call.
	ForgetNodes(ctx context.Context, m Moment) (n int, err error)
	// CheckAbility refuses (unable) what the host of a server cannot do by its last report, by the
	// name of the ability, and a server without a host (conflict).
	CheckAbility(ctx context.Context, of cellwire.Server, ability string) error
	// Mapped notes that nodes are in the API database. Those that are not there are left out.
	Mapped(ctx context.Context, uuids []string) error

	// Report registers a host, or shows that it lives. Nodes with problems get no new servers on
	// it: all of them, while several agents report as the host. A node's host changes only for one
	// whose certificate names the node.
	Report(ctx context.Context, who Reporter, r cellwire.HostReport,
		m Moment) (service cellwire.Service, problems []cellwire.NodeProblem, err error)
	// NodeReporter is a host, other than the one given, that reports a node; "": none does. A host
	// whose certificate names other nodes only is refused (not found).
	NodeReporter(ctx context.Context, who Reporter, node string) (host string, err error)
	// Work is what is new for a host after a revision of an epoch, by revision, as much as fits
	// into MaxAnswer, and at least one; changed is false when there is nothing. A host that never
	// reported is refused (not found).
	Work(ctx context.Context, host string, after int64,
		epoch string, m Moment) (work cellwire.Work, changed bool, err error)
	// Changes are the hosts whose work has changed after a revision, whichever process changed it,
	// and the revision until which that is so.
	Changes(ctx context.Context, after int64) (hosts []string, revision int64, err error)
	// Apply takes what a host reports, all in one transaction, each judged alone.
	Apply(ctx context.Context, host string, reports []cellwire.Report, m Moment) (Applied, error)

	// SchemaVersion is how many schema steps the database has had, and how many this program knows.
	SchemaVersion(ctx context.Context) (has, knows int, err error)
	Close() error
}
