// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// extensions is a set of extensions: a bit for each of wire.Extensions.
type extensions uint8

// allExtensions is the set of all. It does not compile if the type has too few bits for them.
const allExtensions extensions = 1<<len(wire.Extensions) - 1

func (e extensions) has(name string) bool {
	for i, known := range wire.Extensions {
		if known == name {
			return e&(1<<i) != 0
		}
	}
	return false
}

func (e extensions) String() string {
	var names []string
	for i, known := range wire.Extensions {
		if e&(1<<i) != 0 {
			names = append(names, known)
		}
	}
	return strings.Join(names, ", ")
}

// readExtensions reads the values of the header. Unknown names are ignored.
func readExtensions(values []string) (e extensions) {
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			for i, known := range wire.Extensions {
				if strings.EqualFold(name, known) {
					e |= 1 << i
				}
			}
		}
	}
	return e
}

// extensions are the extensions that the client gets, which the answer's header lists: those that
// it requests, from wire.RequestedExtensions on, and those that the operator grants to all.
func (x *exchange) extensions() (e extensions) {
	h := x.W.Header()
	if values := x.R.Header[wire.HeaderExtensions]; len(values) > 0 && x.v.Has(wire.RequestedExtensions) {
		e = readExtensions(values)
		h["Vary"] = append(h["Vary"], strings.ToLower(wire.HeaderExtensions))
	}
	if x.v.Has(wire.GranularGroups) {
		e |= x.api.granted
	}
	if e != 0 {
		h[wire.HeaderExtensions] = []string{e.String()}
	}
	return e
}
