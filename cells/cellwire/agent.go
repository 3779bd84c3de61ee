// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/plugins"
)

// HostReport is what an agent reports of its host and itself, every ReportInterval seconds.
type HostReport struct {
	Version string `json:"version"`
	// Nodes are all nodes that the agent reports to Placement and on which its drivers can create
	// guests.
	Nodes []ReportedNode `json:"nodes"`
	// Starting says that the agent does not know all of its nodes yet, because drivers have not
	// answered since its start: nodes of earlier reports that are missing stay as they were.
	// Cells without HostState.Turn refuse a report that has it.
	Starting bool `json:"starting,omitempty"`
	// Stopping says that this is the agent's final report for now: the service is down from here
	// on, and no time has to pass.
	Stopping bool `json:"stopping,omitempty"`
	// Process is the run of the agent that reports. Turn is HostState.Turn of the last answer that
	// this run received, 0 for none. Cells without HostState.Turn refuse a report that has either.
	Process *agentruns.Process `json:"process,omitempty"`
	Turn    int64              `json:"turn,omitempty"`
}

// ReportedNode is a node of the agent's.
type ReportedNode struct {
	UUID string `json:"uuid"` // of the root provider
	Name string `json:"name"`
	// Abilities are what its driver can do with guests beyond the basics: the names in package
	// plugins, at most MaxAbilities, and names of later versions. A cell that does not answer
	// HostState.Abilities refuses a report that has any.
	Abilities []string `json:"abilities,omitempty"`
	// Details are what people see of it; nil leaves them as they were reported last. A cell that
	// does not answer HostState.Details refuses a report that has any.
	Details *NodeDetails `json:"details,omitempty"`
}

// NodeDetails is what people see of a node, as Nova's compute nodes have it. What is not known is
// empty.
type NodeDetails struct {
	// HypervisorType and HypervisorVersion are what its driver reports: at most MaxHypervisorType
	// bytes, and a number of 31 bits.
	HypervisorType    string `json:"hypervisor_type,omitempty"`
	HypervisorVersion int64  `json:"hypervisor_version,omitempty"`
	// HostIP is an address of its host.
	HostIP string `json:"host_ip,omitempty"`
	// UnknownGuests is how many guests the agent has created on the node that belong to no server
	// of the cell.
	UnknownGuests int64 `json:"unknown_guests,omitempty"`
}

// MaxHypervisorType bounds the type of a hypervisor, in bytes.
const MaxHypervisorType = 255

// HostState is the answer to a HostReport.
type HostState struct {
	Service Service `json:"service"`
	Epoch   string  `json:"epoch"`
	// ReportInterval is how many seconds may pass to the next report.
	ReportInterval int `json:"report_interval"`
	// Refused are nodes that the cell does not take, because another host has them.
	Refused []string `json:"refused,omitempty"`
	// Problems are why nodes of the report get no new servers, those of Refused among them. Older
	// cells have none.
	Problems []NodeProblem `json:"problems,omitempty"`
	// Abilities says that this cell takes the abilities of nodes. Older ones do not.
	Abilities bool `json:"abilities,omitempty"`
	// Turn grows with each new process that reports as the host. The agent's next report has it.
	// Two processes that both report with the turn at which the later one came, or with a later
	// turn, live at the same time: one that had ended before cannot have received it. Older cells
	// send none.
	Turn int64 `json:"turn,omitempty"`
	// Details says that this cell takes the details of nodes. Older ones do not.
	Details bool `json:"details,omitempty"`
}

// Want is the desired state of a server on its host.
type Want string

// The wants.
const (
	// WantPresent: there is a guest; if it was never made (vm_state building), it is made and
	// started.
	WantPresent Want = "present"
	// WantRunning: the guest runs. It was shut down before, by a soft delete, a stop or the first
	// half of a reboot.
	WantRunning Want = "running"
	// WantShutdown: there is a guest, and it is shut down. With TaskRebootingHard it is powered off
	// without being asked to shut down.
	WantShutdown Want = "shutdown"
	// WantCleared is the first half of a rebuild: there is no guest, and no disk of it; the
	// allocations stay. Reported by ReportSettled, as the second half is.
	WantCleared Want = "cleared"
	// WantRebuilt is the second half of a rebuild: there is a guest that was created after
	// WantCleared held, and it runs. The allocations stay even if it cannot be created.
	WantRebuilt Want = "rebuilt"
	// WantGone: it does not exist and has no allocations. Its host then reports ReportGone.
	// With a Migration the allocations of its consumer are removed as well: the server was deleted
	// before it had left this host.
	WantGone Want = "gone"

	// WantIdle: the host does nothing about a server that was created on it, and reports nothing.
	// The guest, if there is one, stays as it is, for example because the server is in error or
	// about to be evacuated. It tells the host to which server the guest belongs. Older cells leave
	// such servers out; older agents ignore them.
	WantIdle Want = "idle"

	// The following come with a Migration, and only to nodes with
	// [plugins.AbilityMigrate].

	// WantDeparting, on the source: the guest is shut down and kept, is never started, whatever
	// else is there, and offers its disks to the destination. Reported by ReportDeparted; the
	// want stays until the migration ends, in WantLeft or in WantRunning or WantShutdown. Also of
	// a host that comes back while its server is being evacuated.
	WantDeparting Want = "departing"
	// WantArriving, on the destination: the guest is made from its disks, copied from the source's
	// offer or found on shared storage, and started unless OldVMState is stopped. In an evacuation
	// without shared storage, it is made from the image again. Reported by ReportArrived.
	WantArriving Want = "arriving"
	// WantLeft, on the source, when the server is elsewhere for good: there is no guest of it, and
	// no disk except on storage that is shared with the destination. Then the host removes the
	// allocations of the consumer Migration.UUID; those of the server stay. Reported by ReportLeft;
	// the server is then forgotten, as after ReportGone.
	WantLeft Want = "left"
	// WantLeaving, on the destination of a migration that is reverted: as WantLeft with the roles
	// exchanged, but all allocations stay as they are. Reported by ReportLeft.
	WantLeaving Want = "leaving"
)

