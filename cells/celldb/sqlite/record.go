// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// rest is what of a server has no column of its own, because nothing asks for it.
type rest struct {
	Flavor       wire.Flavor `json:"flavor"`
	UserData     string      `json:"user_data,omitempty"`
	TrustedCerts []string    `json:"trusted_image_certificates,omitempty"`
	Fault        *wire.Fault `json:"fault,omitempty"`
}

// recordColumns are the columns of a Record, in the order of recordValues and scanRecord; id comes before them.
var recordColumns = []string{"uuid", "project_id", "user_id", "display_name", "display_description", "hostname", "image_ref", "flavor_id", "vcpus", "memory_mb",
	"availability_zone", "config_drive", "disk_config", "access_ip_v4", "access_ip_v6", "locked", "reservation_id", "launch_index", "host", "node", "node_uuid",
	"vm_state", "task_state", "power_state", "created_at", "updated_at", "changed_at", "launched_at", "terminated_at", "deleted_at", "inserted_at", "gone",
	"hidden", "cleanup_due", "unfreed", "revision", "want_revision", "digest", "tags", "metadata", "rest"}

// selectRecords begins a query of rows, with what is known of their hosts. Conditions and orders name the columns i.COLUMN.
var selectRecords = "SELECT i.id, i." + strings.Join(recordColumns, ", i.") + ", " + hostColumns + "%s FROM instances i LEFT JOIN services s ON s.host = i.host "

// hostColumns are those of hostState.
const hostColumns = "s.last_seen_up, s.forced_down, s.stopped, s.disabled"

// insertRecord and updateRecord write all columns.
var (
	insertRecord = "INSERT INTO instances (" + strings.Join(recordColumns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(recordColumns)-1) + ")"
	updateRecord = "UPDATE instances SET " + strings.Join(recordColumns, " = ?, ") + " = ? WHERE id = ?"
)

// hostState is what is known of a server's host; all NULL for one without.
type hostState struct {
	lastSeenUp                    sql.NullInt64
	forcedDown, stopped, disabled sql.NullBool
}

func (h *hostState) up(m celldb.Moment) bool {
	return h.lastSeenUp.Valid && !h.forcedDown.Bool && !h.stopped.Bool && m.Alive(fromMicros(h.lastSeenUp.Int64))
}

// stored is a row and its host.
type stored struct {
	celldb.Record
	host hostState
}

// server is the answer about the row at a moment.
func (r *stored) server(m celldb.Moment) wire.Server {
	s := r.Server
	s.HostUp, s.HostDisabled, s.HostForcedDown = r.host.up(m), r.host.disabled.Bool, r.host.forcedDown.Bool
	return s
}

type scanner interface{ Scan(into ...any) error }

// scanRecord reads a row of selectRecords; more are the columns that the query adds.
func scanRecord(row scanner, more ...any) (*stored, error) {
	var (
		r                                                                                       stored
		s                                                                                       = &r.Server
		flavorID, tags, metadata, others                                                        string
		vcpus, memory, created, updated, changed, launched, terminated, deleted, inserted, gone int64
	)
	err := row.Scan(append([]any{&s.ID, &s.UUID, &s.ProjectID, &s.UserID, &s.Name, &s.Description, &s.Hostname, &s.ImageRef, &flavorID, &vcpus, &memory,
		&s.Zone, &s.ConfigDrive, &s.DiskConfig, &s.AccessIPv4, &s.AccessIPv6, &s.Locked, &s.Reservation, &s.LaunchIndex, &s.Host, &s.Node, &s.NodeUUID,
		&s.VMState, &s.TaskState, &s.PowerState, &created, &updated, &changed, &launched, &terminated, &deleted, &inserted, &gone,
		&s.Hidden, &r.CleanupDue, &r.Unfreed, &s.Revision, &r.WantRevision, &r.Digest, &tags, &metadata, &others,
		&r.host.lastSeenUp, &r.host.forcedDown, &r.host.stopped, &r.host.disabled}, more...)...)
	if err != nil {
		return nil, err
	}
	s.CreatedAt, r.InsertedAt = fromMicros(created), fromMicros(inserted)
	s.UpdatedAt, s.LaunchedAt, s.TerminatedAt, s.DeletedAt = optional(updated), optional(launched), optional(terminated), optional(deleted)
	s.Deleted = gone == goneDeleted
	var o rest
	for text, into := range map[string]any{tags: &s.Tags, metadata: &s.Metadata} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return nil, fmt.Errorf("row of server %s: %w", s.UUID, err)
		}
	}
	if err := json.Unmarshal([]byte(others), &o); err != nil {
		return nil, fmt.Errorf("row of server %s: %w", s.UUID, err)
	}
	s.Flavor, s.UserData, s.TrustedCerts, s.Fault = o.Flavor, o.UserData, o.TrustedCerts, o.Fault
	return &r, nil
}

// The values of gone.
const (
	goneLiving = iota
	goneSoftly
	goneDeleted
)

// recordValues are the values of recordColumns.
func recordValues(r *celldb.Record) ([]any, error) {
	s := &r.Server
	gone := goneLiving
	switch {
	case s.Deleted:
		gone = goneDeleted
	case s.VMState == wire.VMSoftDeleted:
		gone = goneSoftly
	}
	updated := micros(s.UpdatedAt)
	changed := updated
	if changed == 0 {
		changed = s.CreatedAt.UnixMicro()
	}
	var texts [3]string
	for i, v := range []any{s.Tags, s.Metadata, rest{s.Flavor, s.UserData, s.TrustedCerts, s.Fault}} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("row of server %s: %w", s.UUID, err)
		}
		texts[i] = string(text)
	}
	return []any{s.UUID, s.ProjectID, s.UserID, s.Name, s.Description, s.Hostname, s.ImageRef, s.Flavor.ID, s.Flavor.VCPUs, s.Flavor.MemoryMB,
		s.Zone, s.ConfigDrive, s.DiskConfig, s.AccessIPv4, s.AccessIPv6, s.Locked, s.Reservation, s.LaunchIndex, s.Host, s.Node, s.NodeUUID,
		s.VMState, s.TaskState, s.PowerState, s.CreatedAt.UnixMicro(), updated, changed, micros(s.LaunchedAt), micros(s.TerminatedAt), micros(s.DeletedAt),
		r.InsertedAt.UnixMicro(), gone, s.Hidden, r.CleanupDue, r.Unfreed, s.Revision, r.WantRevision, r.Digest, texts[0], texts[1], texts[2]}, nil
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

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// record reads one row; nil when it is not there.
func record(ctx context.Context, db querier, uuid string) (*stored, error) {
	r, err := scanRecord(db.QueryRowContext(ctx, fmt.Sprintf(selectRecords, "")+"WHERE i.uuid = ?", uuid))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r, err
}

// errEnough ends each, with no error.
var errEnough = errors.New("that is enough")

// each calls f for each row of a query, until f has enough.
func each(ctx context.Context, db querier, query string, args []any, f func(scanner) error) (err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return rows.Err()
}
