// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// InstanceManager is implemented by drivers that can create guests. An instance is a guest that
// Spawn created; the driver must recognize instances after a restart, and never changes other
// guests.
//
// Calls for one instance come one after the other. Calls for different ones run concurrently, also
// with every other method of the driver, Configure included: a Spawn can take minutes. None comes
// before Configure has succeeded once.
//
// A process can end at any point of a call. So Spawn, Destroy and SetPower are idempotent: the
// agent calls again with the same arguments, perhaps in another process, and the driver continues
// from what it finds.
//
// Errors of all methods: [NotReady] means that nothing was begun; [ErrUnsupported] means that the
// driver does not manage instances with the current configuration. After any other error that is
// not named below the outcome is unknown, and the agent calls again.
type InstanceManager interface {
	// Instances lists all instances of a node, running or not, complete or not, or returns an
	// error. An empty list means that there is none. At most 100,000.
	Instances(ctx context.Context, node string) ([]Instance, error)

	// Spawn creates an instance and starts it. It does not change an instance that a former Spawn
	// created, but starts it if it never ran; it completes an incomplete one, or removes and
	// creates it again.
	//
	// Errors: an [*InstanceFault] if it cannot be created on this node and a retry does not help,
	// for example because an unmanaged guest has the uuid. Then nothing is left of the attempt.
	Spawn(ctx context.Context, node string, spec InstanceSpec, tree *providertree.Tree) (Instance, error)

	// Destroy stops an instance and removes all that Spawn created for it, disks included. It
	// succeeds if there is nothing with that uuid.
	//
	// Errors: an [*InstanceFault] if the guest with that uuid is not an instance.
	Destroy(ctx context.Context, node, uuid string) error

	// SetPower brings an instance to PowerRunning or PowerShutdown. With hard, it is powered off at
	// once; otherwise the guest is asked to shut down, and powered off after a timeout of the
	// driver.
	//
	// Errors: [ErrInstanceNotFound]; an [*InstanceFault].
	SetPower(ctx context.Context, node, uuid string, to PowerState, hard bool) (Instance, error)
}

// Abilities name what some instance managers can do beyond the methods of [InstanceManager]. A
// plugin announces each as a capability, with underscores for hyphens in the name, if its driver
// implements the interface for it. The agent reports the abilities of each node to its cell, which
// refuses a request that the host of the server cannot carry out. AbilityRebuild is the agent's
// own: every instance manager can remove an instance and create it again.
const (
	AbilityConsoleLog = "console-log"
	AbilityConsole    = protocol.CapabilityConsole
	AbilityRebuild    = "rebuild"
	AbilityMigrate    = protocol.CapabilityMigrate
	AbilityRestore    = protocol.CapabilityRestore
)

// Abilities returns the names of the abilities that plugins announce.
func Abilities() []string {
	return []string{AbilityConsoleLog, AbilityConsole, AbilityMigrate, AbilityRestore}
}

// MaxConsoleLog is the most that ConsoleLog is asked for, in bytes.
const MaxConsoleLog = protocol.MaxConsoleLog

// ConsoleLogger is implemented by instance managers that keep what instances write to their serial
// console ([AbilityConsoleLog]).
type ConsoleLogger interface {
	// ConsoleLog returns the last bytes of it, at most maxBytes: 1 to MaxConsoleLog. It is empty if
	// the instance has written nothing. It runs concurrently with calls for the same instance.
	//
	// Errors: [ErrInstanceNotFound]; an [*InstanceFault] if nothing is kept of this instance.
	ConsoleLog(ctx context.Context, node, uuid string, maxBytes int) ([]byte, error)
}

// SpawnChecker is implemented by instance managers that can find out whether an instance can be
// created, without creating it.
type SpawnChecker interface {
	// CheckSpawn reports what keeps a Spawn with the same arguments from creating the instance, as
	// if there were none with its uuid: the image does not exist, or the node cannot provide what
	// the flavor or the image asks for. The agent calls it before it destroys an instance to create
	// it again from another image. It changes nothing, and what it finds can change until then.
	// What other instances use now need not be counted. Calls for the same instance come one after
	// the other, as those of [InstanceManager].
	//
	// Errors: an [*InstanceFault] if it cannot be created and a retry does not help. After others
	// the agent calls again, and destroys nothing until the call succeeds.
	CheckSpawn(ctx context.Context, node string, spec InstanceSpec, tree *providertree.Tree) error
}

// InstanceRestorer is implemented by instance managers that can create an instance again over the
// disks that are left of it ([AbilityRestore]): its guest was removed with another tool, or the
// host was installed again beside its disks.
type InstanceRestorer interface {
	// Restore creates what is missing of an instance over its disks, and leaves it off. The agent
	// calls it in a hard reboot of an instance that SetPower did not find. It never creates a disk
	// that had the owner's data, and removes none, whatever its outcome. It does not change an
	// instance that exists. It is idempotent, and calls for one instance come one after the other,
	// as those of [InstanceManager].
	//
	// Errors: an [*InstanceFault] if it cannot be created on this node and a retry does not help:
	// its disks are not there, or an unmanaged guest has the uuid.
	Restore(ctx context.Context, node string, spec InstanceSpec, tree *providertree.Tree) (Instance, error)
}

// ConsoleOpener is implemented by instance managers that give access to the serial consoles of
// instances ([AbilityConsole]).
type ConsoleOpener interface {
	// OpenConsole opens the serial console of an instance that runs: what the guest writes from now
	// on is read, what is written is its input. Read returns [io.EOF] when the console ends, as the
	// guest is off. One goroutine reads while another one writes; Close may be called at any
	// time and more than once, and ends both. It is called when ctx ends, if not before. It runs
	// concurrently with calls for the same instance.
	//
	// Errors: [ErrInstanceNotFound]; an [*InstanceFault] if it does not run, has no serial console,
	// or another user has it.
	OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error)
}

