// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// restColumn is what of a server has no column of its own, because nothing asks for it.
type restColumn struct {
	Flavor       cellwire.Flavor     `json:"flavor"`
	UserData     string              `json:"user_data,omitempty"`
	TrustedCerts []string            `json:"trusted_image_certificates,omitempty"`
	Fault        *cellwire.Fault     `json:"fault,omitempty"`
	Former       *serverstate.Former `json:"former,omitempty"`
	Retries      int                 `json:"retries,omitempty"`
}

// The columns of a Record, in the order of recordValues: those that are read, in the order of
// recordReader, for which id comes before them, and those that are there for conditions, whose
// values are in others as well.
var (
	readColumns = []string{"uuid", "project_id", "user_id",
		"display_name", "display_description", "hostname", "image_ref", "availability_zone", "config_drive",
		"disk_config", "access_ip_v4", "access_ip_v6", "locked", "reservation_id", "launch_index", "host", "node",
		"node_uuid", "vm_state", "task_state",
		"power_state", "created_at", "updated_at", "launched_at", "terminated_at", "deleted_at", "inserted_at", "gone",
		"hidden", "cleanup_due", "unfreed",
		"revision", "want_revision", "digest", "tags", "metadata", "rest", "key_name", "key_data"}
	searchColumns = []string{"flavor_id", "vcpus", "memory_mb", "changed_at"}
	recordColumns = slices.Concat(readColumns, searchColumns)
)

// selectRecords begins a query of rows, with what is known of their hosts. Conditions and orders
// name the columns i.COLUMN.
var selectRecords = "SELECT i.id, i." + strings.Join(readColumns, ", i.") + ", " + hostColumns +
	"%s FROM instances i LEFT JOIN services s ON s.host = i.host "

// hostColumns are the columns of table services that a hostState is read from.
const hostColumns = "s.last_seen_up, s.forced_down, s.stopped, s.disabled"

// insertRecord and updateRecord write all columns.
var (
	insertRecord = "INSERT INTO instances (" + strings.Join(recordColumns, ", ") + ") VALUES (?" +
		strings.Repeat(", ?", len(recordColumns)-1) + ")"
	updateRecord = "UPDATE instances SET " + strings.Join(recordColumns, " = ?, ") + " = ? WHERE id = ?"
)

// hostState is what is known of a server's host; all NULL for one without.
type hostState struct {
	lastSeenUp                    sql.NullInt64
	forcedDown, stopped, disabled sql.NullBool
}

func (h *hostState) up(m Moment) bool {
	return h.lastSeenUp.Valid && !h.forcedDown.Bool && !h.stopped.Bool && m.Alive(fromMicros(h.lastSeenUp.Int64))
}

// stored is a row and its host.
type stored struct {
	serverstate.Record
	host hostState
}

// server is the answer about the row at a moment.
func (st *stored) server(m Moment) cellwire.Server {
	s := st.Server
	s.HostUp, s.HostDisabled, s.HostForcedDown = st.host.up(m), st.host.disabled.Bool, st.host.forcedDown.Bool
	return s
}

// serverFor is the server as a host gets it in its work. Its former host, which removes or shuts
// down the guest by its uuid, gets no data that was set since.
func (st *stored) serverFor(host string, m Moment) cellwire.Server {
	s := st.server(m)
	if s.Host == host {
		return s
	}
	return cellwire.Server{
		UUID: s.UUID, Name: s.Name, CreatedAt: s.CreatedAt, Revision: s.Revision,
		Host: s.Host, Node: s.Node, NodeUUID: s.NodeUUID, VMState: s.VMState,
	}
}

// recordReader reads rows of selectRecords, one after another.
type recordReader struct {
	into []any // where Scan puts what it finds
	row  stored

	created, updated, launched, terminated, deleted, inserted, gone int64
	tags, metadata, others                                          string
	keyData                                                         sql.NullString

	// The rest of the row before: the servers of a page have few flavors, and it is read once for
	// those that follow each other.
	before string
	rest   restColumn
}

// newRecordReader makes a reader; more are for the columns that the query adds.
func newRecordReader(more ...any) *recordReader {
	r := &recordReader{}
	s, h := &r.row.Server, &r.row.host
	r.into = append([]any{&s.ID, &s.UUID, &s.ProjectID, &s.UserID, &s.Name, &s.Description, &s.Hostname,
		&s.ImageRef, &s.Zone, &s.ConfigDrive,
		&s.DiskConfig, &s.AccessIPv4, &s.AccessIPv6, &s.Locked, &s.Reservation, &s.LaunchIndex, &s.Host, &s.Node,
		&s.NodeUUID, &s.VMState, &s.TaskState,
		&s.PowerState, &r.created, &r.updated, &r.launched, &r.terminated, &r.deleted, &r.inserted, &r.gone, &s.Hidden,
		&r.row.CleanupDue, &r.row.Unfreed,
		&s.Revision, &r.row.WantRevision, &r.row.Digest, &r.tags, &r.metadata, &r.others, &s.KeyName, &r.keyData,
		&h.lastSeenUp, &h.forcedDown, &h.stopped, &h.disabled}, more...)
	return r
}

