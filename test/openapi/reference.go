// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// reference is an API whose reference is written.
type reference struct{ *apidoc.API }

// span is a range of microversions with one schema.
type span struct {
	from, to int
	schema   map[string]any
}

// bound is the range of a call within the API.
func (rf reference) bound(v apidoc.Versions) (from, to int) {
	from, to = max(v.Since, rf.Min), rf.Max
	if v.Until > 0 {
		to = min(to, v.Until)
	}
	return from, to
}

// spans evaluates a body at all microversions of a range, and joins equal neighbors.
func (rf reference) spans(b apidoc.Body, from, to int) []span {
	var all []span
	last := ""
	for v := from; v <= to; v++ {
		s := b(v)
		if s == nil {
			last = ""
			continue
		}
		schema := jsonkit.Document(s)
		text, err := json.Marshal(schema)
		if err != nil {
			panic(fmt.Sprintf("openapi: %v", err)) // a schema has only strings, numbers and lists of them
		}
		if string(text) == last {
			all[len(all)-1].to = v
			continue
		}
		last = string(text)
		all = append(all, span{v, v, schema})
	}
	return all
}

// version is a microversion as clients write it.
func (rf reference) version(minor int) string { return fmt.Sprintf("%d.%d", rf.Major, minor) }
