// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"regexp"
	"strings"
)

const (
	// MaxWarnings bounds the warnings of one answer to Health.
	MaxWarnings = 100
	// MaxWarningName bounds the name of one, in characters.
	MaxWarningName = 80
	// MaxWarningText bounds its text, in characters.
	MaxWarningText = 2000
	// MoreWarnings is the name of the one that counts those above the limit.
	MoreWarnings = "more-warnings"
)

var warningName = regexp.MustCompile(`^[a-z0-9][a-z0-9._:-]{0,79}$`)

// IsWarningName reports whether a name is valid for a warning.
func IsWarningName(name string) bool { return warningName.MatchString(name) }

// WarningName converts a name to a valid one: upper case becomes lower case, other invalid
// characters become hyphens, and a long name is truncated.
func WarningName(name string) string {
	if IsWarningName(name) {
		return name
	}
	name = name[:min(len(name), 4*MaxWarningName)]
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r == '.', r == ':':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, "-_.:")
	if name == "" {
		return "unnamed"
	}
	return name[:min(len(name), MaxWarningName)]
}
