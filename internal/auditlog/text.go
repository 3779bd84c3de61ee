// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Kinds of changes.
const (
	KindProvider   = "provider"
	KindInventory  = "inventory"
	KindTraits     = "traits"     // of a provider: those that it lost and got
	KindAggregates = "aggregates" // of a provider: those that it left and joined
	KindAllocation = "allocation"
	KindConsumer   = "consumer"
	KindClass      = "resource_class"
	KindTrait      = "trait"
	KindAdmission  = "admission" // what a host may report

	KindServer      = "server"
	KindMigration   = "migration"
	KindService     = "service" // of a host in a cell
	KindNode        = "node"
	KindCell        = "cell"
	KindHost        = "host" // in which cell it is
	KindHostReport  = "host_report"
	KindFlavor      = "flavor"
	KindQuota       = "quota"
	KindAggregate   = "aggregate" // of hosts
	KindServerGroup = "server_group"
	KindKeyPair     = "keypair"
	KindEnrolment   = "enrolment"
	KindConsole     = "console"
	KindDatabase    = "database" // what a command did to all of it
)

// OfConsumer reports whether the change is of a consumer: its ID is that of a server or of another
// one that holds allocations.
func (c *Change) OfConsumer() bool {
	return c.Kind == KindAllocation || c.Kind == KindConsumer || c.Kind == KindServer || c.Kind == KindConsole
}

// Sender names the sender of a record.
func (r *Record) Sender() string {
	switch {
	case r.Host != "":
		return "host " + r.Host
	case r.User != "" && r.Project != "":
		return r.User + "/" + r.Project
	case r.User != "":
		return r.User
	}
	return "-"
}

// Operation is the request or command of a record.
func (r *Record) Operation() string {
	if r.Command != "" {
		return r.Command
	}
	return r.Method + " " + r.Path
}

// Summary is a record in one line.
func (r *Record) Summary() string {
	text := r.Service + ": " + r.Operation() + " by " + r.Sender()
	if len(r.Changes) > 0 {
		text += ": " + r.Changes[0].String()
	}
	if more := len(r.Changes) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more changes)", more)
	}
	switch r.Outcome {
	case Unknown:
		text += " (outcome unknown)"
	case Intended:
		text += " (intended)"
	case NotDone:
		text += ": not done"
	}
	return textutil.Printable(text)
}

// String is the change in one line.
func (c *Change) String() string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(c.Kind, "_", " "))
	provider := c.Provider
	if c.ProviderName != "" {
		provider = c.ProviderName
	}
	switch {
	case c.Kind == KindAllocation:
		fmt.Fprintf(&b, " of %s on %s", c.ID, provider)
	case c.ID == c.Provider && c.ID != "":
		b.WriteString(" of " + provider)
	case c.Provider != "":
		fmt.Fprintf(&b, " %s of %s", c.ID, provider)
	case c.Name != "" && c.Name != c.ID:
		fmt.Fprintf(&b, " %s (%s)", c.ID, c.Name)
	default:
		b.WriteString(" " + c.ID)
	}
	if c.Host != "" && c.Host != c.ID {
		b.WriteString(" on host " + c.Host)
	}
	b.WriteString(": ")
	b.WriteString(c.difference())
	return textutil.Printable(b.String())
}

// Requested is the value after a change that a service requested from another one, whose record
// says what became of it.
func Requested(what string) json.RawMessage { return Value(map[string]string{requested: what}) }

const requested = "requested"

// difference says in words how the value changed.
func (c *Change) difference() string {
	before, after := c.Before, c.After
	was, wasFields := fields(before)
	is, isFields := fields(after)
	switch {
	case before == nil && isFields && (c.Kind == KindHostReport || is[requested] != nil):
		return listed("", is)
	case before == nil && after == nil:
		return "changed"
	case before == nil && isFields:
		return "created" + listed(" ", is)
	case before == nil:
		return "added " + shown(after)
	case after == nil && wasFields:
		return "removed" + listed(", was ", was)
	case after == nil:
		return "removed " + shown(before)
	case c.Kind == KindTraits || c.Kind == KindAggregates: // those that went, those that came
		return "removed " + shown(before) + ", added " + shown(after)
	case !wasFields || !isFields:
		return shown(before) + " → " + shown(after)
	}
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if w, i := was[name], is[name]; !bytes.Equal(w, i) {
			parts = append(parts, name+" "+shown(w)+" → "+shown(i))
		}
	}
	return strings.Join(parts, ", ")
}

// fields returns the members of a JSON object; false if the value is not an object.
func fields(value json.RawMessage) (map[string]json.RawMessage, bool) {
	if len(value) == 0 || value[0] != '{' {
		return nil, false
	}
	var object map[string]json.RawMessage
	return object, json.Unmarshal(value, &object) == nil
}

func listed(before string, object map[string]json.RawMessage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		parts = append(parts, name+" "+shown(object[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return before + strings.Join(parts, ", ")
}

// shown is a JSON value for people: text without quotes, a list with blanks.
func shown(value json.RawMessage) string {
	if len(value) == 0 {
		return "none"
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		if text == "" {
			return "none"
		}
		return text
	}
	var list []string
	if value[0] == '[' && json.Unmarshal(value, &list) == nil {
		return strings.Join(list, " ")
	}
	return string(value)
}
