// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"

	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// olderDriver is the error about a driver whose layout version is lower than the tree's, or that
// has none.
func (t *Tracker) olderDriver(d draft, recorded, driver int) error {
	e := &reshape.OlderDriverError{Recorded: recorded, Driver: driver}
	if history, err := t.history(d.Node.UUID); err == nil { // it only helps to say what can be done
		e.Reshape = reshape.ToUndo(history, driver)
	}
	return e
}

func (t *Tracker) history(root string) ([]journal.Entry, error) {
	if t.config.Journal == nil {
		return nil, nil
	}
	return t.config.Journal.History(root)
}

// checkReturned refuses an answer with inventory on a provider that a reshape took it away from,
// while it is also where the reshape put it: a driver that is older than the reshape answers so. An
// answer to a reshape is not checked.
//
// Cost: nothing while no provider gets a resource class that it has not had; else one read of the
// journal.
func (t *Tracker) checkReturned(d draft) error {
	if t.config.Journal == nil || d.Before != nil {
		return nil
	}
	back := d.Returned()
	if len(back) == 0 {
		return nil
	}
	history, err := t.history(d.Node.UUID)
	if err != nil {
		return &passError{step: "reading the journal of reshapes", err: err}
	}
	return d.CheckReturned(back, history)
}

// isOlder reports whether a pass failed because the driver is older than the tree.
func isOlder(err error) bool {
	var older *reshape.OlderDriverError
	return errors.As(err, &older)
}