// Work is what is new for a host.
type Work struct {
	Epoch string `json:"epoch"`
	// Revision is the revision after which the agent asks next.
	Revision int64 `json:"revision"`
	// Complete says that this answer begins the list of all servers of the host, because the agent
	// asked after revision 0, a revision of another epoch, or a future one. The list ends with the
	// first answer without More.
	Complete bool `json:"complete,omitempty"`
	// More says that there are more items than fit into one answer. A request after Revision
	// returns them without waiting. A server that changes meanwhile is sent again; a server about
	// which the host has nothing to do any more is not sent.
	More    bool       `json:"more,omitempty"`
	Items   []WorkItem `json:"items,omitempty"` // by their revisions
	Service Service    `json:"service"`
	// Streams are the streams that clients wait for. An answer may repeat one.
	Streams []StreamOffer `json:"streams,omitempty"`
}

// WorkItem is one server and its desired state.
type WorkItem struct {
	Want   Want   `json:"want"`
	Server Server `json:"server"`
	// Migration is the migration that the desired state is for; nil: none. With one, Server.Host
	// may be another host; SourceNodeUUID or DestNodeUUID is then the node of this host.
	Migration *Migration `json:"migration,omitempty"`
	// RequestID is the ID of the request whose action on the server is under way; "": none is, or
	// the cell is older.
	RequestID string `json:"request_id,omitempty"`
	// Traceparent is the W3C trace context of that request, below which the work is; "" for none.
	Traceparent string `json:"traceparent,omitempty"`
}

// ReportKind says what a report is about.
type ReportKind string

// The kinds of reports.
const (
	ReportSpawned ReportKind = "spawned" // the guest was made: active (unless it is being deleted)
	// It cannot be made here; nothing is left of it, its allocations are removed: error, with the
	// fault.
	ReportFailed ReportKind = "failed"
	// Its power state changed; "" of a guest that is not there any more is PowerNoState.
	ReportPower ReportKind = "power"
	ReportGone  ReportKind = "gone" // WantGone holds: the row is deleted
	// ReportSettled: WantRunning, WantShutdown, WantCleared or WantRebuilt holds. With a fault it
	// cannot hold, which ends a power action or a rebuild. With a fault of WantCleared nothing was
	// removed, and the server is what it was before; cells of older versions put it in error.
	ReportSettled ReportKind = "settled"
	// ReportDeparted: WantDeparting holds, with the Offer. With a fault it cannot hold, the guest
	// is as PowerState says, and the migration ends. Of a cold migration that is finished, it says
	// whether the guest that is kept is there, [plugins.PowerNoState] if not: then, when that
	// changes, and when the migration is to be confirmed or reverted. Older cells do not look at
	// it.
	ReportDeparted ReportKind = "departed"
	// ReportArrived: WantArriving holds. With a fault it cannot hold, and nothing of the guest is
	// left here but what is on shared storage; all allocations are as they were. The server is then
	// forgotten, as after ReportGone.
	ReportArrived ReportKind = "arrived"
	ReportLeft    ReportKind = "left" // WantLeft or WantLeaving holds
)

// Report is what an agent found, or did.
type Report struct {
	UUID       string             `json:"uuid"`
	Kind       ReportKind         `json:"kind"`
	PowerState plugins.PowerState `json:"power_state"`
	Fault      *Fault             `json:"fault,omitempty"`
	// Revision is the revision of the WorkItem.Server that the agent acted upon. A ReportSettled
	// about an older revision says nothing about a newer one.
	Revision int64 `json:"revision,omitempty"`
	// Migration is the uuid of the one that ReportDeparted, ReportArrived or ReportLeft is about.
	Migration string `json:"migration,omitempty"`
	// Offer is what comes to Migration.Offer, of ReportDeparted.
	Offer string `json:"offer,omitempty"`
}

// Reports are some of them.
type Reports struct {
	Reports []Report `json:"reports"` // at most MaxReports
}

// MaxReports is how many reports are taken at once.
const MaxReports = 1000

// ReportsAnswer has an outcome for each report, in their order: "" if it was accepted, otherwise
// why not. The agent repeats none of them.
type ReportsAnswer struct {
	Refused []string `json:"refused"`
}
