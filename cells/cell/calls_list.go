// SPDX-License-Identifier: Apache-2.0

package cell

// Call is one call of the protocol, for documentation and tests.
type Call struct {
	Method string
	// Path has {name} for a segment.
	Path string
	// For is who may make it.
	For string
}

// Calls are all calls of the protocol.
func Calls() []Call {
	names := map[permission]string{anyClient: "any client that is known", computeAPIOnly: "the compute API",
		hostAgentOnly: "the agent of the host"}
	var all []Call
	for _, one := range (&Cell{}).calls() {
		all = append(all, Call{Method: one.method, Path: one.path, For: names[one.need]})
	}
	return all
}
