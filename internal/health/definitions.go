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
	SeveralAgents    Code = "several-agents"
	ServerStuck      Code = "server-stuck"
	GuestUnknown     Code = "guest-unknown-to-cell"
	GuestIdle        Code = "guest-of-idle-server"
	GuestMissing     Code = "guest-missing"
)

// The conditions of the certificate of this host.
const (
	CertificateExpires Code = "certificate-expires"
	CertificateExpired Code = "certificate-expired"
	RenewalRefused     Code = "renewal-refused"
	RenewedElsewhere   Code = "certificate-renewed-elsewhere"
	NodeNotEnrolled    Code = "node-not-enrolled"
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
	HostRefused          Code = "placement-refuses-host"
	CapacityNotAdmitted  Code = "capacity-not-admitted"
	IdentityRefused      Code = "identity-refused"
	ReshapeRefused       Code = "reshape-refused"
	ReshapeHeld          Code = "reshape-held"
	ReshapeLate          Code = "reshape-needs-restart"
	ReshapeAgain         Code = "reshape-asked-again"
	DriverOlder          Code = "driver-older-than-tree"
	DriverFlaps          Code = "driver-flaps"
	ItemsOverwritten     Code = "items-overwritten"
	NodeClaimedTwice     Code = "node-claimed-twice"
	WriteConflict        Code = "write-conflict"
	InventoryInUse       Code = "inventory-in-use"
	PassFails            Code = "pass-fails"
	SyncOld              Code = "sync-old"
	DriftFound           Code = "drift-found"
	ForeignKept          Code = "foreign-items-kept"
	ProviderConfigIdle   Code = "provider-config-ignored"
	InventoryDraining    Code = "inventory-retiring"
	AllocationsDiffer    Code = "allocations-differ"
	NodeDisabled         Code = "node-disabled"
	NodeOrphaned         Code = "node-orphaned"
	NodeElsewhere        Code = "node-reported-elsewhere"
)

const last = "Guests keep running. Placement keeps what the last successful pass wrote; later changes on the " +
	"machine are not reported. "

// stale is what most conditions of a node mean, and unreported those of a driver.
const (
	stale      = last + "The scheduler keeps using it, unless the node is disabled."
	unreported = last + "The scheduler keeps using it until drivers.NAME.unavailable_grace has passed; then the " +
		"driver's nodes are disabled until the driver answers again."
)

