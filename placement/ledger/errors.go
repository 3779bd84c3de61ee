// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kind is the reason why an operation was refused. The API maps it to a status
// and an error code.
type Kind uint8

// The kinds of refusal.
const (
	ProviderNotFound Kind = iota + 1
	ParentNotFound
	ClassNotFound
	TraitNotFound
	ConsumerNotFound
	InventoryNotFound
	AllocationNotFound
	DuplicateName
	DuplicateUUID
	DuplicateConsumer
	ProviderInUse
	CannotDeleteParent
	InventoryInUse
	InventoryExists
	InvalidInventory
	InvalidAllocation
	InvalidName
	InvalidParent
	GenerationConflict
	ConsumerGenerationConflict
	CapacityExceeded
	AllocationConstraint
	ClassInUse
	TraitInUse
	StandardClass
	StandardTrait
)

var kindNames = [...]string{
	ProviderNotFound:           "resource provider not found",
	ParentNotFound:             "parent resource provider not found",
	ClassNotFound:              "resource class not found",
	TraitNotFound:              "trait not found",
	ConsumerNotFound:           "consumer not found",
	InventoryNotFound:          "inventory not found",
	AllocationNotFound:         "no allocations found",
	DuplicateName:              "name is taken",
	DuplicateUUID:              "uuid is taken",
	DuplicateConsumer:          "consumer is named twice",
	ProviderInUse:              "resource provider has allocations",
	CannotDeleteParent:         "resource provider has children",
	InventoryInUse:             "inventory has allocations",
	InventoryExists:            "inventory already exists",
	InvalidInventory:           "inventory is not valid",
	InvalidAllocation:          "allocation is not valid",
	InvalidName:                "name is not valid",
	InvalidParent:              "parent is not possible",
	GenerationConflict:         "resource provider generation conflict",
	ConsumerGenerationConflict: "consumer generation conflict",
	CapacityExceeded:           "capacity would be exceeded",
	AllocationConstraint:       "amount violates min_unit, max_unit or step_size",
	ClassInUse:                 "resource class is in use",
	TraitInUse:                 "trait is in use",
	StandardClass:              "standard resource classes cannot be changed",
	StandardTrait:              "standard traits cannot be changed",
}

// String names the kind in a few words.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is a refused operation; nothing of its transaction was applied. The
// fields that do not matter to the Kind are empty.
type Error struct {
	Kind Kind
	// Provider and Consumer are uuids; Class and Trait names (several are
	// joined by ", "); Name is the name that was asked for.
	Provider, Class, Trait, Consumer, Name string
	// Expected is the current generation and Given the caller's, for generation
	// conflicts. NoGeneration as Given: the caller expects no consumer; as
	// Expected: the consumer does not exist.
	Expected, Given int64
	// Detail has more: amounts, the rule that was violated.
	Detail string
}

// NoGeneration is the generation of a consumer that does not exist.
const NoGeneration = math.MinInt64

// Error implements error. The text of a consumer generation conflict begins
// like OpenStack Placement's, because clients match it: it has no error code of
// its own.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	if e.Kind == ConsumerGenerationConflict {
		fmt.Fprintf(&b, " - expected %s but got %s", generationText(e.Expected, "null"),
			generationText(e.Given, "None"))
	}
	for _, f := range [...]struct{ label, value string }{
		{"resource provider", e.Provider}, {"resource class", e.Class}, {"trait", e.Trait},
		{"consumer", e.Consumer}, {"name", e.Name},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, ", %s %s", f.label, f.value)
		}
	}
	if e.Kind == GenerationConflict {
		fmt.Fprintf(&b, ": expected %d but got %d", e.Expected, e.Given)
	}
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

// generationText is a consumer's generation, or none.
func generationText(g int64, none string) string {
	if g == NoGeneration {
		return none
	}
	return strconv.FormatInt(g, 10)
}

