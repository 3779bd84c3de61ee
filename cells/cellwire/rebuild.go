// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"
	"slices"
)

// RebuildRequest asks a cell to have the guest of a server made again from an image, on its host
// and with its allocations. The disks of the guest are lost.
type RebuildRequest struct {
	ImageRef string `json:"image_ref"`
	// Patch changes what the server is called and marked with.
	Patch ServerPatch `json:"patch"`
	// UserData and Key replace the user data and the key pair of the guest; nil keeps them.
	UserData *string    `json:"user_data,omitempty"`
	Key      *ServerKey `json:"key,omitempty"`
	// Host is the only host that may get UserData. The request is refused if the server is on
	// another one. "": any host may.
	Host string `json:"host,omitempty"`
}

// ServerKey is the key pair of a server; the zero one: none.
type ServerKey struct {
	Name string `json:"name,omitempty"`
	Data string `json:"data,omitempty"`
}

// rebuildStates are the vm_states that allow it, as in Nova.
var rebuildStates = []string{VMActive, VMStopped, VMError}

// Check refuses to rebuild a server whose state does not allow it, in Nova's words, and one that is
// not on its host any more (conflict).
func (r RebuildRequest) Check(s *Server) error {
	refuse := func(format string, args ...any) error {
		return &Error{Status: http.StatusConflict, Code: CodeConflict, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case !slices.Contains(rebuildStates, s.VMState):
		return refuse("Cannot 'rebuild' instance %s while it is in vm_state %s", s.UUID, s.VMState)
	case s.TaskState != "":
		return refuse("Cannot 'rebuild' instance %s while it is in task_state %s", s.UUID, s.TaskState)
	case s.LaunchedAt == nil:
		return refuse("Instance %s is in an invalid state for 'rebuild'", s.UUID)
	case r.Host != "" && r.Host != s.Host:
		return refuse("Instance %s has moved to another host. Send the request again.", s.UUID)
	}
	return nil
}

// Apply changes a server whose rebuild begins.
func (r RebuildRequest) Apply(s *Server) error {
	if err := r.Patch.Apply(s); err != nil {
		return err
	}
	s.ImageRef, s.TaskState = r.ImageRef, TaskRebuilding
	if r.UserData != nil {
		s.UserData = *r.UserData
	}
	if r.Key != nil {
		s.KeyName, s.KeyData = r.Key.Name, r.Key.Data
	}
	return nil
}
