// SPDX-License-Identifier: Apache-2.0

package statedir

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

// Operator is the source of reasons from `compute-agent disable`.
const Operator = "operator"

// driverSource is the prefix of sources for unavailable drivers.
const driverSource = "driver "

// DriverSource is the source of the reason that a driver is unavailable. DriverOf is its inverse.
func DriverSource(driver string) string { return driverSource + driver }

// DriverOf returns the driver of a source, if it is one of [DriverSource].
func DriverOf(source string) (driver string, ok bool) {
	return strings.CutPrefix(source, driverSource)
}

// maxReason and maxBy limit texts in characters.
const (
	maxReason = 500
	maxBy     = 200
)

// ErrText means that a text is not valid.
var ErrText = errors.New("invalid text")

// ErrWhole means that one node cannot be enabled, because a reason disables all nodes of the host.
var ErrWhole = errors.New("all nodes of this host are disabled together")

// Reason is one source's reason to disable one node, or all.
type Reason struct {
	// Source is what may remove the reason: [Operator], or a part of the agent.
	Source string `json:"source"`
	// Node is the name of the node; "": every node of this host.
	Node   string    `json:"node,omitempty"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	// By is the user, or "".
	By string `json:"by,omitempty"`
}

func (r Reason) validate() error {
	if r.Source == "" {
		return fmt.Errorf("the source: %w: it is empty", ErrText)
	}
	for _, t := range []struct {
		what, text string
		maxRunes   int
		empty      bool
	}{{"the reason", r.Reason, maxReason, false}, {"the user", r.By, maxBy, true},
		{"the source", r.Source, maxBy, false}} {
		if err := checkText(t.text, t.maxRunes, t.empty); err != nil {
			return fmt.Errorf("%s: %w", t.what, err)
		}
	}
	if r.Node != "" {
		return providertree.ValidateProviderName(r.Node)
	}
	return nil
}

// checkText checks that a text is one printable line.
func checkText(text string, maxRunes int, mayBeEmpty bool) error {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: it is not UTF-8", ErrText)
	case !mayBeEmpty && strings.TrimSpace(text) == "":
		return fmt.Errorf("%w: it is empty", ErrText)
	case n > maxRunes:
		return fmt.Errorf("%w: it has %d characters, at most %d are allowed", ErrText, n, maxRunes)
	}
	for _, c := range text {
		// bidirectional overrides, line separators
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) {
			return fmt.Errorf("%w: it contains the control character %U", ErrText, c)
		}
	}
	return nil
}

// Disabled holds the reasons of a locked state directory. It is safe for concurrent use.
type Disabled struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	file file
}

// Disable adds a reason and sets Since. It replaces another reason of the same source for the same
// node; the same reason again changes nothing.
//
// Errors: [ErrText]; I/O errors.
func (d *Disabled) Disable(r Reason) error {
	if err := r.validate(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.file.clone()
	next.dropEnabling(r.Node)
	i := slices.IndexFunc(next.Reasons, func(o Reason) bool { return o.Source == r.Source && o.Node == r.Node })
	switch {
	case i < 0:
		r.Since = d.now().UTC()
		next.Reasons = append(next.Reasons, r)
	case next.Reasons[i].Reason == r.Reason:
		// Since stays.
	default:
		r.Since = d.now().UTC()
		next.Reasons[i] = r
	}
	return d.write(next)
}

// Enable removes a source's reasons for a node, or all with node "". It also records the nodes for
// [Disabled.Enabling], because another client may have set the trait. Reasons of other sources stay
// and are returned.
//
// Errors: [ErrWhole] if the source's reason is for all nodes and node is not "".
func (d *Disabled) Enable(source, node string) (left []Reason, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.file.clone()
	if node != "" && slices.ContainsFunc(next.Reasons,
		func(r Reason) bool { return r.Source == source && r.Node == "" }) {
		return nil, fmt.Errorf(
			"%w: `compute-agent enable` without --node enables all of them, and then `compute-agent disable --node` "+
				"the others; %s stays disabled", ErrWhole, node)
	}
	next.Reasons = slices.DeleteFunc(next.Reasons,
		func(r Reason) bool { return r.Source == source && (node == "" || r.Node == node) })
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
	return left, d.write(next)
}

// Withdraw removes a source's reason for one node, or that for all nodes with node "". Unlike
// [Disabled.Enable] it does not remove a trait that another client set.
func (d *Disabled) Withdraw(source, node string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.file.clone()
	next.Reasons = slices.DeleteFunc(next.Reasons, func(r Reason) bool { return r.Source == source && r.Node == node })
	return d.write(next)
}

// RenameNode has what is recorded of a node follow its new name.
func (d *Disabled) RenameNode(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.file.clone()
	for i := range next.Reasons {
		if next.Reasons[i].Node == from {
			next.Reasons[i].Node = to
		}
	}
	for i, node := range next.Enabling {
		if node == from {
			next.Enabling[i] = to
		}
	}
	return d.write(next)
}

// Reasons returns why a node is disabled, the oldest first. With node "" it returns all reasons.
func (d *Disabled) Reasons(node string) []Reason {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Reason
	for _, r := range d.file.Reasons {
		if node == "" || r.Node == "" || r.Node == node {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b Reason) int { return a.Since.Compare(b.Since) })
	return out
}

// Reason formats in one line why a node is disabled.
func (d *Disabled) Reason(node string) (text string, disabled bool) {
	reasons := d.Reasons(node)
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

// Enabling reports whether the trait has to be removed from a node, whichever client set it.
func (d *Disabled) Enabling(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.file.Enabling, node) || slices.Contains(d.file.Enabling, "")
}

// Enabled records that the trait was removed from all nodes to enable.
func (d *Disabled) Enabled() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.file.clone()
	next.Enabling = nil
	return d.write(next)
}

// EnablingAny reports whether the trait has to be removed from any node.
func (d *Disabled) EnablingAny() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.file.Enabling) > 0
}

// CheckReason checks a reason: one line of at most 500 characters, without control characters.
//
// Errors: [ErrText].
func CheckReason(text string) error { return checkText(text, maxReason, false) }
