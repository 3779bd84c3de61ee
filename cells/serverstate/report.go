// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/plugins"
)

// Bounds of a fault, in bytes: those of Nova's instance_faults.
const (
	maxFaultMessage = 255
	maxFaultDetails = 65535
)

// Apply applies a report of the host that the server is on. refused says why a report is invalid;
// "" if it was accepted. A report that comes too late to mean anything is accepted and changes
// nothing.
func (r *Record) Apply(report cellwire.Report, now time.Time) (changed bool, refused string) {
	if !slices.Contains(powerStates, report.PowerState) {
		return false, fmt.Sprintf("%d is no power state", report.PowerState)
	}
	switch report.Kind {
	case cellwire.ReportSpawned:
		return r.applySpawned(report.PowerState, now)
	case cellwire.ReportFailed:
		return r.applyFailed(report.Fault, now)
	case cellwire.ReportPower:
		return r.setPowerState(report.PowerState), ""
	case cellwire.ReportGone:
		return r.applyGone(now)
	case cellwire.ReportSettled:
		return r.applySettled(report, now)
	}
	return false, fmt.Sprintf("%q is no kind of report", report.Kind)
}

// deleting reports whether a report about how the guest is comes too late.
func (r *Record) deleting() bool {
	return r.Server.Deleted || r.Server.TaskState == cellwire.TaskDeleting
}

func (r *Record) applySpawned(power plugins.PowerState, now time.Time) (bool, string) {
	s := &r.Server
	switch {
	case r.deleting():
		return false, ""
	case s.VMState == cellwire.VMError:
		return false, "the server is in error: its build was reported as failed"
	case s.VMState != cellwire.VMBuilding: // a repetition
		return false, ""
	}
	at := TruncateTime(now)
	s.VMState, s.TaskState, s.LaunchedAt = cellwire.VMActive, "", &at
	r.setPowerState(power)
	return true, ""
}

func (r *Record) applyFailed(fault *cellwire.Fault, now time.Time) (bool, string) {
	s := &r.Server
	switch {
	case r.deleting(), s.VMState == cellwire.VMError, r.awaitsReschedule():
		return false, ""
	case s.VMState != cellwire.VMBuilding:
		return false, fmt.Sprintf("the server is built: it is in vm_state %s", s.VMState)
	}
	if fault == nil {
		fault = &cellwire.Fault{Code: 500, Message: "The host did not say why it could not build the server."}
	}
	s.VMState, s.TaskState, s.PowerState, s.Fault = cellwire.VMError, "", plugins.PowerNoState, boundedFault(fault, now)
	if s.Retries > 0 {
		r.rescheduleBuild(now)
	}
	return true, ""
}

// awaitsReschedule reports whether the host of the server cannot build it, and has nothing of it:
// the compute API chooses another one.
func (r *Record) awaitsReschedule() bool {
	s := &r.Server
	return s.VMState == cellwire.VMBuilding && s.TaskState == cellwire.TaskScheduling && s.Fault != nil
}

// boundedFault is a fault of a report within its bounds.
func boundedFault(fault *cellwire.Fault, now time.Time) *cellwire.Fault {
	f := *fault
	if f.Created.IsZero() {
		f.Created = now
	}
	f.Created = TruncateTime(f.Created)
	f.Message = textutil.Truncate(f.Message, maxFaultMessage)
	f.Details = textutil.Truncate(f.Details, maxFaultDetails)
	return &f
}

// setPowerState follows Nova's _sync_instance_power_state: the power state is always noted, and
// decides the vm_state only while no task is under way. Unlike Nova's, a guest that runs although
// its server is stopped is not stopped again: the user who started it had a reason, so the server
// is active.
func (r *Record) setPowerState(power plugins.PowerState) bool {
	s := &r.Server
	if r.deleting() {
		return false
	}
	before, state := s.PowerState, s.VMState
	s.PowerState = power
	switch {
	case s.TaskState != "":
	case s.VMState == cellwire.VMActive && (power == plugins.PowerShutdown || power == plugins.PowerCrashed):
		s.VMState = cellwire.VMStopped
	case s.VMState == cellwire.VMStopped && power == plugins.PowerRunning:
		s.VMState = cellwire.VMActive
	}
	return s.PowerState != before || s.VMState != state
}

func (r *Record) applyGone(now time.Time) (bool, string) {
	switch s := &r.Server; {
	case s.Deleted:
		// The host has removed the allocations as well.
		changed := r.CleanupDue || r.Unfreed
		r.CleanupDue, r.Unfreed = false, false
		return changed, ""
	case s.TaskState == cellwire.TaskDeleting:
		r.markDeleted(now)
		return true, ""
	default:
		return false, fmt.Sprintf("no client has asked to delete the server: it is in vm_state %s, task_state %s",
			s.VMState, orNone(s.TaskState))
	}
}

