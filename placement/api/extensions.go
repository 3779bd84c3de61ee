// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// extensions are the extensions that the client gets, which the answer's header lists: those that
// it requests, from wire.RequestedExtensions on, and those that the operator grants to all.
func (x *exchange) extensions() (e wire.ExtensionSet) {
	h := x.W.Header()
	if values := x.R.Header[wire.HeaderExtensions]; len(values) > 0 && x.v.Has(wire.RequestedExtensions) {
		e = wire.ReadExtensions(values)
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
