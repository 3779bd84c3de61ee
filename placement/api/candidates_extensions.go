// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// extension is something that GET /allocation_candidates can do here and not in Placement. A client asks for it by its name
// in the header Placement-Extensions, at microversion 1.39.
type extension string

// The extensions. They are what "Getting On The Nested Magic Train" has planned and Placement has not built.
const (
	// rootMemberOf is the parameter root_member_of: as member_of, but of the root of the tree, wherever the resources are.
	rootMemberOf extension = "root_member_of"
	// groupPolicy makes the parameter group_policy optional; it is none by default.
	groupPolicy extension = "group_policy"
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

// extensions are what the client asks for and gets, which the answer's header tells. Below the last microversion, and
// without the header, there are none, and nothing tells that there could be.
func (x *exchange) extensions() extensions {
	values := x.r.Header[wire.HeaderExtensions]
	if len(values) == 0 || x.v != wire.MaxVersion {
		return 0
	}
	e := readExtensions(values)
	h := x.w.Header()
	h["Vary"] = append(h["Vary"], strings.ToLower(wire.HeaderExtensions))
	if e != 0 {
		h[wire.HeaderExtensions] = []string{e.String()}
	}
	return e
}
