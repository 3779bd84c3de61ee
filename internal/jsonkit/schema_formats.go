// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"net/netip"
	"strings"
	"unicode"

	"github.com/compute-agent/compute-agent/providertree"
)

// IsPrintable says whether a character may be in a name: all but control and unassigned ones, and
// separators other than spaces, of any kind.
func IsPrintable(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.Is(unicode.Zl, r) && !unicode.Is(unicode.Zp, r)
}

// formats are the formats that schemas name. Each is about strings; Type comes before it.
var formats = map[string]func(string) bool{
	"uuid":   providertree.IsUUID, // as Nova has it, in oslo_utils.uuidutils
	"ipv4":   func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
	"ipv6":   func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() && a.Zone() == "" },
	"base64": base64Like,
}

// base64Like says whether Python's base64 can decode a string: ASCII characters outside of its
// alphabet are skipped, and what is left has to be complete.
func base64Like(s string) bool {
	position, pads := 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '=':
			if position >= 2 {
				if pads++; position+pads >= 4 {
					return true
				}
			}
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/':
			position, pads = (position+1)%4, 0
		case c >= 0x80:
			return false
		}
	}
	return position == 0
}

// nameReason and spacedNameReason are what a name has to be, in Nova's words.
const (
	nameReason       = "printable characters. Can not start or end with whitespace."
	spacedNameReason = "printable characters with at least one non space character"
)

// nameLike says whether a string can be a name. Characters beyond the basic plane are none, as with
// Nova.
func nameLike(s string) bool {
	for _, r := range s {
		if !IsPrintable(r) || r >= 0xffff {
			return false
		}
	}
	return trimSpaces(s) == s
}

func trimSpaces(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.Is(unicode.Zs, r) })
}
