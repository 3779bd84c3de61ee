// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kind says what a refused operation ran into. The API maps it to a status
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
	// Expected is the generation that is there now and Given the one the
	// caller knew, of generation conflicts. A consumer that should be new is
	// Given NoGeneration; one that is not there is Expected NoGeneration.
	Expected, Given int64
	// Detail goes on where the fields end: amounts, the rule that was broken.
	Detail string
}

// NoGeneration is the generation of a consumer that does not exist.
const NoGeneration = math.MinInt64

// Error implements error with a full sentence. That of a consumer generation
// conflict begins with the words of OpenStack's Placement, because clients
// look for them: it has no error code of its own.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	if e.Kind == ConsumerGenerationConflict {
		fmt.Fprintf(&b, " - expected %s but got %s", generationText(e.Expected, "null"), generationText(e.Given, "None"))
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

// generationText is a consumer's generation; none is called as Placement calls it there.
func generationText(g int64, none string) string {
	if g == NoGeneration {
		return none
	}
	return strconv.FormatInt(g, 10)
}

// Classes of refusal for errors.Is, for callers that need no more detail.
var (
	// ErrNotFound matches everything that is not there.
	ErrNotFound = errors.New("not found")
	// ErrConflict matches the generation conflicts: read again, compute
	// again, try again.
	ErrConflict = errors.New("generation conflict")
	// ErrInUse matches what cannot go since something else relies on it.
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

// KindOf returns the Kind of a refusal anywhere in err's chain, 0 when err is
// none: the storage failed, the context ended, the ledger is closed.
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
	// ErrVersionConflict is a Store's answer to a Commit that is based on a
	// version that is no longer the newest. Nothing was written.
	ErrVersionConflict = errors.New("another server committed first")
	// ErrReload is a Store's answer when a refresh by changes is not
	// possible, or when rows are not what the ledger knows: load everything.
	ErrReload = errors.New("the whole state must be loaded again")
	// ErrOutcomeUnknown marks a write that may or may not have happened.
	// Read before you repeat it.
	ErrOutcomeUnknown = errors.New("the outcome of the write is not known: it may or may not have happened")
	// ErrUnavailable is matched by a Store's errors of which somebody can
	// take the cause away while the ledger is open: no space, no right to
	// write, a lock, a disk that does not answer. Nothing was written, and the
	// same may succeed later.
	ErrUnavailable = errors.New("the storage cannot be used now")
	// ErrFull is the one of them that says that there is no space.
	ErrFull = errors.New("the disk is full")
	// ErrBusy is returned when other servers' commits won every retry.
	ErrBusy = errors.New("other servers keep committing first: try again later")
)

// PanicError is a panic of a function given to Update. The transaction was
// dropped and the ledger goes on.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("a ledger transaction panicked and was dropped: %v", e.Value)
}
