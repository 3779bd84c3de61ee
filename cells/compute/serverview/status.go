// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
)

// anyTask stands for all tasks that are not named.
const anyTask = "default"

// statuses is Nova's table of what is shown for a vm_state and a task_state. States that no server
// here gets into are there for the filter by status, which finds nothing by them, where it refuses
// an unknown status.
var statuses = map[string]map[string]string{
	cellwire.VMActive: {
		anyTask: "ACTIVE", "rebooting": "REBOOT", "reboot_pending": "REBOOT", "reboot_started": "REBOOT",
		"rebooting_hard":      "HARD_REBOOT",
		"reboot_pending_hard": "HARD_REBOOT", "reboot_started_hard": "HARD_REBOOT", "updating_password": "PASSWORD",
		"rebuilding": "REBUILD", "rebuild_block_device_mapping": "REBUILD",
		"rebuild_spawning": "REBUILD", "migrating": "MIGRATING",
		"resize_prep": "RESIZE", "resize_migrating": "RESIZE", "resize_migrated": "RESIZE", "resize_finish": "RESIZE",
	},
	cellwire.VMBuilding: {anyTask: "BUILD"},
	cellwire.VMStopped: {
		anyTask: "SHUTOFF", "resize_prep": "RESIZE",
		"resize_migrating": "RESIZE", "resize_migrated": "RESIZE", "resize_finish": "RESIZE",
		"rebuilding": "REBUILD", "rebuild_block_device_mapping": "REBUILD", "rebuild_spawning": "REBUILD",
	},
	"resized":   {anyTask: "VERIFY_RESIZE", "resize_reverting": "REVERT_RESIZE"},
	"paused":    {anyTask: "PAUSED", "migrating": "MIGRATING"},
	"suspended": {anyTask: "SUSPENDED"},
	"rescued":   {anyTask: "RESCUE"},
	cellwire.VMError: {
		anyTask: "ERROR", "rebuilding": "REBUILD", "rebuild_block_device_mapping": "REBUILD",
		"rebuild_spawning": "REBUILD",
	},
	cellwire.VMDeleted:     {anyTask: "DELETED"},
	cellwire.VMSoftDeleted: {anyTask: "SOFT_DELETED"},
	"shelved":              {anyTask: "SHELVED"},
	"shelved_offloaded":    {anyTask: "SHELVED_OFFLOADED"},
}

// statusOf is the status that a server shows.
func statusOf(s *cellwire.Server) string {
	if s.Deleted {
		return "DELETED"
	}
	tasks, known := statuses[s.VMState]
	if !known {
		return api.StatusUnknown
	}
	if status, named := tasks[s.TaskState]; named {
		return status
	}
	return tasks[anyTask]
}

// statesOf are the vm_states and the task_states that some statuses stand for, sorted. Nil tasks
// are all tasks.
func statesOf(asked []string) (vms, tasks []string) {
	for vm, table := range statuses {
		for task, status := range table {
			if !slices.ContainsFunc(asked, func(a string) bool { return strings.EqualFold(a, status) }) {
				continue
			}
			vms, tasks = append(vms, vm), append(tasks, task)
		}
	}
	slices.Sort(vms)
	vms = slices.Compact(vms)
	if slices.Contains(tasks, anyTask) {
		return vms, nil
	}
	slices.Sort(tasks)
	return vms, slices.Compact(tasks)
}

// hasProgress are the statuses that are shown with a progress.
var hasProgress = []string{"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"}

// hasFault are the statuses that are shown with a fault.
var hasFault = []string{"ERROR", "DELETED"}

// hostStatus says how the host of a server is: nova.compute.api.API.get_instance_host_status.
func hostStatus(s *cellwire.Server) string {
	switch {
	case s.Host == "":
		return ""
	case s.HostForcedDown:
		return "DOWN"
	case s.HostDisabled:
		return "MAINTENANCE"
	case s.HostUp:
		return "UP"
	}
	return api.StatusUnknown
}
