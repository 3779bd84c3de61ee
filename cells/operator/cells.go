// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
)

// Cell is a cell of a compute API.
type Cell struct {
	Name     string `json:"name"`
	UUID     string `json:"uuid"`
	URL      string `json:"url"`
	Disabled bool   `json:"disabled"`
	// State is up, down or other database, and Cause why it is not up; empty if the cell was not
	// asked.
	State CellState `json:"state,omitempty"`
	Cause string    `json:"cause,omitempty"`
	Hosts int       `json:"hosts"`
}

// CellState is the state of a cell.
type CellState string

// States of a cell.
const (
	CellUp            CellState = "up"
	CellDown          CellState = "down"
	CellOtherDatabase CellState = "other database"
)

func cellOf(c apidb.Cell) Cell {
	return Cell{Name: c.Name, UUID: c.UUID, URL: c.URL, Disabled: c.Disabled}
}

// CreateCell registers a cell, and asks it how it is.
func (d *Deployment) CreateCell(ctx context.Context, c apidb.Cell) (Cell, error) {
	made, err := d.Store.CreateCell(ctx, c)
	if errors.Is(err, apidb.ErrExists) {
		return Cell{}, fmt.Errorf("%w; `compute-agent cells manage list` shows it, and `cells manage update` changes "+
			"its URL or name", err)
	}
	if err != nil {
		return Cell{}, err
	}
	return d.askCells(ctx, []apidb.Cell{made}, nil)[0], nil
}

// ListCells lists the cells, with their states and how many hosts they have.
func (d *Deployment) ListCells(ctx context.Context) ([]Cell, error) {
	known, err := d.Store.Cells(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := d.Store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, h := range hosts {
		count[h.CellUUID]++
	}
	databases, err := d.Store.CellDatabases(ctx) // before asking the cells, because revisions increase
	if err != nil {
		return nil, err
	}
	cells := d.askCells(ctx, known, databases)
	for i := range cells {
		cells[i].Hosts = count[cells[i].UUID]
	}
	return cells, nil
}

// askCells returns all cells with their states, asked concurrently. databases are their recorded
// databases.
func (d *Deployment) askCells(ctx context.Context, known []apidb.Cell, databases map[string]apidb.CellDatabase) []Cell {
	ask := func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) {
		if _, err := c.ComputeNodes(ctx, true); err != nil { // only the compute API is allowed to do this
			return cellwire.CellInfo{}, err
		}
		return c.Cell(ctx)
	}
	cells := make([]Cell, len(known))
	for i, a := range gather.All(ctx, d.Gatherer, known, ask) {
		cells[i] = cellOf(a.Cell)
		c := &cells[i]
		seen := apidb.CellMark{Epoch: a.Value.Epoch, Revision: a.Value.Revision}
		database := databases[a.Cell.UUID]
		switch {
		case a.Err != nil:
			cause := a.Err
			if down := new(gather.DownError); errors.As(cause, &down) { // the output names the cell
				cause = down.Err
			}
			c.State, c.Cause = CellDown, cause.Error()
		case seen.Revision > 0 && !database.Fits(seen):
			if database.Suspect == nil { // not detected by the compute API yet
				database.Suspect, database.Since = &seen, a.Value.Now
			}
			c.State = CellOtherDatabase
			c.Cause = cellmappings.SuspectCause(database) + " " + cellmappings.SuspectHint(a.Cell)
		default:
			c.State = CellUp
		}
	}
	return cells
}

// ChangeCell changes a cell, which is given by name or uuid. It does not ask it.
func (d *Deployment) ChangeCell(ctx context.Context, which string, change func(*apidb.Cell)) (Cell, error) {
	c, err := d.findCell(ctx, which)
	if err != nil {
		return Cell{}, err
	}
	change(&c)
	return cellOf(c), d.Store.UpdateCell(ctx, c)
}

// DeleteCell removes a cell, which is given by name or uuid, and returns its name. [RefusedError]
// for one with hosts or servers; with force, for one with servers that are not deleted.
func (d *Deployment) DeleteCell(ctx context.Context, which string, force bool) (name string, err error) {
	c, err := d.findCell(ctx, which)
	if err != nil {
		return "", err
	}
	err = d.Store.DeleteCell(ctx, c.UUID, force)
	if errors.Is(err, apidb.ErrInUse) {
		err = &RefusedError{err}
	}
	return c.Name, err
}

// Acceptance is the answer of accept.
type Acceptance struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// Accepted is false if the cell's database has not changed.
	Accepted bool  `json:"accepted"`
	Before   *Mark `json:"before"`
	Now      Mark  `json:"now"`
	// Living counts servers of the API database that are not deleted, and Unknown those of them
	// that the cell does not have. Deleted counts deleted ones, and Back those of them that the
	// cell has.
	Living  int `json:"living"`
	Unknown int `json:"unknown"`
	Deleted int `json:"deleted"`
	Back    int `json:"back"`
}

// Mark is which database a cell has, and how old that is.
type Mark struct {
	Epoch    string `json:"epoch"`
	Revision int64  `json:"revision"`
}

// AcceptCell accepts the database that a cell has now, and returns how it differs from what is
// known of the cell, which is given by name or uuid. [RefusedError] if the database changes again
// meanwhile.
func (d *Deployment) AcceptCell(ctx context.Context, which string) (*Acceptance, error) {
	c, err := d.findCell(ctx, which)
	if err != nil {
		return nil, err
	}
	found, err := cellmappings.Compare(ctx, d.Store, d.Gatherer, c)
	switch {
	case errors.Is(err, cellmappings.ErrChanged):
		return nil, refused("%w; nothing was accepted, run the command again after the restore is complete", err)
	case err != nil:
		return nil, fmt.Errorf("%w; nothing was accepted", err)
	case found.Now.Revision < 1:
		return nil, fmt.Errorf("cell %s does not report the revision of its database, because its version is older "+
			"than this one; upgrade it. Nothing was accepted", c.Name)
	}
	before := found.Before
	a := &Acceptance{
		Name: c.Name, UUID: c.UUID, Now: Mark(found.Now),
		Living: found.Living, Unknown: found.Unknown, Deleted: found.Deleted, Back: found.Back,
		Accepted: before.Known.Epoch == "" || before.Suspect != nil || !before.Fits(found.Now),
	}
	if before.Known.Epoch != "" {
		a.Before = (*Mark)(&before.Known)
	}
	if !a.Accepted {
		return a, nil
	}
	return a, d.Store.AcceptCell(ctx, c.UUID, found.Now)
}