// read reads a row. What it returns is good until the next is read; of servers that are copied of
// it, the maps within the flavor are common to those with the same one, and not to be changed.
func (r *recordReader) read(row sqldb.Row) (*stored, error) {
	if err := row.Scan(r.into...); err != nil {
		return nil, err
	}
	s := &r.row.Server
	s.CreatedAt, r.row.InsertedAt = fromMicros(r.created), fromMicros(r.inserted)
	s.UpdatedAt, s.LaunchedAt, s.TerminatedAt, s.DeletedAt = optional(r.updated), optional(r.launched),
		optional(r.terminated), optional(r.deleted)
	s.Deleted, s.Tags, s.Metadata, s.KeyData = r.gone == goneDeleted, nil, nil, r.keyData.String
	err := errors.Join(fromText(r.tags, &s.Tags), fromText(r.metadata, &s.Metadata))
	if err == nil && r.others != r.before {
		r.before, r.rest = r.others, restColumn{}
		err = fromText(r.others, &r.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("row of server %s: %w", s.UUID, err)
	}
	s.Flavor, s.UserData, s.TrustedCerts, s.Fault = r.rest.Flavor, r.rest.UserData, r.rest.TrustedCerts, r.rest.Fault
	r.row.Former, s.Retries = r.rest.Former, r.rest.Retries
	return &r.row, nil
}

// fromText reads the JSON of a column into what is empty.
func fromText(text string, into any) error {
	if text == "null" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// The values of gone.
const (
	goneLiving = iota
	goneSoftly
	goneDeleted
)

// recordValues are the values of recordColumns.
func recordValues(r *serverstate.Record) ([]any, error) {
	s := &r.Server
	gone := goneLiving
	switch {
	case s.Deleted:
		gone = goneDeleted
	case s.VMState == cellwire.VMSoftDeleted:
		gone = goneSoftly
	}
	updated := micros(s.UpdatedAt)
	changed := updated
	if changed == 0 {
		changed = s.CreatedAt.UnixMicro()
	}
	var texts [3]string
	for i, v := range []any{
		s.Tags, s.Metadata, restColumn{s.Flavor, s.UserData, s.TrustedCerts, s.Fault, r.Former, s.Retries},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("row of server %s: %w", s.UUID, err)
		}
		texts[i] = string(text)
	}
	return []any{s.UUID, s.ProjectID, s.UserID, s.Name, s.Description, s.Hostname, s.ImageRef, s.Zone, s.ConfigDrive,
		s.DiskConfig, s.AccessIPv4, s.AccessIPv6, s.Locked,
		s.Reservation, s.LaunchIndex, s.Host, s.Node, s.NodeUUID, s.VMState, s.TaskState,
		s.PowerState, s.CreatedAt.UnixMicro(), updated, micros(s.LaunchedAt), micros(s.TerminatedAt),
		micros(s.DeletedAt), r.InsertedAt.UnixMicro(), gone, s.Hidden,
		r.CleanupDue, r.Unfreed, s.Revision, r.WantRevision, r.Digest, texts[0], texts[1], texts[2], s.KeyName,
		sql.NullString{String: s.KeyData, Valid: s.KeyData != ""},
		s.Flavor.ID, s.Flavor.VCPUs, s.Flavor.MemoryMB, changed}, nil
}

func micros(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

func optional(n int64) *time.Time {
	if n == 0 {
		return nil
	}
	t := fromMicros(n)
	return &t
}

// record reads one row; nil when it is not there.
func record(ctx context.Context, db sqldb.Querier, uuid string) (*stored, error) {
	r, err := newRecordReader().read(db.QueryRowContext(ctx, fmt.Sprintf(selectRecords, "")+"WHERE i.uuid = ?", uuid))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r, err
}

// records are the rows that are there of some, by their uuid.
func records(ctx context.Context, db sqldb.Querier, uuids []string) (map[string]*stored, error) {
	out := make(map[string]*stored, len(uuids))
	for part := range slices.Chunk(uuids, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		reader := newRecordReader()
		err := sqldb.Each(ctx, db, fmt.Sprintf(selectRecords, "")+"WHERE i.uuid IN "+parameters, args,
			func(row sqldb.Row) error {
				r, err := reader.read(row)
				if err != nil {
					return err
				}
				one := *r
				out[one.Server.UUID] = &one
				return nil
			})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
