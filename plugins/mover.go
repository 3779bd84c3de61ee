// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// Limits of moves.
const (
	// MaxOffer bounds what Depart returns, in bytes.
	MaxOffer = protocol.MaxOffer
	// MaxChunk bounds the data of one call of a [ChunkFunc], in bytes.
	MaxChunk = protocol.MaxChunk
	// MaxFileName bounds the name of a file in ReadFile, in bytes.
	MaxFileName = protocol.MaxFileName
)

// InstanceMover is implemented by instance managers whose instances can be moved to other hosts
// while they are off (cold migration), and created again where their host was lost (evacuation).
//
//	source                       destination
//	Depart ─────── offer ──────▶ Arrive ─┐ reads files, where storage is not shared
//	ReadFile ◀───────────────────────────┘
//	                             SetPower          if the guest ran before
//	Leave                        -                 when the move is confirmed
//	SetPower                     Leave             when it is taken back
//
// The agent decides when each is called, never starts an instance that departed, and never has two
// instances of one uuid started. All calls are idempotent, and repeated after a crash, as those of
// [InstanceManager]; their errors are the same.
//
// A driver whose disks are all on storage that every host reaches (Ceph) returns "" from Depart
// after the shutdown, [ErrUnsupported] from ReadFile, defines the guest over the existing disks in
// Arrive, and takes only the definition back in Leave.
type InstanceMover interface {
	// Depart shuts an instance down, as SetPower without hard does, and keeps all of it. Nothing
	// but SetPower starts it again, not a boot of the host either. It returns how the driver of the
	// destination finds the disks: what has to be copied, and how it finds out whether storage is
	// shared. The text is the drivers' own, at most [MaxOffer] bytes of UTF-8; a repeated call
	// returns the same or one that serves as well.
	//
	// Errors: [ErrInstanceNotFound]; an [*InstanceFault] if it cannot be moved, which leaves its
	// power as it is.
	Depart(ctx context.Context, node, uuid string) (offer string, err error)

	// ReadFile reads a file of an instance that departed, from an offset to its end. The name is
	// one that this driver put into the offer, or anything that another host sent: check it.
	//
	// Errors: [ErrInstanceNotFound]; an [*InstanceFault] if there is no such file, or the instance
	// runs; those of send, unchanged.
	ReadFile(ctx context.Context, node, uuid, name string, offset int64, send ChunkFunc) error

	// Arrive creates an instance from the one that departed, or that was lost with its host, and
	// leaves it off. It does not change an instance that a former Arrive completed; it continues an
	// incomplete one, or creates it again. The disks are used where they are if storage is shared,
	// which has to be proved and not assumed, and copied otherwise. In an evacuation without shared
	// storage they are made of the image, as by Spawn.
	//
	// Errors: an [*InstanceFault] if it cannot be created on this node and a retry does not help.
	// Then nothing is left of the attempt, and what the source has is as it was.
	Arrive(ctx context.Context, node string, spec InstanceSpec, tree *providertree.Tree, from Arrival) (Instance, error)

	// Leave removes an instance of this host as Destroy does, running or not, but leaves disks that
	// it shares with the same instance on another host. It succeeds if there is nothing with that
	// uuid. It is called for the source when the instance has arrived for good, for the destination
	// when the move is taken back, and for a host that was evacuated when it is there again.
	//
	// Errors: an [*InstanceFault] if the guest with that uuid is not an instance.
	Leave(ctx context.Context, node, uuid string) error
}

// Arrival is where an instance comes from.
type Arrival struct {
	// Node is the name of the source's node.
	Node string
	// Evacuation says that the source is down: there is no offer and nothing to read.
	Evacuation bool
	// Offer is what the source's Depart returned.
	Offer string
	// Files reads the files of the source; nil in an evacuation.
	Files FileReader
}

// FileReader reads files of the source of a move.
type FileReader interface {
	// ReadFile is the ReadFile of the source's driver. nil means that all was read and arrived
	// unchanged. After an error it can be called again, with the offset up to which each was
	// called.
	ReadFile(ctx context.Context, name string, offset int64, each ChunkFunc) error
}

// ChunkFunc takes a part of a file, of 1 to [MaxChunk] bytes, at an offset. The parts of a file
// come in ascending order and do not overlap; what lies between them is zero. data is valid until
// it returns.
type ChunkFunc func(offset int64, data []byte) error