func (r *Record) applySettled(report cellwire.Report, now time.Time) (bool, string) {
	s := &r.Server
	want := r.DesiredState()
	switch {
	case r.deleting():
		return false, ""
	case report.Revision < r.WantRevision:
		return false, fmt.Sprintf("the desired state has changed since revision %d, at %d",
			report.Revision, r.WantRevision)
	case !slices.Contains(settledWants, want):
		return false, "the server is to be neither running again nor shut down nor rebuilt"
	case report.Fault != nil && (want == cellwire.WantCleared || want == cellwire.WantRebuilt):
		return r.applyRebuildFailed(report, now)
	case report.Fault != nil:
		return r.applyPowerFailed(report, now)
	}
	switch s.TaskState {
	case cellwire.TaskRebooting:
		s.TaskState, s.PowerState = cellwire.TaskRebootStarted, report.PowerState
	case cellwire.TaskRebootingHard:
		s.TaskState, s.PowerState = cellwire.TaskRebootStartedHard, report.PowerState
	case cellwire.TaskRebuilding:
		s.TaskState, s.PowerState, r.Former = cellwire.TaskRebuildSpawning, report.PowerState, nil
	case cellwire.TaskRebuildSpawning:
		r.applyRebuilt(report.PowerState, now)
	case cellwire.TaskPoweringOff:
		s.VMState, s.TaskState = cellwire.VMStopped, ""
		r.setPowerState(report.PowerState)
	case cellwire.TaskSoftDeleting:
		s.VMState, s.TaskState, s.PowerState = cellwire.VMSoftDeleted, "", report.PowerState
	case cellwire.TaskRestoring, cellwire.TaskPoweringOn, cellwire.TaskRebootStarted, cellwire.TaskRebootStartedHard:
		s.VMState, s.TaskState = cellwire.VMActive, ""
		r.setPowerState(report.PowerState)
	case cellwire.TaskResizeReverting:
		s.VMState, s.TaskState = cellwire.VMStopped, ""
		if want == cellwire.WantRunning {
			s.VMState = cellwire.VMActive
		}
		r.endReverted()
		r.setPowerState(report.PowerState)
	default: // softly deleted
		changed := s.PowerState != report.PowerState
		s.PowerState = report.PowerState
		return changed, ""
	}
	return true, ""
}

// settledWants are the desired states that a ReportSettled may report as reached.
var settledWants = []cellwire.Want{cellwire.WantShutdown,
	cellwire.WantRunning, cellwire.WantCleared, cellwire.WantRebuilt}

// applyRebuilt ends a rebuild. As in Nova a server that was stopped is stopped again.
func (r *Record) applyRebuilt(power plugins.PowerState, now time.Time) {
	s, at := &r.Server, TruncateTime(now)
	s.LaunchedAt, s.TaskState, s.PowerState = &at, "", power
	if s.VMState == cellwire.VMStopped {
		s.TaskState = cellwire.TaskPoweringOff
		return
	}
	s.VMState = cellwire.VMActive
	r.setPowerState(power)
}

// applyRebuildFailed ends a rebuild. In its first half nothing was removed: the server is as
// before, and only its action shows the failure, unless a process of an older version dropped the
// former state. In its second half there is no guest: the server is in error. It keeps its
// allocations, so it can be rebuilt again.
func (r *Record) applyRebuildFailed(report cellwire.Report, now time.Time) (bool, string) {
	s := &r.Server
	if former := r.Former; s.TaskState == cellwire.TaskRebuilding && former != nil {
		former.restore(s)
		s.TaskState, s.Fault, r.Former = "", boundedFault(report.Fault, now), nil
		r.setPowerState(report.PowerState)
		return true, ""
	}
	s.VMState, s.TaskState, s.PowerState, s.Fault =
		cellwire.VMError, "", report.PowerState, boundedFault(report.Fault, now)
	return true, ""
}

// applyPowerFailed ends a power action that its host cannot do. Unlike in Nova the server is not in
// error after a reboot that failed: it is active or stopped as its guest is, so that it can be
// started.
func (r *Record) applyPowerFailed(report cellwire.Report, now time.Time) (bool, string) {
	s := &r.Server
	if s.TaskState == cellwire.TaskSoftDeleting || s.TaskState == cellwire.TaskRestoring || s.TaskState == "" {
		return false, "no power action is under way"
	}
	s.VMState, s.TaskState, s.PowerState, s.Fault =
		cellwire.VMStopped, "", report.PowerState, boundedFault(report.Fault, now)
	if report.PowerState == plugins.PowerRunning {
		s.VMState = cellwire.VMActive
	}
	r.endReverted()
	return true, ""
}
