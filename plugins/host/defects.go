// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
)

// maxDefects is how many defects of one reply are told. One cause often has many, and an author mends it once.
const maxDefects = 20

// defects is what is wrong with a reply: all of it, so that its author can mend it in one go, but not more than can be read.
type defects struct {
	list []string
	more bool  // there are others
	kind error // what errors.Is is to find
}

// add notes one, in a sentence that says where it is, what is there and what ought to be.
func (d *defects) add(format string, args ...any) {
	if len(d.list) == maxDefects {
		d.more = true
		return
	}
	d.list = append(d.list, fmt.Sprintf(format, args...))
}

// violations notes all of them.
func (d *defects) violations(found providertree.Violations) {
	for _, v := range found {
		d.add("%v", v)
	}
}

// clipped quotes nothing and shortens: %q does the rest.
func clipped(s string) string { return clip(s, 200) }

// join notes all errors that are in one, each behind the same words.
func (d *defects) join(before string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // it is taken apart, not looked into
		for _, e := range joined.Unwrap() {
			d.join(before, e)
		}
	} else if err != nil {
		d.add("%s%v", before, err)
	}
}

// enough reports that looking for more is in vain.
func (d *defects) enough() bool { return d.more }

// err is nil if there are none.
func (d *defects) err() error {
	if len(d.list) == 0 {
		return nil
	}
	return d
}

func (d *defects) Error() string {
	if len(d.list) == 1 {
		return d.list[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d defects", len(d.list))
	if d.more {
		fmt.Fprintf(&b, ", and more that are not shown")
	}
	for i, text := range d.list {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s(%d) %s", sep, i+1, text)
	}
	return b.String()
}

// Unwrap returns what the defects are a case of, if that has a name.
func (d *defects) Unwrap() error { return d.kind }
