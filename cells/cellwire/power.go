// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"
	"slices"
)

// PowerAction changes the power of a server's guest.
type PowerAction string

// The actions.
const (
	PowerStart PowerAction = "start"
	// PowerStop asks the guest to shut down, and switches it off when it does not.
	PowerStop PowerAction = "stop"
	// PowerReboot is PowerStop and then PowerStart.
	PowerReboot PowerAction = "reboot"
	// PowerRebootHard switches the guest off without asking it, and starts it.
	PowerRebootHard PowerAction = "reboot-hard"
)

// PowerRequest asks a cell for a power action. The host does it when it is up.
type PowerRequest struct {
	Action PowerAction `json:"action"`
}

// powerRule says when a power action is allowed, as Nova has it, and which task it begins.
type powerRule struct {
	name         string // in Nova's API
	task         string
	states, busy []string // the vm_states that allow it, and the task_states besides none
	hosted       bool     // Nova looks at the host first
}

var powerRules = map[PowerAction]powerRule{
	PowerStart:  {name: "start", task: TaskPoweringOn, states: []string{VMStopped}, hosted: true},
	PowerStop:   {name: "stop", task: TaskPoweringOff, states: []string{VMActive, VMError}, hosted: true},
	PowerReboot: {name: "reboot", task: TaskRebooting, states: []string{VMActive}},
	PowerRebootHard: {
		name: "reboot", task: TaskRebootingHard, states: []string{VMActive, VMStopped, VMError},
		busy: []string{TaskRebooting, TaskRebootStarted, TaskRebootingHard},
	},
}

// Task is the task_state of a server for which the action was accepted.
func (a PowerAction) Task() string { return powerRules[a].task }

// Check refuses the action for a server whose state does not allow it (conflict), in Nova's words.
// It is for the cell, which decides, and for servers that are not in a cell yet.
func (a PowerAction) Check(s *Server) error {
	rule, known := powerRules[a]
	if !known {
		return &Error{Status: http.StatusBadRequest,
			Code: CodeBadRequest, Message: fmt.Sprintf("%.64q is no power action", string(a))}
	}
	refuse := func(format string, args ...any) error {
		return &Error{Status: http.StatusConflict, Code: CodeConflict, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case rule.hosted && s.Host == "":
		return refuse("Instance %s is not ready", s.UUID)
	case !slices.Contains(rule.states, s.VMState):
		return refuse("Cannot '%s' instance %s while it is in vm_state %s", rule.name, s.UUID, s.VMState)
	case s.TaskState != "" && !slices.Contains(rule.busy, s.TaskState):
		return refuse("Cannot '%s' instance %s while it is in task_state %s", rule.name, s.UUID, s.TaskState)
	case s.LaunchedAt == nil:
		return refuse("Instance %s is in an invalid state for '%s'", s.UUID, rule.name)
	}
	return nil
}
