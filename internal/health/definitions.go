// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	_ "embed" // the definitions
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"
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

// definitionsFile defines each condition, and says how.
//
//go:embed definitions.toml
var definitionsFile string

var definitions = sync.OnceValue(func() []Definition {
	var file struct {
		Meanings  map[string]string
		Condition []struct {
			Definition
			After string
		}
	}
	err := toml.NewDecoder(strings.NewReader(definitionsFile)).DisallowUnknownFields().Decode(&file)
	all := make([]Definition, len(file.Condition))
	for i, c := range file.Condition {
		all[i] = c.Definition
		all[i].Meaning = cmp.Or(file.Meanings[c.Meaning], c.Meaning)
		if c.After != "" && err == nil {
			all[i].TimeToVisible, err = time.ParseDuration(c.After)
		}
	}
	if err != nil {
		panic(err)
	}
	return all
})

// Definitions returns all of them: the agent's, the drivers' and the nodes'.
func Definitions() []Definition { return slices.Clone(definitions()) }

// Define returns the definition of a code. It panics for a code that has none.
func Define(code Code) Definition {
	i := slices.IndexFunc(definitions(), func(d Definition) bool { return d.Code == code })
	if i < 0 {
		panic(fmt.Sprintf("health: no definition of %q", code))
	}
	return definitions()[i]
}
