// SPDX-License-Identifier: Apache-2.0

package compute

// Call is one call of the API, for documentation and tests.
type Call struct {
	Method string
	// Path has {name} for a segment.
	Path string
	// Open calls are for everybody, known or not.
	Open bool
}

// Calls are all calls of the API.
func Calls() []Call {
	var all []Call
	for _, r := range new(API).allRoutes() {
		all = append(all, Call{Method: r.Method, Path: r.Path, Open: r.Open})
	}
	return all
}
