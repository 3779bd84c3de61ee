// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// maxActionDetails bounds the details of an action that failed, in bytes.
const maxActionDetails = 4096

// Outcomes are how actions on servers ended. The zero value has none.
type Outcomes struct {
	// Succeeded has the UUIDs of servers.
	Succeeded []string
	// Failed has why, by the UUIDs of servers.
	Failed map[string]string
}

// Add records whether a report ended what was under way.
func (o *Outcomes) Add(was, is *cellwire.Server) {
	ended := is.Deleted && !was.Deleted || was.VMState == cellwire.VMBuilding && is.VMState != cellwire.VMBuilding ||
		(was.TaskState != "" || was.VMState == cellwire.VMResized && is.VMState != cellwire.VMResized) &&
			is.TaskState == ""
	failed := is.Fault != nil && is.Fault != was.Fault // it came with the report
	switch {
	case !ended && !failed:
	case failed:
		if o.Failed == nil {
			o.Failed = map[string]string{}
		}
		o.Failed[is.UUID] = ActionDetails(is.Fault)
	default:
		o.Succeeded = append(o.Succeeded, is.UUID)
	}
}

// ActionDetails is why an action failed, of the fault that it ended with, in at most 4096 bytes.
func ActionDetails(f *cellwire.Fault) string {
	text := f.Message
	if f.Details != "" {
		text += "\n" + f.Details
	}
	return textutil.Truncate(text, maxActionDetails)
}
