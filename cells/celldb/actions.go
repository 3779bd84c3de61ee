// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

const insertAction = "INSERT INTO instance_actions (instance_uuid, number, action, request_id, user_id, project_id, " +
	"host, started_at, finished_at, failed, details) " +
	"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

// powerActions are what Nova's history calls power actions.
var powerActions = map[cellwire.PowerAction]cellwire.ActionName{
	cellwire.PowerStart: cellwire.ActionStart, cellwire.PowerStop: cellwire.ActionStop,
	cellwire.PowerReboot: cellwire.ActionReboot, cellwire.PowerRebootHard: cellwire.ActionReboot,
}

// addCreateAction writes the first action of a server when it is released. One that is in error has
// failed.
func (w *writeTx) addCreateAction(ctx context.Context, s *cellwire.Server) error {
	a := cellwire.Action{Number: 1, Name: cellwire.ActionCreate, StartedAt: s.CreatedAt}
	if s.VMState == cellwire.VMError {
		a.FinishedAt, a.Failed = &s.CreatedAt, true
		if s.Fault != nil {
			a.FinishedAt, a.Details = &s.Fault.Created, serverstate.ActionDetails(s.Fault)
		}
	}
	return w.insertAction(ctx, s, a)
}

// addAction writes an action of a server after the change that it made. Those that have not ended
// failed: the host does what was asked for last.
func (w *writeTx) addAction(ctx context.Context, name cellwire.ActionName, s *cellwire.Server, now time.Time) error {
	if name == cellwire.ActionCreate {
		return w.addCreateAction(ctx, s)
	}
	var last int64
	var open bool
	if err := w.QueryRowContext(ctx,
		"SELECT COALESCE(MAX(number), 0), COALESCE(MAX(CASE WHEN finished_at = 0 THEN 1 ELSE 0 END), 0) FROM "+
			"instance_actions WHERE instance_uuid = ?", s.UUID).Scan(&last, &open); err != nil {
		return err
	}
	if open {
		details := "It had not ended when the action " + string(name) + " began."
		if err := w.failAction(ctx, s.UUID, details, now); err != nil {
			return err
		}
	}
	a := cellwire.Action{Number: last + 1, Name: name, StartedAt: now}
	if a.Number > cellwire.MaxActions {
		if _, err := w.ExecContext(ctx, "DELETE FROM instance_actions WHERE instance_uuid = ? AND number <= ?", s.UUID,
			a.Number-cellwire.MaxActions); err != nil {
			return err
		}
	}
	if s.TaskState == "" && name != cellwire.ActionConfirm { // no host has to do anything
		a.FinishedAt = &now
	}
	return w.insertAction(ctx, s, a)
}

