// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// ErrDamaged is wrapped by the errors about a deny list that is not as it was written.
var ErrDamaged = errors.New("the deny list is damaged")

// ErrNoDenyList is what hosts get while a server does not know which ones are denied.
var ErrNoDenyList = errors.New("this server has no usable deny list, so that it lets no host in; see its log")

// Denial refuses a host: its tokens, and its certificates that were issued before a time.
type Denial struct {
	Host   string    `json:"host"`
	Before time.Time `json:"before"`
	// Reason is one line for people.
	Reason string `json:"reason,omitempty"`
}

// DenyList is the hosts that are refused. The zero DenyList refuses none. It does not change.
type DenyList struct {
	denials map[string]Denial // by folded name
	// serial grows with each change, date is that of the last one; zero: a list without a header.
	serial int64
	date   time.Time
	// unusable lists stand for one that is not known: they refuse all hosts.
	unusable bool
}

// maxSerial leaves as many changes as there will ever be.
const maxSerial = 1 << 62

// folded is a name of a host as lists compare it. Case does not count: neither does it in DNS, and
// a name that is typed with other letters must not let the host in.
func folded(host string) string { return strings.ToLower(host) }

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
			return nil, fmt.Errorf("%w: the reason for the host %s has %d bytes, more than %d",
				ErrInvalid, d.Host, len(d.Reason), MaxReason)
		}
		if other, twice := l.denials[folded(d.Host)]; !twice || d.Before.After(other.Before) {
			l.denials[folded(d.Host)] = d
		}
	}
	if size := len(l.Text()); size > maxDenyText {
		return nil, fmt.Errorf("%w: a deny list of %d hosts and %d bytes, more than %d",
			ErrInvalid, len(l.denials), size, maxDenyText)
	}
	return l, nil
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

// ParseDenyList reads a deny list as Text writes it: a header, and a line for each host,
//
//	HOST TIME [REASON]
//
// with a time of RFC 3339. Empty lines and those that begin with # do not count. ErrDamaged if the
// header does not belong to the hosts. A list without a header, as earlier versions and people
// write it, needs a host, or the line that says what the columns are: an empty file is damaged.
// name is what errors call the file.
func ParseDenyList(text []byte, name string) (*DenyList, error) {
	l, header, err := parseDenyList(text, name)
	switch {
	case err != nil:
		return nil, err
	case header == "" && len(l.denials) == 0 && !bytes.Contains(text, []byte(denyColumns)):
		return nil, fmt.Errorf("%w: %s has neither a header nor a host", ErrDamaged, name)
	case header != "" && header != l.header():
		return nil, fmt.Errorf(
			"%w: the header of %s does not belong to its %d hosts: a part is lost, or it was edited by hand",
			ErrDamaged, name, len(l.denials))
	}
	return l, nil
}

// parseDenyList reads a list with the serial and the date of its header, and does not compare the
// header with the hosts; it is "" without one.
func parseDenyList(text []byte, name string) (l *DenyList, header string, err error) {
	var denials []Denial
	var serial int64
	var date time.Time
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if strings.HasPrefix(lines.Text(), headerMark) {
			if header != "" || len(denials) > 0 {
				return nil, "", fmt.Errorf("%w: %s line %d is another header", ErrDamaged, name, number)
			}
			header = lines.Text()
			var day string
			if _, err := fmt.Sscanf(header, headerMark+"%d, date %20s", &serial, &day); err == nil {
				date, _ = time.Parse(time.RFC3339, day) // zero if it is not a time
			}
			if serial <= 0 || serial > maxSerial || date.IsZero() {
				return nil, "", fmt.Errorf("%w: %s line %d: %.200q is not a header", ErrDamaged, name, number, header)
			}
			continue
		}
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, "", fmt.Errorf("%s line %d: it is not HOST TIME REASON", name, number)
		}
		before, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			return nil, "", fmt.Errorf("%s line %d: %.64q is not a time such as 2026-01-31T12:00:00Z",
				name, number, fields[1])
		}
		denials = append(denials, Denial{Host: fields[0], Before: before, Reason: strings.Join(fields[2:], " ")})
	}
	if err := lines.Err(); err != nil {
		return nil, "", fmt.Errorf("read the deny list %s: %w", name, err)
	}
	if l, err = NewDenyList(denials); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	l.serial, l.date = serial, date
	return l, header, nil
}

