// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/files"
)

// ErrDenied is wrapped by the errors about hosts of a deny list.
var ErrDenied = errors.New("the host is on the deny list")

// Denial refuses a host: its tokens, and its certificates that were issued before a time.
type Denial struct {
	Host   string    `json:"host"`
	Before time.Time `json:"before"`
	// Reason is one line for people.
	Reason string `json:"reason,omitempty"`
}

// DenyList is the hosts that are refused. The zero DenyList refuses none. It does not change.
type DenyList struct{ denials map[string]Denial }

// MaxReason bounds the reason of a denial, in bytes.
const MaxReason = 500

// maxDenyText bounds the text of a list, in bytes: some 20,000 hosts. A file has a line more.
const maxDenyText = files.MaxSize - 8<<10

// maxDeniedName bounds the name of a host that is denied, in bytes: that of a site's certificate
// may be longer than one that the DNS has.
const maxDeniedName = 1000

// NewDenyList makes the list of some denials. Of two of a host, the later one counts. ErrInvalid
// for a name that a file cannot hold, and for more than the file of a list may have.
func NewDenyList(denials []Denial) (*DenyList, error) {
	l := &DenyList{denials: make(map[string]Denial, len(denials))}
	for _, d := range denials {
		if d.Host == "" || len(d.Host) > maxDeniedName || !utf8.ValidString(d.Host) || strings.HasPrefix(d.Host, "#") ||
			strings.ContainsFunc(d.Host, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
			return nil, fmt.Errorf("%w: the deny list has the host %.300q", ErrInvalid, d.Host)
		}
		d.Before = d.Before.UTC().Truncate(time.Second)
		if y := d.Before.Year(); y < 0 || y > 9999 {
			return nil, fmt.Errorf("%w: the deny list has the year %d for the host %s", ErrInvalid, y, d.Host)
		}
		if d.Reason = oneLine(d.Reason); len(d.Reason) > MaxReason {
			return nil, fmt.Errorf("%w: the reason for the host %s has %d bytes, more than %d", ErrInvalid, d.Host, len(d.Reason), MaxReason)
		}
		if other, twice := l.denials[d.Host]; !twice || d.Before.After(other.Before) {
			l.denials[d.Host] = d
		}
	}
	if size := len(l.Text()); size > maxDenyText {
		return nil, fmt.Errorf("%w: a deny list of %d hosts and %d bytes, more than %d", ErrInvalid, len(l.denials), size, maxDenyText)
	}
	return l, nil
}

// Shortened are denials that a list can hold: a reason is cut at MaxReason, and all are dropped if
// the list would be too long. Who publishes a list uses it: no text for people may keep a denial
// from taking effect.
func Shortened(denials []Denial) []Denial {
	out, size := slices.Clone(denials), len(denyHeader)
	for i, d := range out {
		out[i].Reason = cut(oneLine(d.Reason), MaxReason)
		size += len(d.Host) + len(" 2006-01-02T15:04:05Z \n") + len(out[i].Reason)
	}
	if size > maxDenyText {
		for i := range out {
			out[i].Reason = ""
		}
	}
	return out
}

// cut is the beginning of a text, of at most some bytes, without half a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// oneLine is a text with single spaces, and without what a terminal would obey.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)), " ")
}

// ParseDenyList reads a deny list as Text writes it: a line for each host,
//
//	HOST TIME [REASON]
//
// with a time of RFC 3339. Empty lines and those that begin with # do not count. name is what
// errors call the file.
func ParseDenyList(text []byte, name string) (*DenyList, error) {
	var denials []Denial
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("%s line %d: it is not HOST TIME REASON", name, number)
		}
		before, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %.64q is not a time such as 2026-01-31T12:00:00Z", name, number, fields[1])
		}
		denials = append(denials, Denial{Host: fields[0], Before: before, Reason: strings.Join(fields[2:], " ")})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the deny list %s: %w", name, err)
	}
	l, err := NewDenyList(denials)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// Denials are those of the list, by host; a nil DenyList has none.
func (l *DenyList) Denials() []Denial {
	if l == nil {
		return nil
	}
	all := make([]Denial, 0, len(l.denials))
	for _, d := range l.denials {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Denial) int { return strings.Compare(a.Host, b.Host) })
	return all
}

// Union is the list of all that one of them refuses. ErrInvalid if that is too long for a file.
func (l *DenyList) Union(others ...*DenyList) (*DenyList, error) {
	all := l.Denials()
	for _, other := range others {
		all = append(all, other.Denials()...)
	}
	return NewDenyList(all)
}

// With is the list with another denial. Of two of a host the later one counts.
func (l *DenyList) With(d Denial) (*DenyList, error) { return NewDenyList(append(l.Denials(), d)) }

// Without is the list without a host; found says whether it had one.
func (l *DenyList) Without(host string) (without *DenyList, found bool) {
	without = &DenyList{denials: make(map[string]Denial)}
	for _, d := range l.Denials() {
		if d.Host != host {
			without.denials[d.Host] = d
		}
	}
	return without, len(without.denials) < len(l.Denials())
}

// denyHeader is the first line of a list: an empty answer of another service is not one.
const denyHeader = "# Hosts that are refused: HOST, certificates issued before TIME (and all tokens), REASON.\n"

// Text is the list as a file holds it.
func (l *DenyList) Text() []byte {
	text := []byte(denyHeader)
	for _, d := range l.Denials() {
		text = append(fmt.Appendf(text, "%s %s %s", d.Host, rfc3339(d.Before), d.Reason), '\n')
	}
	return text
}

// Check returns an error that wraps ErrDenied if the host is refused with a credential that was
// issued at a time; the zero time for a token. Cost: one look-up.
func (l *DenyList) Check(host string, issued time.Time) error {
	if l == nil {
		return nil
	}
	d, denied := l.denials[host]
	if !denied || !issued.IsZero() && !issued.Before(d.Before) {
		return nil
	}
	reason := ""
	if d.Reason != "" {
		reason = ": " + d.Reason
	}
	return fmt.Errorf("%w: %s since %s%s", ErrDenied, host, rfc3339(d.Before), reason)
}

// CheckIdentity is Check for a certificate. An unmarked one is refused if any of its names is.
func (l *DenyList) CheckIdentity(id Identity) error {
	if err := l.Check(id.Name, id.Issued); err != nil || id.Kind != Unmarked {
		return err
	}
	for _, name := range id.Names {
		if err := l.Check(name, id.Issued); err != nil {
			return err
		}
	}
	return nil
}
