// SPDX-License-Identifier: Apache-2.0

package disabled

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/providertree"
)

// Operator is the source of what people say with `compute-agent disable`.
const Operator = "operator"

// driverSource begins the source of reasons that the agent itself finds: that a driver is gone.
const driverSource = "driver "

// DriverSource is the source of the reason that a driver is gone, and DriverOf is the way back.
func DriverSource(driver string) string { return driverSource + driver }

// DriverOf returns the driver that a source is about, if it is about one.
func DriverOf(source string) (driver string, ok bool) {
	return strings.CutPrefix(source, driverSource)
}

// maxReason and maxBy bound texts, in characters.
const (
	maxReason = 500
	maxBy     = 200
)

// ErrText says that a text is not one that can be kept and shown.
var ErrText = errors.New("not a text to be shown")

// ErrWhole says that one node cannot be enabled, since all nodes of the host are disabled together.
var ErrWhole = errors.New("all nodes of this host are disabled together")

// Reason is one source's reason to disable one node, or all.
type Reason struct {
	// Source is who takes it back: [Operator], or a part of the agent.
	Source string `json:"source"`
	// Node is the name of the node; "": every node of this host.
	Node   string    `json:"node,omitempty"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// By is the person, or "".
	By string `json:"by,omitempty"`
}

func (r Reason) validate() error {
	if r.Source == "" {
		return fmt.Errorf("the source: %w: it is empty", ErrText)
	}
	for _, t := range []struct {
		what, text string
		most       int
		empty      bool
	}{{"the reason", r.Reason, maxReason, false}, {"who says it", r.By, maxBy, true}, {"the source", r.Source, maxBy, false}} {
		if err := checkText(t.text, t.most, t.empty); err != nil {
			return fmt.Errorf("%s: %w", t.what, err)
		}
	}
	if r.Node != "" {
		return providertree.ValidateProviderName(r.Node)
	}
	return nil
}

// checkText wants a line that a terminal shows as it is.
func checkText(text string, most int, mayBeEmpty bool) error {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: it is not UTF-8", ErrText)
	case !mayBeEmpty && strings.TrimSpace(text) == "":
		return fmt.Errorf("%w: it is empty", ErrText)
	case n > most:
		return fmt.Errorf("%w: it has %d characters, and may have %d", ErrText, n, most)
	}
	for _, c := range text {
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) { // bidirectional overrides, line separators
			return fmt.Errorf("%w: it holds the control character %U", ErrText, c)
		}
	}
	return nil
}

// Store is the reasons of one state directory, which is this process's alone. Its methods may be called from several goroutines.
type Store struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	file file
}

// Disable adds a reason, in place of an earlier one of the same source for the same node; Since is set. The same reason again
// changes nothing.
//
// Errors: [ErrText]; the state directory's.
func (s *Store) Disable(r Reason) error {
	if err := r.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file.clone()
	next.dropEnabling(r.Node)
	i := slices.IndexFunc(next.Reasons, func(o Reason) bool { return o.Source == r.Source && o.Node == r.Node })
	switch {
	case i < 0:
		r.Since = s.now().UTC()
		next.Reasons = append(next.Reasons, r)
	case next.Reasons[i].Reason == r.Reason:
		// Since stays.
	default:
		r.Since = s.now().UTC()
		next.Reasons[i] = r
	}
	return s.keep(next)
}

// Enable takes back what a source said of a node, or, with node "", all that it said. The nodes are noted as to be enabled
// ([Store.Enabling]), also if there was nothing to take back: the trait may be there by somebody else's hand. Reasons of other
// sources stay; they are returned.
//
// Errors: [ErrWhole] if the source disabled all nodes together and only one shall be enabled.
func (s *Store) Enable(source, node string) (left []Reason, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file.clone()
	if node != "" && slices.ContainsFunc(next.Reasons, func(r Reason) bool { return r.Source == source && r.Node == "" }) {
		return nil, ErrWhole
	}
	next.Reasons = slices.DeleteFunc(next.Reasons, func(r Reason) bool { return r.Source == source && (node == "" || r.Node == node) })
	if node == "" {
		next.Enabling = nil
	}
	if !slices.Contains(next.Enabling, node) && !slices.Contains(next.Enabling, "") {
		next.Enabling = append(next.Enabling, node)
	}
	for _, r := range next.Reasons {
		if node == "" || r.Node == "" || r.Node == node {
			left = append(left, r)
		}
	}
	return left, s.keep(next)
}

// Withdraw takes back what a source said of one node ("": of all nodes together), and nothing else: a trait that somebody else set is
// not asked away, as [Store.Enable] does. To take back what is not there changes nothing.
func (s *Store) Withdraw(source, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file.clone()
	next.Reasons = slices.DeleteFunc(next.Reasons, func(r Reason) bool { return r.Source == source && r.Node == node })
	return s.keep(next)
}

// Reasons returns why a node is disabled, the oldest first; none: it is not. With node "" it returns all reasons that there are.
func (s *Store) Reasons(node string) []Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Reason
	for _, r := range s.file.Reasons {
		if node == "" || r.Node == "" || r.Node == node {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b Reason) int { return a.Since.Compare(b.Since) })
	return out
}

// Reason says in one line why a node is disabled.
func (s *Store) Reason(node string) (text string, disabled bool) {
	reasons := s.Reasons(node)
	lines := make([]string, 0, len(reasons))
	for _, r := range reasons {
		line := r.Reason
		if r.Source != Operator {
			line = r.Source + ": " + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; "), len(reasons) > 0
}

// Enabling reports whether the trait is to be taken from a node whoever put it there.
func (s *Store) Enabling(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.file.Enabling, node) || slices.Contains(s.file.Enabling, "")
}

// Enabled notes that the trait is gone from nodes that were to be enabled: all of those that there are.
func (s *Store) Enabled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file.clone()
	next.Enabling = nil
	return s.keep(next)
}

// EnablingAny reports whether the trait is still to be taken from any node.
func (s *Store) EnablingAny() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.file.Enabling) > 0
}

// CheckReason says whether a text can be a reason: one line of at most 500 characters, none of them a control character.
//
// Errors: [ErrText].
func CheckReason(text string) error { return checkText(text, maxReason, false) }
