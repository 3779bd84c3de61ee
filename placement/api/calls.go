// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// Call is one call of the API, for documentation and tests.
type Call struct {
	Method string
	// Path has {name} for a segment.
	Path string
	// Action is what the policy must allow; "" where the handler decides, or for everybody.
	Action Action
	// Hosts says what a host may do with it, for documentation; "" for nothing.
	Hosts string
}

// Calls are all calls of the API, by path.
func Calls() []Call {
	var all []Call
	for _, r := range routes {
		for _, e := range r.endpoints {
			all = append(all,
				Call{Method: e.method, Path: strings.TrimSuffix(r.path, "{$}"),
					Action: e.action, Hosts: e.host.String()})
		}
	}
	return all
}
