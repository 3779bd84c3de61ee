// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"
	"slices"
)

// ResetRequest sets the vm_state of a server to active or error, for an administrator, and ends its
// task. Its guest is not touched.
type ResetRequest struct {
	VMState string `json:"vm_state"`
}

// Check refuses (conflict) to reset a server that is in no cell, was never built and would be
// active, or is deleted, softly or for good.
func (r ResetRequest) Check(s *Server) error {
	refuse := func(format string, args ...any) error {
		return &Error{Status: http.StatusConflict, Code: CodeConflict, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.VMState != VMActive && r.VMState != VMError:
		return &Error{
			Status:  http.StatusBadRequest,
			Code:    CodeBadRequest,
			Message: fmt.Sprintf("%.64q is no state to reset a server to", r.VMState),
		}
	case s.Host == "" && r.VMState == VMActive, s.Host == "" && s.VMState != VMError:
		return refuse("Instance %s is not ready", s.UUID)
	case s.LaunchedAt == nil && r.VMState == VMActive:
		return refuse("Cannot 'os-resetState' instance %s to active, because it was never built", s.UUID)
	case slices.Contains([]string{TaskDeleting, TaskSoftDeleting}, s.TaskState):
		return refuse(
			"Cannot 'os-resetState' instance %s while it is in task_state %s; delete it again", s.UUID, s.TaskState,
		)
	case s.VMState == VMSoftDeleted && s.TaskState != TaskRestoring:
		return refuse("Cannot 'os-resetState' instance %s while it is in vm_state %s; restore it", s.UUID, s.VMState)
	}
	return nil
}