// addRepeatedCreate writes that another host builds a server, for the request that asked for it.
func (w *writeTx) addRepeatedCreate(ctx context.Context, s *cellwire.Server, now time.Time) error {
	a := cellwire.Action{Name: cellwire.ActionCreate, StartedAt: now}
	var origin cellwire.Origin
	err := w.QueryRowContext(ctx,
		"SELECT request_id, user_id, project_id FROM instance_actions WHERE instance_uuid = ? AND action = ? ORDER "+
			"BY number LIMIT 1",
		s.UUID, string(cellwire.ActionCreate)).Scan(&origin.RequestID, &origin.UserID, &origin.ProjectID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := w.QueryRowContext(
		ctx, "SELECT COALESCE(MAX(number), 0) + 1 FROM instance_actions WHERE instance_uuid = ?", s.UUID,
	).Scan(&a.Number); err != nil {
		return err
	}
	origin.Traceparent = cellwire.OriginOf(ctx).Traceparent
	return w.insertAction(cellwire.WithOrigin(ctx, origin), s, a)
}

// insertAction writes an action. While it is under way, its details are the trace context of its
// request, which the work for it is given: how it fails replaces that, and its end removes it.
func (w *writeTx) insertAction(ctx context.Context, s *cellwire.Server, a cellwire.Action) error {
	a.Origin = cellwire.OriginOf(ctx)
	if a.FinishedAt == nil {
		a.Details = storableOr(a.Traceparent)
	}
	if a.UserID == "" && a.ProjectID == "" && a.Name == cellwire.ActionCreate {
		a.UserID, a.ProjectID = s.UserID, s.ProjectID
	}
	_, err := w.ExecContext(ctx, insertAction, s.UUID, a.Number, string(a.Name), storableOr(a.RequestID),
		storableOr(a.UserID), storableOr(a.ProjectID), s.Host,
		a.StartedAt.UnixMicro(), micros(a.FinishedAt), a.Failed, a.Details)
	return err
}

// storableOr is a text that every engine takes, "" for one that it does not.
func storableOr(text string) string {
	if !serverstate.Storable(text) {
		return ""
	}
	return textutil.Truncate(text, serverstate.MaxName)
}

// finishActions writes that the actions of servers that are under way succeeded.
func (w *writeTx) finishActions(ctx context.Context, uuids []string, now time.Time) error {
	for len(uuids) > 0 {
		part := uuids[:min(len(uuids), sqldb.MaxListed)]
		uuids = uuids[len(part):]
		parameters, args := sqldb.ListParameters(part)
		if _, err := w.ExecContext(ctx,
			"UPDATE instance_actions SET finished_at = ?, details = '' WHERE finished_at = 0 AND instance_uuid IN "+
				parameters, append([]any{now.UnixMicro()}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// failAction writes that the action of a server that is under way failed.
func (w *writeTx) failAction(ctx context.Context, uuid, details string, now time.Time) error {
	_, err := w.ExecContext(ctx,
		"UPDATE instance_actions SET finished_at = ?, failed = 1, details = ? WHERE finished_at = 0 AND "+
			"instance_uuid = ?",
		now.UnixMicro(), details, uuid)
	return err
}

// requestsUnderWay are the ids and trace contexts of the requests whose actions on servers are
// under way, by server.
func requestsUnderWay(ctx context.Context, db sqldb.Querier, uuids []string) (map[string]cellwire.Origin, error) {
	requests := map[string]cellwire.Origin{}
	for part := range slices.Chunk(uuids, sqldb.MaxListed) {
		parameters, args := sqldb.ListParameters(part)
		if err := sqldb.Each(ctx, db,
			"SELECT instance_uuid, request_id, details FROM instance_actions WHERE finished_at = 0 AND "+
				"instance_uuid IN "+parameters, args,
			func(row sqldb.Row) error {
				var uuid string
				var request cellwire.Origin
				err := row.Scan(&uuid, &request.RequestID, &request.Traceparent)
				requests[uuid] = request
				return err
			}); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

// writeOutcomes writes how actions ended.
func (w *writeTx) writeOutcomes(ctx context.Context, o *serverstate.Outcomes, now time.Time) error {
	for uuid, details := range o.Failed {
		if err := w.failAction(ctx, uuid, details, now); err != nil {
			return err
		}
	}
	return w.finishActions(ctx, o.Succeeded, now)
}

// Actions returns the actions of a server.
func (d *DB) Actions(ctx context.Context, uuid string) (answer cellwire.ActionsAnswer, err error) {
	answer.Actions = []cellwire.Action{}
	err = d.read(ctx, "reading the actions of a server from", func(db sqldb.Querier) error {
		deleted, found, err := sqldb.One(ctx, db,
			sqldb.Value[bool], "SELECT gone = 2 FROM instances WHERE uuid = ?", uuid)
		switch {
		case err != nil:
			return err
		case !found:
			return serverstate.NotFound("server", uuid)
		}
		answer.Deleted = deleted
		return sqldb.Each(ctx, db,
			"SELECT number, action, request_id, user_id, project_id, host, started_at, finished_at, failed, details "+
				"FROM instance_actions "+
				"WHERE instance_uuid = ? ORDER BY number DESC", []any{uuid}, func(row sqldb.Row) error {
				var (
					a                 cellwire.Action
					started, finished int64
				)
				if err := row.Scan(&a.Number, &a.Name, &a.RequestID, &a.UserID, &a.ProjectID, &a.Host, &started,
					&finished, &a.Failed, &a.Details); err != nil {
					return err
				}
				if a.StartedAt, a.FinishedAt = fromMicros(started), optional(finished); a.FinishedAt == nil {
					a.Details = "" // see insertAction
				}
				answer.Actions = append(answer.Actions, a)
				return nil
			})
	})
	return answer, err
}