var definitions = []Definition{
	{
		Code: NoDriver, Severity: Critical, Title: "no driver is configured",
		Meaning: "Nothing is reported for this host. What Placement has for it stays as it is.",
		Hint:    "add a table such as [drivers.libvirt] to the configuration, then systemctl reload compute-agent",
	},
	{
		Code: Starting, Severity: Info, Title: "the first pass is not finished",
		Meaning: "Placement has what the agent wrote before it was last stopped.", TimeToVisible: 10 * time.Second,
		Hint: "wait; systemd waits for tracker.startup_deadline",
	},
	{
		Code: RestartNeeded, Severity: Info, Title: "a changed setting takes effect at the next restart",
		Meaning: "The agent uses the previous value.",
		Hint:    "systemctl restart compute-agent; guests are not affected",
	},
	{
		Code: ReloadRefused, Severity: Warning, Title: "the configuration on disk is invalid",
		Meaning: "The agent uses the previous configuration. It would not start with this one.",
		Hint:    "`compute-agent config check` shows what is wrong; fix it, then systemctl reload compute-agent",
	},
	{
		Code: StateNotWritable, Severity: Critical, Title: "the state directory is not writable",
		Meaning: "Writes to Placement that need a record on disk are not made: no reshape runs, and no resource " +
			"provider is created.",
		Hint: "free disk space, or make the agent's user the owner of agent.state_dir; `compute-agent " +
			"doctor` checks it",
	},
	{
		Code: JournalUnreadable, Severity: Critical, Title: "the journal of reshapes cannot be read",
		Meaning: "It is not known whether a reshape is incomplete, so no pass is made. Guests keep running, and " +
			"Placement keeps what it has.",
		Hint: "repair the directory reshapes in agent.state_dir, then restart the agent; `compute-agent " +
			"doctor` checks it",
	},
	{
		Code: JournalDamaged, Severity: Info, Title: "an entry of the journal of reshapes is damaged",
		Meaning: "That reshape is complete. It can no longer be shown or undone. Nothing else depends on the entry.",
		Hint:    "move the file out of the directory, then restart the agent",
	},
	{
		Code: ProviderConfigFile, Severity: Warning, Title: "provider.yaml is invalid",
		Meaning: "The last valid version stays in effect.",
		Hint:    "`compute-agent config check` shows what is wrong; fix it, then systemctl reload compute-agent",
	},
	{
		Code:     CellUnreachable,
		Severity: Warning,
		Title:    "the cell cannot be reached",
		Meaning: "Guests keep running, and reports to Placement are not affected. Servers on this host are " +
			"neither created nor deleted; their status is reported when the cell is back.",
		TimeToVisible: 30 * time.Second,
		Hint: "check that the cell runs and that [cell_client] url is correct; for a certificate error, " +
			"check ca_file, cert_file and key_file there. The agent retries",
	},
	{
		Code:     CellRefusesAgent,
		Severity: Warning,
		Title:    "the cell rejects the agent's credentials, or the agent rejects the cell's certificate",
		Meaning: "Guests keep running, and reports to Placement are not affected. Servers on this host are neither " +
			"created nor deleted; their status is reported when the cell is back.",
		Hint: "check token_file, or ca_file, cert_file and key_file, in [cell_client]: the token's user, or a name " +
			"in the certificate, must be agent.host, and ca_file must hold the authority that signed the cell's " +
			"certificate",
	},
	{
		Code:     CellRefusesNode,
		Severity: Warning,
		Title:    "the cell, or the compute API, refuses a node of this host",
		Meaning:  "No new server is created on the node through this host. Its servers are not affected.",
		Hint: "if another host reports the node as well, find out which one has it, and stop the other agent or " +
			"its driver; if the node has moved here, run `compute-agent cells manage delete-host` for its former " +
			"host, which has no servers any more; if this host was renamed, rename it with its servers " +
			"(docs/cells.md), or give it its former name back; if the host is not enrolled, enrol it " +
			"(docs/identity.md)",
	},
	{
		Code:     SeveralAgents,
		Severity: Critical,
		Title:    "another agent reports as this host",
		Meaning: "Two machines have the name and the identity of this host: one is a copy of the other. The cell " +
			"gives neither of them new servers. What its servers are asked for is done by both, their states are " +
			"those of one or the other, and each overwrites in Placement what the other one reports.",
		Hint: "the text names both agents. Stop the one on the copy, empty its state directory, and give it a host " +
			"name and certificates of its own",
	},
	{
		Code: ServerStuck, Severity: Warning, Title: "servers are not in their desired state",
		Meaning: "Each server is retried. Nothing else waits for it.", TimeToVisible: time.Minute,
		Hint: "the text names the cause: the driver, Placement, a node that is held, or a guest that needs an operator",
	},
	{
		Code:     GuestUnknown,
		Severity: Warning,
		Title:    "guests that the agent created are unknown to the cell",
		Meaning: "They keep running, and the agent never deletes them. The resources they use may be missing " +
			"from Placement.",
		Hint: "check that the cell uses the correct, complete database, and that `openstack server show UUID` finds " +
			"no server; delete a guest that is not needed with the hypervisor's own tools",
	},
	{
		Code:     GuestIdle,
		Severity: Warning,
		Title:    "guests of servers in error are on this host",
		Meaning: "The cell has these servers here and wants nothing done about them: they are in error, for " +
			"example after an evacuation that failed. Their guests and disks are left as they are.",
		Hint: "do not delete the guests: they have the servers' only disks. `openstack server show UUID` shows the " +
			"fault, and `openstack server reboot --hard UUID` makes the server active again; if a task is shown, " +
			"wait for it, or abort the migration",
	},
	{
		Code:     GuestMissing,
		Severity: Warning,
		Title:    "guests of servers do not exist",
		Meaning: "They were removed behind the agent's back, or the host was installed again. The servers are not " +
			"usable; their allocations stay.",
		Hint: "where the line says so, revert or confirm the migration of the server; `openstack server reboot " +
			"--hard UUID` makes the guest of another one again over its disks, if they are still there and its " +
			"driver can; otherwise delete the server, or rebuild it, which makes its disks from the image again: " +
			"what was on them is lost",
	},
	{
		Code:     CertificateExpires,
		Severity: Warning,
		Title:    "the certificate of this host has not been renewed",
		Meaning:  "It is still good. Once it has expired, cell and Placement reject the agent; guests keep running.",
		Hint: "check that [enrolment_client] url is correct and that the enrolment service runs; the agent " +
			"retries. A certificate without [enrolment_client] is renewed by the site: replace the files, they " +
			"are read again",
	},
	{
		Code:     CertificateExpired,
		Severity: Critical,
		Title:    "the certificate of this host has expired, expires soon, or cannot be read",
		Meaning: "Without it, cell and Placement reject the agent: nothing is reported for this host, and its " +
			"servers are neither created nor deleted. Guests keep running.",
		Hint: "if the enrolment service answers again, the agent renews an expired certificate, too; otherwise " +
			"`compute-agent cells manage add-host HOST --again` on the machine of the compute API makes a token for " +
			"`compute-agent join --again` here",
	},
	{
		Code:     RenewalRefused,
		Severity: Critical,
		Title:    "the enrolment service refuses to renew the certificate of this host",
		Meaning: "The host is evicted, or was invited again. Cell and Placement reject the agent, at the latest " +
			"when the certificate expires. Guests keep running.",
		Hint: "if this is unexpected, find out why first. `compute-agent cells manage add-host HOST --again` on the " +
			"machine of the compute API makes a token for `compute-agent join --again` here",
	},
	{
		Code:     RenewedElsewhere,
		Severity: Critical,
		Title:    "another holder of the certificate of this host renewed it",
		Meaning: "Two machines have the identity of this host, or its state directory was restored from a copy. " +
			"Cell and Placement reject the agent when its certificate expires; until then they accept both. Guests " +
			"keep running.",
		Hint: "if this machine was restored from a copy, join again: `compute-agent cells manage add-host HOST " +
			"--again` on the machine of the compute API makes a token for `compute-agent join --again` here. If it " +
			"was not, run there: compute-agent cells manage evict-host HOST",
	},
	{
		Code: NodeNotEnrolled, Severity: Warning, Title: "the certificate of this host does not have all of its nodes",
		Meaning: "Cell and Placement reject what the agent reports for these nodes. All other nodes are reported, " +
			"and guests keep running.",
		Hint: "if they belong to this host, run on the machine of the compute API: compute-agent cells manage " +
			"enrol-node HOST UUID",
	},
	{
		Code: DriverDisabled, Severity: Info, Title: "the driver was removed from the configuration",
		Meaning: "What it last reported stays in Placement, and guests can still be scheduled to it.",
		Hint: "add it again; or, if it is removed permanently, run `compute-agent node remove NAME` for each " +
			"of its nodes",
	},
	{
		Code: DriverRefused, Severity: Warning, Title: "the driver rejects its new configuration",
		Meaning: "The previous configuration stays in effect. A driver that has none reports nothing.",
		Hint:    "fix [drivers.NAME.config], then systemctl reload compute-agent",
	},
	{
		Code: DriverTakeover, Severity: Warning, Title: "a new process of the driver failed to take over",
		Meaning: "The previous process keeps working, with its previous executable and configuration. When it or " +
			"the agent stops, no process can replace it.",
		Hint: "the text says how the new process failed; fix that, or restore the previous executable, then " +
			"systemctl reload compute-agent",
	},
	{
		Code: DriverNotReady, Severity: Warning, Title: "the driver is not ready",
		Meaning: unreported, TimeToVisible: 30 * time.Second,
		Hint: "the driver's message says what it waits for; `compute-agent doctor` checks the common causes",
	},
	{
		Code: DriverFails, Severity: Warning, Title: "the driver fails to list its nodes",
		Meaning: unreported, TimeToVisible: 30 * time.Second,
		Hint: "the driver's message gives the reason; `compute-agent doctor` checks the common causes",
	},
	{
		Code: DriverGone, Severity: Critical,
		Title: "the driver has been unavailable for longer than unavailable_grace, and its nodes are disabled",
		Meaning: "No new guest is scheduled to them. Guests keep running, and the nodes are enabled when the driver " +
			"answers again.",
		Hint: "the other conditions, and the driver and its nodes in `compute-agent status`, give the reason; " +
			"drivers.NAME.unavailable_grace sets the time",
	},
	{
		Code: DriverWarnings, Severity: Warning, Title: "the driver works, and has warnings",
		Meaning: "The driver's inventory is reported as usual. Each warning says what may be wrong.",
		Hint: "`compute-agent status` lists the warnings below the driver; the log has each one when it begins " +
			"and when it ends",
	},
	{
		Code: PluginDown, Severity: Warning, Title: "the driver's process is down and is being restarted",
		Meaning: unreported, TimeToVisible: 15 * time.Second,
		Hint: "the agent's log has the last output of the process",
	},
	{
		Code:     PluginDegraded,
		Severity: Warning,
		Title:    "the driver's process fails its health check, or panics in every call",
		Meaning: "Passes continue while the driver answers them. If it does not: guests keep running, " +
			"Placement keeps what the last successful pass wrote, and after drivers.NAME.unavailable_grace the " +
			"driver's nodes are disabled.",
		TimeToVisible: 15 * time.Second,
		Hint: "the driver's message gives the reason; a process that does not answer is killed and " +
			"restarted. A panic is a bug in the driver: report it with the stack trace from the agent's log",
	},
	{
		Code:     PluginQuarantined,
		Severity: Critical,
		Title:    "the driver's process crashed too often and is not restarted for now",
		Meaning:  unreported,
		Hint: "the text and the log say how it ended; fix that, then systemctl reload compute-agent restarts it " +
			"at once. `compute-agent status` shows the time of the next attempt",
	},
	{
		Code: PluginNotInstalled, Severity: Critical, Title: "the driver's executable is not installed",
		Meaning: unreported, TimeToVisible: 15 * time.Second,
		Hint: "install the executable as the text says; it is started when it appears. After installing it in " +
			"another directory, systemctl reload compute-agent",
	},
	{
		Code: PluginIncompatible, Severity: Critical, Title: "the driver speaks another version of the plugin protocol",
		Meaning: unreported,
		Hint:    "install a driver for this version of the agent",
	},
	{
		Code:     PluginRefused,
		Severity: Critical,
		Title:    "the driver is not trusted, or its sandbox cannot be made, and it was not started",
		Meaning:  unreported,
		Hint: "the text names the file, what is wrong with it (for example a checksum that differs from " +
			"drivers.NAME.sha256) and how to fix it; the agent checks again within two minutes, or at once after " +
			"systemctl reload compute-agent",
	},
	{
		Code: PlacementUnreachable, Severity: Warning, Title: "Placement cannot be reached",
		Meaning: stale, TimeToVisible: 30 * time.Second,
		Hint: "check that Placement runs and that [placement_client] url is correct; `compute-agent doctor` checks " +
			"both. The agent retries",
	},
	{
		Code: PlacementUnexpected, Severity: Critical, Title: "the server at the configured URL is not Placement",
		Meaning: stale,
		Hint:    "check [placement_client] url",
	},
	{
		Code: PlacementTooOld, Severity: Critical, Title: "Placement is too old",
		Meaning: stale,
		Hint:    "upgrade the Placement service",
	},
	{
		Code: CredentialsRefused, Severity: Critical, Title: "Placement rejects the agent's credentials",
		Meaning: stale,
		Hint: "check the credentials in [placement_client]; Placement requires the role admin or service, or a " +
			"host's certificate or token",
	},
	{
		Code: HostRefused, Severity: Critical,
		Title:   "Placement knows this host, and does not allow what the agent writes or reads",
		Meaning: stale,
		Hint: "Placement's message names the rule; the name in the host's certificate or token must be " +
			"agent.host, see docs/identity.md",
	},
	{
		Code:     CapacityNotAdmitted,
		Severity: Warning,
		Title:    "the driver reports more than Placement admits to this host",
		Meaning: "Of these providers, Placement keeps the inventories of classes that are not admitted and gets no " +
			"traits of kinds that are not; everything else on the node is updated. Guests keep running.",
		Hint: "if the machine has it, run `compute-agent cells manage admit-host` on the machine of the compute " +
			"API, as Placement's message says; see docs/identity.md",
	},
	{
		Code:     IdentityRefused,
		Severity: Critical,
		Title:    "the resource provider in Placement does not match this node",
		Meaning: "Nothing is written for the node, so that the providers of another node are not overwritten. " +
			"Guests keep running, and other nodes are reported. If the node has been refused since the agent " +
			"started, its servers are neither started, stopped, moved nor deleted: that waits.",
		Hint: "see docs/operators.md, \"Identity\"",
	},
	{
		Code: ReshapeRefused, Severity: Critical, Title: "the reshape that the driver requires is refused",
		Meaning: "Nothing was moved, and guests are not affected. The node is not updated until this is resolved.",
		Hint:    "`compute-agent plan --reshape` shows what the driver requires, and every reason for the refusal",
	},
	{
		Code: ReshapeHeld, Severity: Critical,
		Title: "the node is held: the reshape that the driver requires is refused",
		Meaning: "Nothing was moved, guests are not affected, and nothing is written for the node until an operator " +
			"runs `compute-agent refresh`.",
		Hint: "resolve the listed violations, then run `compute-agent refresh`",
	},
	{
		Code: ReshapeLate, Severity: Warning, Title: "the driver requires a reshape, which runs when the agent starts",
		Meaning: stale,
		Hint:    "systemctl restart compute-agent; `compute-agent plan --reshape` shows beforehand what moves where",
	},
	{
		Code: ReshapeAgain, Severity: Critical, Title: "the driver requires a reshape again, right after it was made",
		Meaning: "The reshape is complete, and guests are not affected. The node is not updated, because the driver " +
			"reports nothing but that it requires a reshape.",
		Hint: "this is a bug in the driver, and a restart does not help: report it to the author, and install the " +
			"previous version",
	},
	{
		Code:     DriverOlder,
		Severity: Critical,
		Title:    "the driver is older than the node's provider tree",
		Meaning: "Nothing is written for the node: this driver would report again what a newer version has moved. " +
			"Guests keep running, and Placement keeps what the newer version reported.",
		Hint: "install the newer version of the driver again; docs/upgrading-drivers.md says how to go back to " +
			"the older one",
	},
	{
		Code:     DriverFlaps,
		Severity: Warning,
		Title:    "the driver reports different values in every pass",
		Meaning:  "Every pass writes to Placement, and the values of these items are correct for one pass only.",
		Hint: "report it to the driver's author with the listed items and values: a driver must report the same " +
			"values for the same machine. What changes by itself (free memory, a clock) is not inventory",
	},
	{
		Code:     ItemsOverwritten,
		Severity: Warning,
		Title:    "another client changes again and again what this agent writes",
		Meaning: "The agent restores the listed items, and the other client changes them again. The scheduler uses " +
			"one value or the other.",
		Hint: "Placement's log, or its audit log, names the other client: another host with the same provider in " +
			"its provider.yaml, a script, or a person. Stop it, or take the items from the driver's configuration " +
			"or provider.yaml here",
	},
	{
		Code:     NodeClaimedTwice,
		Severity: Critical,
		Title:    "two drivers report the same node",
		Meaning: "The recorded owner keeps reporting the node; what the other driver reports for it is ignored. " +
			"Without an owner nothing is written for the node. All other nodes are reported, and guests keep running.",
		Hint: "`compute-agent node give NAME --to DRIVER` makes a driver the owner; remove the node from the " +
			"configuration of the other driver",
	},
	{
		Code: WriteConflict, Severity: Warning, Title: "another client keeps writing to the node's providers",
		Meaning: stale, TimeToVisible: 30 * time.Second,
		Hint: "look in Placement's log for the other client; the agent retries",
	},
	{
		Code: InventoryInUse, Severity: Warning, Title: "inventory that the driver no longer reports is allocated",
		Meaning: "Everything else on the node is updated. The guests keep running.",
		Hint:    "`openstack resource provider show --allocations UUID` lists the consumers; move or delete them",
	},
	{
		Code: PassFails, Severity: Warning, Title: "a pass failed",
		Meaning: stale, TimeToVisible: 30 * time.Second,
		Hint: "the text says what failed; `compute-agent doctor` checks the common causes",
	},
	{
		Code: SyncOld, Severity: Critical, Title: "no pass has succeeded for a long time",
		Meaning: stale,
		Hint: "the other conditions of this node give the reason; if there are none, look in the log for a " +
			"pass that hangs",
	},
	{
		Code: DriftFound, Severity: Info, Title: "another client changed what this agent wrote",
		Meaning: "The agent restores what the machine provides, and keeps what an operator may set.",
		Hint:    "if the change was not intended, look in Placement's log for the client",
	},
	{
		Code: ForeignKept, Severity: Info, Title: "unmanaged items that the driver omits are kept",
		Meaning: "None: other clients may depend on what they wrote.",
		Hint:    "delete it in Placement if it is not needed",
	},
	{
		Code: ProviderConfigIdle, Severity: Warning, Title: "entries of provider.yaml have no effect",
		Meaning: "The scheduler does not see what they request.",
		Hint:    "remove the entries, or fix what conflicts with them; then systemctl reload compute-agent",
	},
	{
		Code: InventoryDraining, Severity: Info, Title: "inventory that the machine no longer has is still allocated",
		Meaning: "It stays in Placement, reserved, until its guests are deleted.",
		Hint:    "to remove it sooner, move or delete these guests; their uuids are those of the consumers",
	},
	{
		Code:     AllocationsDiffer,
		Severity: Warning,
		Title:    "since a reshape, guests hold other allocations than the driver lists",
		Meaning: "Guests keep running. What a guest uses and does not hold is free for others in Placement, and is " +
			"given out a second time.",
		Hint: "`compute-agent allocations audit` shows both. If the driver is right, correct the allocations " +
			"(`openstack resource provider allocation set CONSUMER`) or undo the reshape; report it to the " +
			"driver's author",
	},
	{
		Code: NodeDisabled, Severity: Info, Title: "the node is disabled",
		Meaning: "No new guest is scheduled to it. Its guests keep running.",
		Hint: "to use it again: `compute-agent enable`, or, if the cell disabled it, `openstack compute service " +
			"set --enable HOST nova-compute`",
	},
	{
		Code: NodeOrphaned, Severity: Warning, Title: "the driver no longer reports the node",
		Meaning: "Its providers stay in Placement, and guests can still be scheduled to it.",
		Hint: "if it was removed permanently: `compute-agent node remove NAME`; otherwise fix the driver's " +
			"configuration",
	},
	{
		Code:     NodeElsewhere,
		Severity: Warning,
		Title:    "another host reports a node that this agent reported before",
		Meaning: "The node is the other host's; it is also so if the certificate of this host does not name the " +
			"node any more. This agent leaves its providers unchanged, and does not delete them, whatever its " +
			"driver says.",
		Hint: "if the node has moved there: `compute-agent node remove NAME`, which forgets it here and deletes " +
			"nothing; otherwise fix the configuration of the driver on that host",
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
