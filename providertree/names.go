// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Limits of Placement's own schemas, in bytes.
const (
	maxProviderName = 200
	maxSymbol       = 255
)

// TraitSharesViaAggregate marks a sharing provider: one whose inventory is for all providers that
// are in an aggregate with it.
const TraitSharesViaAggregate = "MISC_SHARES_VIA_AGGREGATE"

// Traits of a compute node's root that are the agent's own to set.
const (
	TraitComputeNode    = "COMPUTE_NODE"
	TraitStatusDisabled = "COMPUTE_STATUS_DISABLED"
)

// AgentTraits are the traits that no driver reports, whatever it is capable of.
var AgentTraits = []string{TraitComputeNode, TraitStatusDisabled}

// CustomPrefix begins the names of custom resource classes and traits. It is no name by itself.
const CustomPrefix = "CUSTOM_"

// IsCustom reports whether a resource class or trait is a custom one, which must be created in
// Placement before its first use.
func IsCustom(symbol string) bool {
	return len(symbol) > len(CustomPrefix) && symbol[:len(CustomPrefix)] == CustomPrefix
}

// IsCustomName reports whether a name can be that of a custom resource class or trait.
func IsCustomName(name string) bool { return IsCustom(name) && IsSymbol(name) }

// IsSymbol reports whether a name can be that of a resource class, a trait or a consumer type: 1 to
// 255 of A-Z, 0-9 and _.
func IsSymbol(name string) bool {
	return name != "" && len(name) <= maxSymbol && symbolRun(name) == len(name)
}

// symbolRun is how many bytes of a name, from its beginning, are A-Z, 0-9 and _.
func symbolRun(name string) int {
	for i := range len(name) {
		if c := name[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return i
		}
	}
	return len(name)
}

// ValidateClass returns an error unless a name can be that of a resource class: 1 to 255 of A-Z,
// 0-9 and _, and not CUSTOM_ alone. It does not check whether a standard class of that name exists,
// because Placement may have newer ones.
func ValidateClass(name string) error { return validateSymbol("resource class", name) }

// ValidateTrait is [ValidateClass] for traits.
func ValidateTrait(name string) error { return validateSymbol("trait", name) }

func validateSymbol(kind, name string) error {
	if name == "" || len(name) > maxSymbol {
		return fmt.Errorf("%s name %q has %d characters, must have 1 to %d", kind, clip(name), len(name), maxSymbol)
	}
	if symbolRun(name) < len(name) {
		return fmt.Errorf("%s name %q: only A-Z, 0-9 and _ are allowed", kind, clip(name))
	}
	if name == CustomPrefix {
		return fmt.Errorf("%s name %q: a custom %s has a name after CUSTOM_", kind, name, kind)
	}
	return nil
}

// ValidateText returns an error unless a plugin's text can be printed in one line as it is: all its
// characters are printable, and it neither begins nor ends with a space.
func ValidateText(s string) error {
	switch {
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("has unprintable characters")
	case strings.TrimSpace(s) != s:
		return errors.New("begins or ends with a space")
	}
	return nil
}

// ValidateProviderName returns an error unless a name can be that of a resource provider: 1 to 200
// characters.
func ValidateProviderName(name string) error {
	if n := utf8.RuneCountInString(name); n == 0 || n > maxProviderName {
		return fmt.Errorf("resource provider name %q has %d characters, must have 1 to %d",
			clip(name), n, maxProviderName)
	}
	return nil
}

// SameName reports whether two names of resource providers, or of other rows of a database, differ
// at most in spaces at the end. MariaDB and MySQL treat such names as equal, and so does
// OpenStack's Placement on them.
func SameName(a, b string) bool { return NameKey(a) == NameKey(b) }

// NameKey returns a key that is equal for names for which [SameName] is true.
func NameKey(name string) string { return strings.TrimRight(name, " ") }

// CanonicalUUID returns a uuid in the one form that a [Tree] keeps: lower case with hyphens. It
// reads what OpenStack's services take for a uuid (oslo_utils.uuidutils): 32 hexadecimal digits in
// either case, with hyphens anywhere or none, in braces, behind "urn:uuid:". Placement gives them
// back as they were written, so compare only canonical ones.
//
// Cost: no allocation for one that is canonical.
func CanonicalUUID(s string) (string, error) {
	if IsCanonicalUUID(s) {
		return s, nil
	}
	digits := strings.Trim(strings.ReplaceAll(strings.ReplaceAll(s, "urn:", ""), "uuid:", ""), "{}")
	id, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err != nil || len(id) != len(uuid.UUID{}) {
		return "", fmt.Errorf("%q is not a uuid", clip(s))
	}
	return uuid.UUID(id).String(), nil
}

// IsUUID reports whether s is a uuid in any form that [CanonicalUUID] reads.
func IsUUID(s string) bool {
	_, err := CanonicalUUID(s)
	return err == nil
}

// IsCanonicalUUID reports whether a uuid is in the form that [CanonicalUUID] returns.
func IsCanonicalUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// ChildUUID is the uuid of a provider below a root: version 5, of the root's uuid and a key that
// stays with the device (its PCI address, its NUMA cell, ...). The same device under the same root
// has the same uuid after every restart and reinstallation, so its provider is found again instead
// of colliding by name.
func ChildUUID(root, key string) (string, error) {
	id, err := uuid.Parse(root)
	if err != nil {
		return "", fmt.Errorf("uuid of the root %q is not a uuid: %w", clip(root), err)
	}
	return uuid.NewSHA1(id, []byte(key)).String(), nil
}

// clip keeps hostile names from filling a log line.
func clip(s string) string { return truncate(s, 80) }

// truncate is the first size bytes of s, in whole characters, and "..." if there are more. It is
// this module's copy of textutil.Clip: the module imports nothing of the agent.
func truncate(s string, size int) string {
	if len(s) > size {
		return strings.ToValidUTF8(s[:size], "") + "..."
	}
	return s
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// set returns the sorted, de-duplicated copy of a list, never nil.
func set(list []string) []string {
	out := make([]string, len(list))
	copy(out, list)
	for i := 1; i < len(out); i++ {
		if out[i-1] >= out[i] { // most lists come as they are kept
			slices.Sort(out)
			return slices.Compact(out)
		}
	}
	return out
}
