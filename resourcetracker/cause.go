// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Cause is the kind of a failure, for programs. People read its error.
type Cause string

// The causes of failed passes.
const (
	// CauseUnavailable: Placement cannot be reached, or has no answer.
	CauseUnavailable Cause = "placement-unavailable"
	// CauseCredentials: Placement refuses the agent's credentials, or it has none.
	CauseCredentials Cause = "credentials-refused"
	// CauseHost: Placement knows the agent as a host, and does not allow that host what it does.
	CauseHost Cause = "host-refused"
	// CauseNotAdmitted: the host reports more than Placement admits to it.
	CauseNotAdmitted Cause = "not-admitted"
	// CauseIdentity: Placement has this name or uuid for another node.
	CauseIdentity Cause = "identity-refused"
	// CauseTooOld: Placement does not know the microversion that the agent needs.
	CauseTooOld Cause = "placement-too-old"
	// CauseUnexpected: what answers is not Placement.
	CauseUnexpected Cause = "placement-unexpected"
	// CauseConflict: another client keeps writing to the same providers.
	CauseConflict Cause = "conflict"
	// CauseInUse: guests use what the driver no longer reports.
	CauseInUse Cause = "in-use"
	// CauseNotReady: the driver does not know yet.
	CauseNotReady Cause = "driver-not-ready"
	// CauseReshapeLate: the driver needs a reshape, which takes place at start-up only.
	CauseReshapeLate Cause = "reshape-late"
	// CauseReshapeAgain: the driver needs a reshape right after one was made.
	CauseReshapeAgain Cause = "reshape-again"
	// CauseDriverOlder: the driver is older than the provider tree.
	CauseDriverOlder Cause = "driver-older"
	// CauseReshapeRefused: the reshape must not be written.
	CauseReshapeRefused Cause = "reshape-refused"
	// CauseState: the state directory cannot be written to.
	CauseState Cause = "state-directory"
	// CauseOther is every other one; most are the driver's.
	CauseOther Cause = "other"
)

// kindOf sorts an error of a pass. Of several joined causes, one that an operator must fix comes
// first.
func kindOf(err error) Cause {
	var refused *reshape.Error
	var again *repeatedReshape
	switch {
	case err == nil:
		return ""
	case isOlder(err):
		return CauseDriverOlder
	case errors.As(err, &again):
		return CauseReshapeAgain
	case errors.As(err, &refused):
		return CauseReshapeRefused
	case errors.Is(err, reportclient.ErrIdentity):
		return CauseIdentity
	case errors.Is(err, reportclient.ErrRefused):
		return CauseCredentials
	case errors.Is(err, reportclient.ErrNotAdmitted):
		return CauseNotAdmitted
	case errors.Is(err, reportclient.ErrHostRefused):
		return CauseHost
	case errors.Is(err, reportclient.ErrTooOld):
		return CauseTooOld
	case errors.Is(err, reportclient.ErrUnavailable):
		return CauseUnavailable
	case errors.Is(err, reportclient.ErrUnexpected):
		return CauseUnexpected
	case errors.Is(err, reportclient.ErrInventoryInUse), errors.Is(err, reportclient.ErrProviderInUse):
		return CauseInUse
	case errors.Is(err, reportclient.ErrConflict):
		return CauseConflict
	case errors.Is(err, plugins.ErrNotReady):
		return CauseNotReady
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return CauseReshapeLate
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return CauseState
	}
	return CauseOther
}