// InstanceWatcher is implemented by instance managers that notice changes of instances: a guest
// that shut down or crashed, or was stopped with another tool.
type InstanceWatcher interface {
	// WatchInstances calls changed with the name of a node and the uuid of an instance whenever
	// that may have changed, and returns when ctx ends. An empty uuid stands for all instances of
	// the node, an empty node for all of all nodes: events may have been lost. It can be called
	// before Configure has succeeded.
	WatchInstances(ctx context.Context, changed func(node, uuid string)) error
}

// Instance is the present state of an instance.
type Instance struct {
	// UUID is the consumer's in Placement.
	UUID string
	// Name is what its owner called it.
	Name string
	// Power is the state that it is in. Where the hypervisor does not say, for example while the
	// guest starts, it is the state that it is about to be in, and not PowerNoState. But while
	// Spawn starts it for the first time, it is not PowerRunning: the agent would take it for made.
	Power PowerState
	// HypervisorName is what it is called there ("instance-0000002a"), or "".
	HypervisorName string
}

// InstanceSpec describes an instance to create. A driver rejects what it cannot provide with an
// [*InstanceFault].
type InstanceSpec struct {
	// UUID is the consumer's in Placement.
	UUID string
	// Name is the owner's name for it: any text, not unique.
	Name              string
	ProjectID, UserID string
	Flavor            Flavor
	// Allocations are what the instance has in Placement, by uuid of a provider in the tree and
	// resource class, at least 1 each. They decide which CPUs, NUMA cells and devices it gets.
	Allocations providertree.ProviderResources
	// Image names the image to the driver; "": none, an empty disk.
	Image string
	// ImageProperties are hw_machine_type and the like.
	ImageProperties map[string]string
	// Metadata are the owner's key-value pairs.
	Metadata map[string]string
	// UserData is the owner's data for cloud-init, decoded; at most 64 KiB.
	UserData []byte
	// KeyName and PublicKey are the name and the public key of the key pair that the owner asked
	// for, "" without one: a line of authorized_keys, or an X.509 certificate in PEM. The driver
	// gives them to the guest together with the user data; it rejects them if it cannot.
	KeyName, PublicKey string
	// ConfigDrive says that the owner asks for a config drive as OpenStack has it: a disk with the
	// label config-2 that has user data, public key and metadata in openstack/latest. A driver that
	// gives the guest its user data in another way may leave it at that.
	ConfigDrive bool
}

// MaxPublicKey bounds the public key of an instance, in bytes.
const MaxPublicKey = protocol.MaxPublicKey

// Flavor is the size of an instance, in Nova's terms.
type Flavor struct {
	Name        string `json:"name"`
	VCPUs       int64  `json:"vcpus"`
	MemoryMB    int64  `json:"memory_mb"`
	RootGB      int64  `json:"root_gb"`
	EphemeralGB int64  `json:"ephemeral_gb,omitempty"`
	SwapMB      int64  `json:"swap,omitempty"`
	// ExtraSpecs are hw:cpu_policy and the like. A driver rejects those that it does not support.
	ExtraSpecs map[string]string `json:"extra_specs,omitempty"`
}

// PowerState is Nova's, with its numbers. For the agent PowerNoState means that there is no guest:
// a driver returns it for an incomplete instance at most, never for one that Spawn created.
type PowerState int

// The power states.
const (
	PowerNoState   PowerState = 0 // there is no guest
	PowerRunning   PowerState = 1
	PowerPaused    PowerState = 3
	PowerShutdown  PowerState = 4
	PowerCrashed   PowerState = 6
	PowerSuspended PowerState = 7
)

// String returns the state as Nova's clients show it.
func (s PowerState) String() string {
	switch s {
	case PowerNoState:
		return "NOSTATE"
	case PowerRunning:
		return "Running"
	case PowerPaused:
		return "Paused"
	case PowerShutdown:
		return "Shutdown"
	case PowerCrashed:
		return "Crashed"
	case PowerSuspended:
		return "Suspended"
	}
	return fmt.Sprintf("PowerState(%d)", int(s))
}

// ErrInstanceNotFound says that there is no instance with that uuid. See [InstanceNotFound].
var ErrInstanceNotFound = errors.New("no such instance")

// InstanceNotFound is [ErrInstanceNotFound] with the uuid.
type InstanceNotFound struct {
	// UUID of the instance. A driver can leave it out.
	UUID string
}

func (i *InstanceNotFound) Error() string { return withCause(ErrInstanceNotFound, i.UUID) }

// Is makes errors.Is(err, ErrInstanceNotFound) hold.
func (i *InstanceNotFound) Is(target error) bool { return target == ErrInstanceNotFound }

// InstanceFault says that a call for an instance cannot succeed, and that a retry does not help.
// Nothing was changed; a Spawn has left nothing behind.
type InstanceFault struct {
	// UUID of the instance. A driver can leave it out.
	UUID string
	// Reason tells the owner of the instance what is wrong, without details of the host. What is
	// wrapped around the fault is for administrators.
	Reason string
}

func (i *InstanceFault) Error() string {
	if i.UUID == "" { // of a driver: the agent adds it
		return "instance: " + i.Reason
	}
	return fmt.Sprintf("instance %s: %s", i.UUID, i.Reason)
}
