// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// IsUUIDKey says whether s can be the key of a provider or a consumer in an object: 36 hexadecimal
// digits and dashes.
func IsUUIDKey(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '-' && !isHex(c) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// CheckAnswer returns an error if an answer has a provider, consumer or aggregate that is not a
// UUID, because clients put these into the paths of further requests. It also does so if an answer
// lacks the object of allocations or usages, which would be read as "there are none". It knows the
// answers of this package.
func CheckAnswer(answer any) error {
	var all []string
	switch a := answer.(type) {
	case *ResourceProvider:
		all = a.uuids(nil)
	case *ResourceProviders:
		for i := range a.ResourceProviders {
			all = a.ResourceProviders[i].uuids(all)
		}
	case *ProviderAllocations:
		all = slices.Collect(maps.Keys(a.Allocations))
	case *ConsumerAllocations:
		if a.Allocations == nil {
			return errors.New("it has no allocations")
		}
		all = slices.Collect(maps.Keys(a.Allocations))
	case *TypedUsagesReply:
		if a.Usages == nil {
			return errors.New("it has no usages")
		}
	case *AggregateList:
		all = a.Aggregates
	}
	for _, uuid := range all {
		if !providertree.IsUUID(uuid) {
			return fmt.Errorf("%.100q is not a UUID", uuid)
		}
	}
	return nil
}

// uuids appends those that a provider has.
func (p *ResourceProvider) uuids(all []string) []string {
	all = append(all, p.UUID)
	if p.Parent != nil {
		all = append(all, *p.Parent)
	}
	if p.Root != "" {
		all = append(all, p.Root)
	}
	return all
}

// reader reads the bodies of requests; the methods beside it read what several bodies have.
type reader struct{ *jsonkit.Reader }

func newReader(body []byte) *reader { return &reader{jsonkit.NewReader(body)} }

// finish makes sure that the body ends where what was read of it does.
func (r *reader) finish(err error) error {
	if err == nil {
		err = r.End()
	}
	return err
}
