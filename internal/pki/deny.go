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

	"github.com/rs/zerolog"

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

// maxDenials bounds a deny list.
const maxDenials = 100_000

// NewDenyList makes the list of some denials. Of two of a host, the later one counts. ErrInvalid
// for a name that a file cannot hold.
func NewDenyList(denials []Denial) (*DenyList, error) {
	if len(denials) > maxDenials {
		return nil, fmt.Errorf("%w: %d denials, more than %d", ErrInvalid, len(denials), maxDenials)
	}
	l := &DenyList{denials: make(map[string]Denial, len(denials))}
	for _, d := range denials {
		if d.Host == "" || strings.ContainsFunc(d.Host, func(r rune) bool { return r <= ' ' || r == 0x7f }) || strings.HasPrefix(d.Host, "#") {
			return nil, fmt.Errorf("%w: the deny list has the host %.300q", ErrInvalid, d.Host)
		}
		d.Before, d.Reason = d.Before.UTC().Truncate(time.Second), strings.Join(strings.Fields(d.Reason), " ")
		if other, twice := l.denials[d.Host]; !twice || d.Before.After(other.Before) {
			l.denials[d.Host] = d
		}
	}
	return l, nil
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

// Denials are those of the list, by host.
func (l *DenyList) Denials() []Denial {
	all := make([]Denial, 0, len(l.denials))
	for _, d := range l.denials {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Denial) int { return strings.Compare(a.Host, b.Host) })
	return all
}

// Text is the list as a file holds it.
func (l *DenyList) Text() []byte {
	text := []byte("# Hosts that are refused: HOST, certificates issued before TIME (and all tokens), REASON.\n")
	for _, d := range l.Denials() {
		text = append(fmt.Appendf(text, "%s %s %s", d.Host, d.Before.Format(time.RFC3339), d.Reason), '\n')
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
	if !denied || !issued.Before(d.Before) {
		return nil
	}
	reason := ""
	if d.Reason != "" {
		reason = ": " + d.Reason
	}
	return fmt.Errorf("%w: %s since %s%s", ErrDenied, host, d.Before.Format(time.RFC3339), reason)
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

// DenyFile is the DenyList of a file, as the file is now. Make one with OpenDenyFile; a nil
// DenyFile refuses none.
type DenyFile struct{ file *files.Reloaded[*DenyList] }

// OpenDenyFile reads a deny list; see ParseDenyList. The file is looked at again while requests
// come, at most once a second. If it cannot be used then, the old list stays, and log says so.
func OpenDenyFile(path string, log zerolog.Logger) (*DenyFile, error) {
	file, err := files.NewReloaded([]string{path}, log, nil, func(files []files.Content) (*DenyList, error) {
		return ParseDenyList(files[0].Data, path)
	})
	if err != nil {
		return nil, fmt.Errorf("deny list: %w", err)
	}
	return &DenyFile{file}, nil
}

// Get is the list.
func (f *DenyFile) Get() *DenyList {
	if f == nil {
		return nil
	}
	return f.file.Get()
}
