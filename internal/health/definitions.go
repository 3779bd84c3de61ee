// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"time"
)

// The conditions of the agent as a whole.
const (
	NoDriver           Code = "no-driver"
	Starting           Code = "starting"
	RestartNeeded      Code = "restart-needed"
	ReloadRefused      Code = "reload-refused"
	StateNotWritable   Code = "state-directory-not-writable"
	JournalUnreadable  Code = "journal-unreadable"
	JournalDamaged     Code = "journal-entry-damaged"
	ProviderConfigFile Code = "provider-config-invalid"
)

// The conditions of the agent's part in its cell.
const (
	CellUnreachable  Code = "cell-unreachable"
	CellRefusesAgent Code = "cell-refuses-agent"
	CellRefusesNode  Code = "cell-refuses-node"
	ServerStuck      Code = "server-stuck"
	GuestUnknown     Code = "guest-unknown-to-cell"
)

// The conditions of a driver and its process.
const (
	DriverDisabled     Code = "driver-disabled"
	DriverRefused      Code = "driver-configuration-refused"
	DriverTakeover     Code = "driver-takeover-failed"
	DriverNotReady     Code = "driver-not-ready"
	DriverFails        Code = "driver-fails"
	DriverGone         Code = "driver-gone"
	DriverWarnings     Code = "driver-warnings"
	PluginDown         Code = "plugin-down"
	PluginDegraded     Code = "plugin-degraded"
	PluginQuarantined  Code = "plugin-quarantined"
	PluginNotInstalled Code = "plugin-not-installed"
	PluginIncompatible Code = "plugin-incompatible"
	PluginRefused      Code = "plugin-refused"
)

// The conditions of a node.
const (
	PlacementUnreachable Code = "placement-unreachable"
	PlacementUnexpected  Code = "placement-unexpected"
	PlacementTooOld      Code = "placement-too-old"
	CredentialsRefused   Code = "credentials-refused"
	IdentityRefused      Code = "identity-refused"
	ReshapeRefused       Code = "reshape-refused"
	ReshapeHeld          Code = "reshape-held"
	ReshapeLate          Code = "reshape-needs-restart"
	ReshapeAgain         Code = "reshape-asked-again"
	DriverOlder          Code = "driver-older-than-tree"
	DriverFlaps          Code = "driver-flaps"
	NodeClaimedTwice     Code = "node-claimed-twice"
	WriteConflict        Code = "write-conflict"
	InventoryInUse       Code = "inventory-in-use"
	PassFails            Code = "pass-fails"
	SyncOld              Code = "sync-old"
	DriftFound           Code = "drift-found"
	ForeignKept          Code = "foreign-items-kept"
	ProviderConfigIdle   Code = "provider-config-ignored"
	InventoryRetiring    Code = "inventory-retiring"
	NodeDisabled         Code = "node-disabled"
	NodeOrphaned         Code = "node-orphaned"
)

const last = "Guests run on. Placement says what the last good pass left: what has changed on the machine since is not heard of. "

// stale is what most conditions of a node mean, and missed those of a driver.
const (
	stale  = last + "The scheduler goes on with that, unless the node is disabled."
	missed = last + "The scheduler goes on with that until drivers.NAME.unavailable_grace is over; then the driver's nodes are disabled until it answers again."
)