// Classes of refusal for errors.Is, for callers that need no more detail.
var (
	// ErrNotFound matches all kinds of missing objects.
	ErrNotFound = errors.New("not found")
	// ErrConflict matches the generation conflicts: read again, recompute, retry.
	ErrConflict = errors.New("generation conflict")
	// ErrInUse matches objects that cannot be deleted because they are in use.
	ErrInUse = errors.New("in use")
	// ErrExists matches names and uuids that are taken.
	ErrExists = errors.New("already exists")
	// ErrUnallocatable matches allocations that do not fit their inventory:
	// Placement's InvalidInventory family, status 409.
	ErrUnallocatable = errors.New("cannot be allocated")
)

// Is makes an Error match the sentinel of its class.
func (e *Error) Is(target error) bool {
	switch e.Kind {
	case ProviderNotFound, ParentNotFound, ClassNotFound, TraitNotFound, ConsumerNotFound, AllocationNotFound:
		return target == ErrNotFound
	case InventoryNotFound:
		return target == ErrNotFound || target == ErrUnallocatable
	case GenerationConflict, ConsumerGenerationConflict:
		return target == ErrConflict
	case ProviderInUse, CannotDeleteParent, InventoryInUse, ClassInUse, TraitInUse:
		return target == ErrInUse
	case DuplicateName, DuplicateUUID, DuplicateConsumer, InventoryExists:
		return target == ErrExists
	case CapacityExceeded, AllocationConstraint:
		return target == ErrUnallocatable
	}
	return false
}

// KindOf returns the Kind of an Error in err's chain, or 0: the storage failed,
// the context ended, the ledger is closed.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// Errors of the ledger itself and of its store.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the ledger is closed")
	// ErrVersionConflict is a Store's error for a Commit whose base is not the
	// newest version. Nothing was written.
	ErrVersionConflict = errors.New("another server committed first")
	// ErrReload is a Store's error if it cannot refresh by changes, or if rows
	// differ from the ledger's: load everything.
	ErrReload = errors.New("the whole state must be reloaded")
	// ErrOutcomeUnknown marks a write that may or may not have happened.
	// Read before you repeat it.
	ErrOutcomeUnknown = errors.New("the outcome of the write is not known: it may or may not have happened")
	// ErrUnavailable matches a Store's errors that can pass while the ledger is
	// open: no space, no write permission, a lock, a disk that does not answer.
	// Nothing was written, and the same write may succeed later.
	ErrUnavailable = errors.New("the storage cannot be used now")
	// ErrHandedBack is a Store's error when its tables were removed, and the database given back
	// to OpenStack Placement, while the ledger is open: it must not be used any more.
	ErrHandedBack = errors.New("the database was handed back to OpenStack Placement")
	// ErrReplaced is a Store's error when its tables are others than when the ledger was opened: it
	// must be opened again.
	ErrReplaced = errors.New("the tables of the database were made again")
	// ErrSchema is a Store's error when its tables are not those of this program, such as after a
	// newer one upgraded them: the ledger must not be used any more.
	ErrSchema = errors.New("the tables of the database are not those of this program")
	// ErrFull is an ErrUnavailable: no space is left.
	ErrFull = errors.New("the disk is full")
	// ErrRow is a Store's error if the database takes everything but a row of the
	// write, such as a name with letters that its character set does not have.
	// Nothing was written, and the same write fails again.
	ErrRow = errors.New("the database does not take a row")
	// ErrDuplicate comes with ErrReload: a Store's error if the database treats a name or uuid of
	// the write as equal to one that it has.
	ErrDuplicate = errors.New("the database has this name or uuid already")
	// ErrBusy is returned if other servers committed first in every retry.
	ErrBusy = errors.New("other servers keep committing first: try again later")
)

// PanicError is a panic of a function given to Run. The transaction was
// dropped and the ledger goes on.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("a ledger transaction panicked and was dropped: %v", e.Value)
}
