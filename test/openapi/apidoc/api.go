// SPDX-License-Identifier: Apache-2.0

package apidoc

import "github.com/compute-agent/compute-agent/internal/jsonkit"

// API is an API and all of its calls.
type API struct {
	Title string
	// About is Markdown for the beginning of the reference.
	About string
	// Service is the type of the service in the header OpenStack-API-Version.
	Service string
	// Major and the range of minor numbers are the microversions.
	Major, Min, Max int
	// History has what each microversion brought, the lowest first.
	History []Step
	// More is Markdown for the end of the reference.
	More string
	// Error is the body of an error.
	Error Body
	// Failures are those that every call can have.
	Failures []Failure
	// Keys are names for what the patterns of the keys of objects stand for.
	Keys  map[string]string
	Calls []Call
}

// Step is one microversion: what it brought in OpenStack, and what of that is here, if an API has
// less.
type Step struct{ What, Here string }

// Policy is a rule of the policy file that has to allow a call; Text says when, and who passes it
// by default.
type Policy struct{ Rule, Text string }

// Call is one method of one path.
type Call struct {
	// Group is the heading of calls that belong together.
	Group string
	// Path has {name} for a segment.
	Method, Path string
	// Action is the only member of the body, for a path whose calls differ in it; "" for all
	// others.
	Action  string
	Summary string
	// Notes are differences from OpenStack and the like, in Markdown.
	Notes []string
	Versions
	Policies []Policy
	// Hosts says what hosts may do.
	Hosts string
	// Open calls need no token, and unversioned ones have no microversions.
	Open, Unversioned bool
	Query             []Parameter
	// Ignores are the microversions that ignore parameters that are not in Query; nil: none does.
	Ignores *Versions
	// Body is the body of the request; nil for a call without one.
	Body     Body
	Answers  []Answer
	Failures []Failure
}

// Versions is a range of microversions by minor number. An Until of 0 is no bound.
type Versions struct{ Since, Until int }

// Body is the schema of a body at a microversion; nil where it has none.
type Body func(minor int) jsonkit.Schema

// Parameter is a parameter of a query.
type Parameter struct {
	Name, Text string
	Versions
	Schema   jsonkit.Schema
	Required bool
	// Repeated parameters can be given more than once, from this minor number on; 0 for never.
	Repeated int
	// Suffixes are the forms of the suffix that can follow the name, the newest first.
	Suffixes []Suffix
	// Extension is the name of the extension that brings it, "" for none.
	Extension string
}

// Suffix is a form of suffixes: a regular expression.
type Suffix struct {
	Versions
	Pattern string
}

// Answer is an answer of a call that succeeded.
type Answer struct {
	Status int
	Versions
	Text string
	// Body is nil for an answer without one.
	Body Body
}

// Failure is an error of a call. Code is the code in the body, "" for an API without codes.
type Failure struct {
	Status       int
	Code, Reason string
}
