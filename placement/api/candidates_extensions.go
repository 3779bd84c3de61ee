// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// extension is something that GET /allocation_candidates can do here and not in Placement. A client asks for it by its name
// in the header Placement-Extensions, at microversion 1.39; Options.Extensions grants it to all.
type extension string

// The extensions. They are what "Getting On The Nested Magic Train" has planned and Placement has not built.
const (
	// rootMemberOf is the parameter root_member_of: as member_of, but of the root of the tree, wherever the resources are.
	rootMemberOf extension = "root_member_of"
	// groupPolicy makes the parameter group_policy optional; it is none by default.
	groupPolicy extension = wire.ExtGroupPolicy
	// isolate is the parameter isolate: suffixes of groups whose providers may serve no other group.
	isolate extension = "isolate"
)

var allExtensions = [...]extension{rootMemberOf, groupPolicy, isolate}

// extensions is a set of extensions: a bit for each of allExtensions.
type extensions uint8

func (e extensions) has(name extension) bool {
	for i, known := range allExtensions {
		if known == name {
			return e&(1<<i) != 0
		}
	}
	return false
}

func (e extensions) String() string {
	var names []string
	for i, known := range allExtensions {
		if e&(1<<i) != 0 {
			names = append(names, string(known))
		}
	}
	return strings.Join(names, ", ")
}

// readExtensions reads the values of the header. Names that are not known are left out, as everywhere in HTTP where a client
// says what it would like.
func readExtensions(values []string) (e extensions) {
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			for i, known := range allExtensions {
				if strings.EqualFold(name, string(known)) {
					e |= 1 << i
				}
			}
		}
	}
	return e
}

// ExtensionNames are the names of all extensions.
func ExtensionNames() []string {
	var names []string
	for _, e := range allExtensions {
		names = append(names, string(e))
	}
	return names
}

// extensions are what the client gets, which the answer's header lists: those that it asks for, at the last microversion, and
// those that the operator grants to all. Without either there are none, and nothing in the answer says that there could be.
func (x *exchange) extensions() (e extensions) {
	h := x.W.Header()
	if values := x.R.Header[wire.HeaderExtensions]; len(values) > 0 && x.v == wire.MaxVersion {
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
