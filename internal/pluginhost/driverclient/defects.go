// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
)

// maxDefects is how many defects of one response are reported: many often have one cause.
const maxDefects = 20

// defects lists what is wrong with a response, up to [maxDefects], so that its author can fix all
// of it at once.
type defects struct {
	list []string
	more bool  // there are others
	kind error // for errors.Is
}

// add adds one, in a sentence with its place, the value and what it must be.
func (d *defects) add(format string, args ...any) {
	if len(d.list) == maxDefects {
		d.more = true
		return
	}
	d.list = append(d.list, fmt.Sprintf(format, args...))
}

// violations adds all of them.
func (d *defects) violations(found providertree.Violations) {
	for _, v := range found {
		d.add("%v", v)
	}
}

// clipped shortens a string, for %q.
func clipped(s string) string { return clip(s, 200) }

// join adds all errors that are joined in one, each with the same prefix.
func (d *defects) join(before string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // it is split, not searched
		for _, e := range joined.Unwrap() {
			d.join(before, e)
		}
	} else if err != nil {
		d.add("%s%v", before, err)
	}
}

// full reports whether the list is full.
func (d *defects) full() bool { return d.more }

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
		fmt.Fprintf(&b, ", and others that are not shown")
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

// Unwrap returns kind.
func (d *defects) Unwrap() error { return d.kind }
