// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"
)

// InstanceManager is implemented by drivers that can make guests, not only report what there is room for. The agent calls an
// instance what it had made by Spawn; the driver must know these again after a restart, and never touches a guest that is none.
//
// Calls about one instance come one after the other. Those about different ones run beside each other and beside every other method of
// the driver, Configure included: a Spawn may take minutes. None comes before Configure has succeeded once.
//
// A process can end at any point of a call. So Spawn, Destroy and SetPower are idempotent: the agent calls again with the same
// arguments, in another process perhaps, and the driver goes on from what it finds.
//
// Errors of all methods: [NotReady] promises that nothing was begun; [ErrUnsupported] says that the present configuration does not let the
// driver manage instances. After any other error that is not named below the agent takes the outcome for unknown, and asks again.
type InstanceManager interface {
	// Instances lists the instances of a node, running or not, complete or not: all, or an error. An empty list says that there is none. At
	// most 100,000.
	Instances(ctx context.Context, node string) ([]Instance, error)

	// Spawn makes an instance and starts it. If a former Spawn made it, it is left as it is, but started if it never ran; what a former
	// Spawn left incomplete is completed, or removed and made again.
	//
	// Errors: an [*InstanceFault] if it cannot be made here, for whatever reason that asking again would not mend, a uuid that somebody
	// else's guest has among them: then nothing is left of the attempt.
	Spawn(ctx context.Context, node string, spec InstanceSpec, tree *providertree.Tree) (Instance, error)

	// Destroy ends an instance and removes all that Spawn made for it, disks included. It succeeds if there is nothing (left) of that uuid.
	//
	// Errors: an [*InstanceFault] if the guest of that uuid is none of Spawn's.
	Destroy(ctx context.Context, node, uuid string) error

	// SetPower brings an instance to PowerRunning or PowerShutdown. With hard, it is switched off at once; otherwise the guest is asked to
	// shut down, and switched off if it has not done so in the time that the driver allows it.
	//
	// Errors: [ErrInstanceNotFound]; an [*InstanceFault].
	SetPower(ctx context.Context, node, uuid string, to PowerState, hard bool) (Instance, error)
}

// InstanceWatcher is implemented by instance managers that notice what happens to instances by themselves: a guest that shut down or crashed, one
// that somebody stopped with another tool.
type InstanceWatcher interface {
	// WatchInstances calls changed with the name of a node and the uuid of an instance whenever that is no longer as it was, and
	// returns when ctx ends. An empty uuid stands for all instances of the node, an empty node for all: events may have been lost. It
	// may be called before Configure has ever succeeded.
	WatchInstances(ctx context.Context, changed func(node, uuid string)) error
}

// Instance is one that Spawn made, as it is now.
type Instance struct {
	// UUID is the consumer's in Placement.
	UUID string
	// Name is what its owner called it.
	Name string
	// Power is the state that it is in.
	Power PowerState
	// HypervisorName is what it is called there ("instance-0000002a"), or "".
	HypervisorName string
}

// InstanceSpec is an instance to be made. What a driver cannot provide it refuses with an [*InstanceFault].
type InstanceSpec struct {
	// UUID is the consumer's in Placement.
	UUID string
	// Name is what its owner calls it, for people: any text, not unique.
	Name              string
	ProjectID, UserID string
	Flavor            Flavor
	// Allocations are what Placement granted, by uuid of a provider in the tree and resource class, at least 1 each. They decide which
	// processors, cells of memory and devices the instance gets.
	Allocations providertree.ProviderResources
	// Image names the image to the driver; "": none, an empty disk.
	Image string
	// ImageProperties are hw_machine_type and the like.
	ImageProperties map[string]string
	// Metadata are the owner's key-value pairs.
	Metadata map[string]string
	// UserData is for cloud-init, as the owner gave it, decoded; at most 64 KiB.
	UserData []byte
}

// Flavor is the size of an instance, in Nova's terms. 0 is none of it.
type Flavor struct {
	Name        string `json:"name"`
	VCPUs       int64  `json:"vcpus"`
	MemoryMB    int64  `json:"memory_mb"`
	RootGB      int64  `json:"root_gb"`
	EphemeralGB int64  `json:"ephemeral_gb,omitempty"`
	SwapMB      int64  `json:"swap,omitempty"`
	// ExtraSpecs are hw:cpu_policy and the like. Those that ask for what the driver does not make it
	// refuses.
	ExtraSpecs map[string]string `json:"extra_specs,omitempty"`
}

// PowerState is Nova's, with its numbers.
type PowerState int

// The power states.
const (
	PowerNoState   PowerState = 0 // the hypervisor does not say
	PowerRunning   PowerState = 1
	PowerPaused    PowerState = 3
	PowerShutdown  PowerState = 4
	PowerCrashed   PowerState = 6
	PowerSuspended PowerState = 7
)

// String is the state as Nova's clients show it.
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

// ErrInstanceNotFound says that there is no instance of that uuid. See [InstanceNotFound].
var ErrInstanceNotFound = errors.New("no such instance")

// InstanceNotFound is [ErrInstanceNotFound] with the uuid.
type InstanceNotFound struct {
	// UUID is that of the instance. A driver may leave it out.
	UUID string
}

func (e *InstanceNotFound) Error() string { return because(ErrInstanceNotFound, e.UUID) }

// Is makes errors.Is(err, ErrInstanceNotFound) hold.
func (e *InstanceNotFound) Is(target error) bool { return target == ErrInstanceNotFound }

// InstanceFault says that something cannot be done with an instance, and that asking again with the same arguments does not help. Nothing
// was changed; a Spawn has left nothing behind.
type InstanceFault struct {
	// UUID is that of the instance. A driver may leave it out.
	UUID string
	// Reason is for the owner of the instance: what is wrong, in words that mention nothing of the host that is not theirs to know. What is
	// wrapped around the fault is for administrators.
	Reason string
}

func (e *InstanceFault) Error() string {
	if e.UUID == "" { // of a driver: the agent knows which one it asked about
		return "instance: " + e.Reason
	}
	return fmt.Sprintf("instance %s: %s", e.UUID, e.Reason)
}