var definitions = []Definition{
	{
		Code: NoDriver, Severity: Critical, Title: "no driver is configured",
		Meaning: "Nothing is reported of this host. What Placement says of it stays as it was.",
		Remedy:  "add a table such as [drivers.libvirt] to the configuration, and reload",
	},
	{
		Code: Starting, Severity: Info, Title: "the first pass has not ended yet",
		Meaning: "Placement says what the agent left there when it ran last.", TimeToVisible: 10 * time.Second,
		Remedy: "wait; tracker.startup_deadline says how long systemd does",
	},
	{
		Code: RestartNeeded, Severity: Info, Title: "a changed setting waits for a restart",
		Meaning: "The agent works with the former value.",
		Remedy:  "systemctl restart compute-agent, when it suits; guests are not affected",
	},
	{
		Code: ReloadRefused, Severity: Warning, Title: "the configuration on disk is invalid",
		Meaning: "The agent works with the former one, and would not start with this one.",
		Remedy:  "`compute-agent config check` shows what is wrong; mend it, then systemctl reload compute-agent",
	},
	{
		Code: StateNotWritable, Severity: Critical, Title: "the state directory cannot be written to",
		Meaning: "Nothing may be written to Placement that must be remembered: no reshape takes place, and no new provider is made.",
		Remedy:  "make room, or give agent.state_dir to the agent's user; `compute-agent doctor` looks at it",
	},
	{
		Code: JournalUnreadable, Severity: Critical, Title: "the journal of reshapes cannot be read",
		Meaning: "It is not known whether a reshape was left half-way, so no pass is made. Guests run on, and Placement says what it said.",
		Remedy:  "mend the directory reshapes in agent.state_dir, then restart; `compute-agent doctor` looks at it",
	},
	{
		Code: JournalDamaged, Severity: Info, Title: "an entry of the journal of reshapes is damaged",
		Meaning: "That reshape is over, and cannot be shown or undone any more. Nothing else depends on it.",
		Remedy:  "move the file away to have this gone, then restart",
	},
	{
		Code: ProviderConfigFile, Severity: Warning, Title: "provider.yaml is invalid",
		Meaning: "What it asked for when it was last valid stays in force.",
		Remedy:  "`compute-agent config check` shows what is wrong; mend it, then systemctl reload compute-agent",
	},
	{
		Code: CellUnreachable, Severity: Warning, Title: "the cell cannot be reached",
		Meaning: "Guests run on, and what is reported to Placement is not affected. Servers of this host are neither made nor removed, and what becomes of them is told later.", TimeToVisible: 30 * time.Second,
		Remedy: "check that the cell runs and that [cell_client] url is right, and if it is about a certificate, ca_file, cert_file and key_file there; the agent tries again by itself",
	},
	{
		Code: CellRefusesAgent, Severity: Warning, Title: "the cell does not accept the agent as the one of this host, or the agent the cell's certificate",
		Meaning: "Guests run on, and what is reported to Placement is not affected. Servers of this host are neither made nor removed, and what becomes of them is told later.",
		Remedy:  "check token_file, or ca_file, cert_file and key_file, in [cell_client]: the token's user, or a name in the certificate, must be agent.host, and the authority in ca_file the one of the cell's certificate",
	},
	{
		Code: CellRefusesNode, Severity: Warning, Title: "the cell has a node of this host as another host's",
		Meaning: "No server comes to the node by way of this host.",
		Remedy:  "if the node has moved here, take it from the other host: stop its agent, or disable its driver",
	},
	{
		Code: ServerStuck, Severity: Warning, Title: "servers are not as the cell wants them",
		Meaning: "Each is tried again; nothing else waits for it.", TimeToVisible: time.Minute,
		Remedy: "the text says what stands against it: the driver, Placement, or a guest that somebody has to look at",
	},
	{
		Code: GuestUnknown, Severity: Warning, Title: "the cell knows no server of guests that the agent had made",
		Meaning: "They run on, and are never removed by the agent. What they use may not be allocated.",
		Remedy:  "look whether the cell's database is the right one, and complete; if a guest is not needed, remove it with the hypervisor's own tools",
	},
	{
		Code: DriverDisabled, Severity: Info, Title: "the driver was taken out of the configuration",
		Meaning: "What it last reported stays in Placement, and guests can still be scheduled there.",
		Remedy:  "put it back; or, if it is gone for good: `compute-agent node remove NAME` for each of its nodes",
	},
	{
		Code: DriverRefused, Severity: Warning, Title: "the driver does not take its new configuration",
		Meaning: "The former one stays in force. A driver that has none reports nothing.",
		Remedy:  "mend [drivers.NAME.config], then systemctl reload compute-agent",
	},
	{
		Code: DriverTakeover, Severity: Warning, Title: "another process of the driver was to take over and cannot",
		Meaning: "The former process goes on, with its former executable and configuration, and so do the passes. When it ends, or the agent does, there is none to replace it.",
		Remedy:  "the text says how the new process failed; mend that, or put the former executable back, then systemctl reload compute-agent",
	},
	{
		Code: DriverNotReady, Severity: Warning, Title: "the driver cannot tell yet what the machine gives",
		Meaning: missed, TimeToVisible: 30 * time.Second,
		Remedy: "the driver's own message says what it waits for; `compute-agent doctor` looks at the usual causes",
	},
	{
		Code: DriverFails, Severity: Warning, Title: "the driver does not say which nodes there are",
		Meaning: missed, TimeToVisible: 30 * time.Second,
		Remedy: "the driver's own message says why; `compute-agent doctor` looks at the usual causes",
	},
	{
		Code: DriverGone, Severity: Critical, Title: "the driver has been gone for longer than its grace, and its nodes are disabled",
		Meaning: "Nothing new is scheduled to them. Guests run on, and the nodes are enabled as soon as the driver answers.",
		Remedy:  "the other conditions, and what `compute-agent status` says of the driver and its nodes, tell why it is gone; drivers.NAME.unavailable_grace says how long it may be",
	},
	{
		Code: DriverWarnings, Severity: Warning, Title: "the driver works, and has warnings",
		Meaning: "What the driver reports stands, and is kept true. Each warning says itself what may not be as it seems.",
		Remedy:  "see to what the warnings are about: `compute-agent status` shows them below the driver, the log has each when it begins and when it is over",
	},
	{
		Code: PluginDown, Severity: Warning, Title: "the driver's process is down and is started again",
		Meaning: missed, TimeToVisible: 15 * time.Second,
		Remedy: "the log of the agent has what it said before it ended",
	},
	{
		Code: PluginDegraded, Severity: Warning, Title: "the driver's process does not answer its health check, says that it is not well, or panics in a call every time",
		Meaning: "Passes go on for as long as the driver answers to them. When it does not: guests run on, Placement says what the last good pass left, and after drivers.NAME.unavailable_grace the driver's nodes are disabled.", TimeToVisible: 15 * time.Second,
		Remedy: "the driver's own message says what keeps it; the process is killed and started again if it stays silent. A panic is a defect of the driver: report it with the stack in the log of the agent",
	},
	{
		Code: PluginQuarantined, Severity: Critical, Title: "the driver's process crashed too often and is left alone for a while",
		Meaning: missed,
		Remedy:  "the text and the log say how it ended; mend that, and systemctl reload compute-agent tries at once, `compute-agent status` says when it is tried otherwise",
	},
	{
		Code: PluginNotInstalled, Severity: Critical, Title: "the driver has no executable",
		Meaning: missed, TimeToVisible: 15 * time.Second,
		Remedy: "install the executable as the text says; it is started as soon as it is there. One that was put elsewhere is found by systemctl reload compute-agent",
	},
	{
		Code: PluginIncompatible, Severity: Critical, Title: "the driver is made for another version of the agent",
		Meaning: missed,
		Remedy:  "install a driver made for this agent",
	},
	{
		Code: PluginRefused, Severity: Critical, Title: "the driver's executable is refused and was not started",
		Meaning: missed,
		Remedy:  "the text says what is wrong with which file, such as a sha256 that is not that of drivers.NAME.sha256, and how to correct it; the agent sees within two minutes that it was corrected, and systemctl reload compute-agent tries at once",
	},
	{
		Code: PlacementUnreachable, Severity: Warning, Title: "Placement cannot be reached",
		Meaning: stale, TimeToVisible: 30 * time.Second,
		Remedy: "check that Placement runs and that [placement_client] url is right; `compute-agent doctor` looks at both. The agent tries again by itself",
	},
	{
		Code: PlacementUnexpected, Severity: Critical, Title: "what answers is not Placement",
		Meaning: stale,
		Remedy:  "check [placement_client] url",
	},
	{
		Code: PlacementTooOld, Severity: Critical, Title: "Placement is too old",
		Meaning: stale,
		Remedy:  "upgrade the Placement service",
	},
	{
		Code: CredentialsRefused, Severity: Critical, Title: "Placement does not accept the agent's credentials",
		Meaning: stale,
		Remedy:  "check the credentials in [placement_client]; Placement wants the role admin or service",
	},
	{
		Code: IdentityRefused, Severity: Critical, Title: "what Placement has does not fit this node",
		Meaning: "Nothing is written for the node, so that no other node's providers are. Guests run on.",
		Remedy:  "see docs/operators.md, \"Identity\"",
	},
	{
		Code: ReshapeRefused, Severity: Critical, Title: "the reshape that the driver needs is refused",
		Meaning: "Nothing has moved, and guests are not affected. The node is not kept true until this is solved.",
		Remedy:  "`compute-agent plan --reshape` shows what the driver wants, and all that stands against it",
	},
	{
		Code: ReshapeHeld, Severity: Critical, Title: "the node is held: the reshape that the driver needs is refused",
		Meaning: "Nothing has moved, guests are not affected, and nothing is written for the node until somebody asks.",
		Remedy:  "solve what is listed; then `compute-agent refresh` tries again",
	},
	{
		Code: ReshapeLate, Severity: Warning, Title: "the driver needs a reshape, which takes place when the agent starts",
		Meaning: stale,
		Remedy:  "systemctl restart compute-agent; `compute-agent plan --reshape` shows before what moves where",
	},
	{
		Code: ReshapeAgain, Severity: Critical, Title: "the driver asks for a reshape again, right after it was made",
		Meaning: "The reshape is complete, and guests are not affected. The node is not kept true, since the driver reports nothing but the need for a reshape.",
		Remedy:  "this is a defect of the driver, and a restart does not help: report it to its author, and install the version of before",
	},
	{
		Code: DriverOlder, Severity: Critical, Title: "the driver is older than the node's provider tree",
		Meaning: "Nothing is written for the node: this driver would report inventory a second time that a newer version of it has moved. Guests run on, and Placement keeps what the newer one reported.",
		Remedy:  "install the newer version of the driver again; docs/upgrading-drivers.md has the ways back to the older one",
	},
	{
		Code: DriverFlaps, Severity: Warning, Title: "the driver reports something else at every pass",
		Meaning: "Every pass writes to Placement, and what it says of these items is right for one pass only.",
		Remedy:  "report it to the driver's author with the items and values listed: a driver must report the same for the same machine. What varies by itself (free memory, a clock) is no inventory",
	},
	{
		Code: NodeClaimedTwice, Severity: Critical, Title: "two drivers name one node",
		Meaning: "A recorded owner goes on reporting the node; what the other driver reports of it is not written. Without an owner nothing is written for the node. All other nodes are reported, and guests run on.",
		Remedy:  "`compute-agent node give NAME --to DRIVER` says which driver is to have it; take the node out of the configuration of the other one",
	},
	{
		Code: WriteConflict, Severity: Warning, Title: "somebody else writes to the node's providers again and again",
		Meaning: stale, TimeToVisible: 30 * time.Second,
		Remedy: "look in Placement's log for who writes to them; the agent tries again by itself",
	},
	{
		Code: InventoryInUse, Severity: Warning, Title: "guests use what the driver no longer reports",
		Meaning: "Everything else of the node is kept true. These guests run on.",
		Remedy:  "`openstack resource provider show --allocations UUID` names them; move or delete them",
	},
	{
		Code: PassFails, Severity: Warning, Title: "the pass fails",
		Meaning: stale, TimeToVisible: 30 * time.Second,
		Remedy: "the text says what failed; `compute-agent doctor` looks at the usual causes",
	},
	{
		Code: SyncOld, Severity: Critical, Title: "Placement has not been known to be right for long",
		Meaning: stale,
		Remedy:  "the other conditions of this node say why; without any, look for a pass that hangs in the log",
	},
	{
		Code: DriftFound, Severity: Info, Title: "somebody else has changed what this agent wrote",
		Meaning: "The agent puts back what the machine gives, and leaves what an operator may set.",
		Remedy:  "look in Placement's log for who it was, if that is not known",
	},
	{
		Code: ForeignKept, Severity: Info, Title: "the driver would take away what others wrote; it stays",
		Meaning: "Nothing: what others wrote is counted on by them.",
		Remedy:  "remove it in Placement, if nobody needs it",
	},
	{
		Code: ProviderConfigIdle, Severity: Warning, Title: "entries of provider.yaml have no effect",
		Meaning: "The scheduler does not see what they ask for.",
		Remedy:  "take the entries out, or mend what stands against them; then systemctl reload compute-agent",
	},
	{
		Code: InventoryRetiring, Severity: Info, Title: "what the machine no longer has is still allocated",
		Meaning: "It stays in Placement until its guests are gone, closed for new ones.",
		Remedy:  "move or delete these guests (their uuids are those of the consumers), if it must go sooner",
	},
	{
		Code: NodeDisabled, Severity: Info, Title: "the node is disabled",
		Meaning: "Nothing new is scheduled to it. Its guests run on.",
		Remedy:  "when it may be used again: `compute-agent enable`, or where the cell disabled it `openstack compute service set --enable HOST nova-compute`",
	},
	{
		Code: NodeOrphaned, Severity: Warning, Title: "the driver no longer names the node",
		Meaning: "Its providers stay in Placement, and guests may still be scheduled to it.",
		Remedy:  "if it is gone for good: `compute-agent node remove NAME`; otherwise mend the driver's configuration",
	},
}

// Definitions returns all of them: the agent's, the drivers' and the nodes'.
func Definitions() []Definition { return slices.Clone(definitions) }

// Define returns the definition of a code. It panics for a code that has none.
func Define(code Code) Definition {
	i := slices.IndexFunc(definitions, func(d Definition) bool { return d.Code == code })
	if i < 0 {
		panic(fmt.Sprintf("health: no definition of %q", code))
	}
	return definitions[i]
}
