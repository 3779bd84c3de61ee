// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestKindOf: the kind of a failure does not depend on how deep it is wrapped, or on what is joined
// to it.
func TestKindOf(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for want, err := range map[Cause]error{
		CauseUnavailable: reportclient.ErrUnavailable, CauseCredentials: reportclient.ErrRefused,
		CauseHost: reportclient.ErrHostRefused, CauseNotAdmitted: reportclient.ErrNotAdmitted,
		CauseIdentity: reportclient.ErrIdentity,
		CauseTooOld:   reportclient.ErrTooOld, CauseUnexpected: reportclient.ErrUnexpected,
		CauseConflict: reportclient.ErrConflict,
		CauseInUse:    reportclient.ErrInventoryInUse,
		CauseNotReady: plugins.ErrNotReady, CauseReshapeLate: &lateReshape{plugins.ErrReshapeNeeded},
		CauseReshapeRefused: &reshape.Error{Problem: "no"}, CauseState: syscall.EROFS,
		CauseOther: errors.New("garbage"),
	} {
		wrapped := errors.Join(errors.New("something else"),
			&passError{step: "a step", err: fmt.Errorf("deep: %w", err)})
		testproc.Equal(t, kindOf(wrapped), want, "%v is %q", err)
	}
	if got := kindOf(errors.Join(reportclient.ErrUnavailable,
		&reshape.Error{Problem: "no"})); got != CauseReshapeRefused {
		t.Errorf("the cause that an operator must fix comes first: %q", got)
	}
	testproc.Equal(t, kindOf(nil), "", "nothing is %q")
}
