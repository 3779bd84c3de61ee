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
	// MoreWarnings is the name of the one that stands for all that are too many.
	MoreWarnings = "more-warnings"
)

var warningName = regexp.MustCompile(`^[a-z0-9][a-z0-9._:-]{0,79}$`)

// IsWarningName tells whether a warning can have that name.
func IsWarningName(name string) bool { return warningName.MatchString(name) }

// WarningName is the name that is most like the given one, among those that a warning can have: upper case becomes lower case, what else it
// cannot have a hyphen, what is too long is cut off.
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
