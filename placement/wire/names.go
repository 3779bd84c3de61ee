// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// IsName says whether s can be the name of a resource class, a trait or a consumer type: [A-Z0-9_]+.
func IsName(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

// IsCustomName says whether s can be the name of a custom resource class or trait: CUSTOM_[A-Z0-9_]+, at most MaxName
// characters.
func IsCustomName(s string) bool {
	return len(s) <= MaxName && len(s) > len(CustomPrefix) && strings.HasPrefix(s, CustomPrefix) && IsName(s)
}

// IsUUIDKey says whether s can be the key of a provider or a consumer in an object: 36 hexadecimal digits and dashes.
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

// ParseUUID reads a UUID as Placement does, in any common spelling: with or without dashes, in braces, with "urn:uuid:"
// before it, in either case. The result is the usual spelling, in lower case and with dashes.
func ParseUUID(s string) (uuid string, ok bool) {
	if len(s) == 36 && usualUUID(s) {
		return s, true
	}
	s = strings.ReplaceAll(strings.ReplaceAll(s, "urn:", ""), "uuid:", "")
	s = strings.ReplaceAll(strings.Trim(s, "{}"), "-", "")
	if len(s) != 32 {
		return "", false
	}
	var out [36]byte
	at := 0
	for i := 0; i < len(s); i++ {
		if at == 8 || at == 13 || at == 18 || at == 23 {
			out[at] = '-'
			at++
		}
		if !isHex(s[i]) {
			return "", false
		}
		out[at] = s[i] | 0x20 // Digits have this bit already.
		at++
	}
	return string(out[:]), true
}

// IsUUID says whether s is a UUID in any spelling that ParseUUID reads.
func IsUUID(s string) bool {
	_, ok := ParseUUID(s)
	return ok
}

func usualUUID(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !isHex(c) || c >= 'A' && c <= 'F' {
			return false
		}
	}
	return true
}

// CheckAnswer returns an error if an answer names a provider or a consumer by something that is no UUID: clients put what they
// read into the paths of further requests. It knows the answers of this package.
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
		all = slices.Collect(maps.Keys(a.Allocations))
	case *AggregateList:
		all = a.Aggregates
	}
	for _, uuid := range all {
		if !IsUUID(uuid) {
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
