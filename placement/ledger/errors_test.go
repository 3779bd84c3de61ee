// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestErrorsAreSentences(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		err  *ledger.Error
		want string
	}{
		{&ledger.Error{Kind: ledger.GenerationConflict, Provider: "p", Expected: 3, Given: 2},
			"resource provider generation conflict, resource provider p: expected 3 but got 2"},
		{&ledger.Error{Kind: ledger.ConsumerGenerationConflict, Consumer: "c", Expected: 1, Given: ledger.NoGeneration},
			"consumer generation conflict - expected 1 but got None, consumer c"},
		{&ledger.Error{Kind: ledger.ConsumerGenerationConflict, Consumer: "c", Expected: ledger.NoGeneration,
			Given: -1}, "consumer generation conflict - expected null but got -1, consumer c"},
		{&ledger.Error{Kind: ledger.CapacityExceeded, Provider: "p", Class: "VCPU", Detail: "needed 2"},
			"capacity would be exceeded, resource provider p, resource class VCPU: needed 2"},
	} {
		testproc.Equal(t, tc.err.Error(), tc.want, "%q")
	}
}

// TestErrorClasses: which kinds each sentinel matches; other kinds match none.
func TestErrorClasses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	classes := map[error][]ledger.Kind{
		ledger.ErrNotFound: {ledger.ProviderNotFound, ledger.ParentNotFound, ledger.ClassNotFound,
			ledger.TraitNotFound, ledger.ConsumerNotFound,
			ledger.AllocationNotFound, ledger.InventoryNotFound},
		ledger.ErrConflict: {ledger.GenerationConflict, ledger.ConsumerGenerationConflict},
		ledger.ErrInUse: {ledger.ProviderInUse, ledger.CannotDeleteParent, ledger.InventoryInUse,
			ledger.ClassInUse, ledger.TraitInUse},
		ledger.ErrExists: {ledger.DuplicateName,
			ledger.DuplicateUUID, ledger.DuplicateConsumer, ledger.InventoryExists},
		ledger.ErrUnallocatable: {ledger.CapacityExceeded, ledger.AllocationConstraint, ledger.InventoryNotFound},
	}
	for kind := ledger.ProviderNotFound; kind <= ledger.StandardTrait; kind++ {
		for sentinel, kinds := range classes {
			if got, want := errors.Is(&ledger.Error{Kind: kind}, sentinel), slices.Contains(kinds, kind); got != want {
				t.Errorf("%q is %q: %v, want %v", kind, sentinel, got, want)
			}
		}
	}
}

// TestKindNames: a kind that does not exist has no name.
func TestKindNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for kind, want := range map[ledger.Kind]string{
		0: "kind 0", ledger.ProviderNotFound: "resource provider not found",
		ledger.StandardTrait: "standard traits cannot be changed", ledger.StandardTrait + 1: "kind 27",
	} {
		testproc.Equal(t, kind.String(), want, "%d is %q", kind)
	}
}