// Denials returns the denials of the list, by host; a nil DenyList has none.
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

// Denial returns the denial of a host.
func (l *DenyList) Denial(host string) (d Denial, denied bool) {
	if l == nil {
		return d, false
	}
	d, denied = l.denials[folded(host)]
	return d, denied
}

// Err is ErrNoDenyList for a list that stands for one which is not known.
func (l *DenyList) Err() error {
	if l != nil && l.unusable {
		return ErrNoDenyList
	}
	return nil
}

// Header is the serial and the date of the list, zero if it has none.
func (l *DenyList) Header() (serial int64, date time.Time) {
	if l == nil {
		return 0, time.Time{}
	}
	return l.serial, l.date
}

// Dated is the list with a header.
func (l *DenyList) Dated(serial int64, date time.Time) *DenyList {
	dated := &DenyList{serial: serial, date: date.UTC().Truncate(time.Second)}
	if l != nil {
		dated.denials = l.denials
	}
	return dated
}

// same reports whether two lists refuse the same.
func (l *DenyList) same(other *DenyList) bool { return bytes.Equal(l.lines(), other.lines()) }

// missing are the hosts of another list that this one does not have.
func (l *DenyList) missing(other *DenyList) (hosts []string) {
	for _, d := range other.Denials() {
		if _, has := l.Denial(d.Host); !has {
			hosts = append(hosts, d.Host)
		}
	}
	return hosts
}

// checkSuccessor returns an error unless the list may take the place of another one: an old list
// would let hosts in again.
func (l *DenyList) checkSuccessor(other *DenyList, name string) error {
	had, _ := other.Header()
	switch {
	case l.serial >= had:
		return nil
	case l.serial == 0:
		return fmt.Errorf("%w: %s has lost its header, with the serial %d", ErrDamaged, name, had)
	}
	return fmt.Errorf("%w: %s is of %s and has the serial %d, less than that of the list before, %d",
		ErrDamaged, name, rfc3339(l.date), l.serial, had)
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
		if folded(d.Host) != folded(host) {
			without.denials[folded(d.Host)] = d
		}
	}
	return without, len(without.denials) < len(l.Denials())
}

const (
	// denyColumns is a line of each list: an empty answer of another service has none. Older
	// servers require that a list which they fetch begins with it.
	denyColumns = "# Hosts that are refused: HOST, certificates issued before TIME (and all tokens), REASON.\n"
	headerMark  = "# deny list of compute-agent: serial "
)

// header is the line that says which list it is, and which shows that a part of it is missing.
func (l *DenyList) header() string {
	head := fmt.Sprintf("%s%d, date %s, hosts %d, checksum ", headerMark, l.serial, rfc3339(l.date), len(l.denials))
	sum := sha256.Sum256(append([]byte(head), l.lines()...))
	return head + hex.EncodeToString(sum[:8])
}

// lines returns the part of the file that has a line for each host, without the header.
func (l *DenyList) lines() (text []byte) {
	for _, d := range l.Denials() {
		text = append(fmt.Appendf(text, "%s %s %s", d.Host, rfc3339(d.Before), d.Reason), '\n')
	}
	return text
}

// Text is the list as a file holds it.
func (l *DenyList) Text() []byte {
	text := []byte(denyColumns)
	if l != nil && l.serial > 0 {
		text = append([]byte(l.header()+"\n"), text...)
	}
	return append(text, l.lines()...)
}

// Published is Text as servers fetch it.
func (l *DenyList) Published() []byte { return append([]byte(denyColumns), l.Text()...) }

// Check returns an error that wraps ErrDenied if the host is refused with a credential that was
// issued at a time; the zero time for a token. A list that is not known refuses all, by
// ErrNoDenyList. Cost: one look-up.
func (l *DenyList) Check(host string, issued time.Time) error {
	if err := l.Err(); err != nil {
		return err
	}
	d, denied := l.Denial(host)
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
