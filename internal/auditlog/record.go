// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Record is one request or command that changed something.
type Record struct {
	Time time.Time `json:"time"`
	// ID is the same in the records of one action: in those before it, which are Intended, and in
	// the one after it.
	ID string `json:"id,omitempty"`
	// Service is the one that made the change: "placement", "compute-api", "cell NAME".
	Service string `json:"service"`
	// RequestID is the ID in the answer; GlobalRequestID that of the request which the client
	// served with this one, such as the compute API's.
	RequestID       string `json:"request_id,omitempty"`
	GlobalRequestID string `json:"global_request_id,omitempty"`
	// Host is the host whose certificate or token made the request; User and Project are those of
	// the token, and for a command the user of the operating system.
	Host    string `json:"host,omitempty"`
	User    string `json:"user,omitempty"`
	Project string `json:"project,omitempty"`
	// Address is the client's, IP:PORT; "@" and "" are sockets of this machine.
	Address string `json:"address,omitempty"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	// Command is the command of an operator, or the work of a service that no request caused.
	Command string `json:"command,omitempty"`
	Outcome string `json:"outcome"`
	// Part and Parts number the records of one request that changed more than fits into one.
	Part    int      `json:"part,omitempty"`
	Parts   int      `json:"parts,omitempty"`
	Changes []Change `json:"changes"`
}

// Outcomes of a change.
const (
	// Done is a change that is durable.
	Done = "done"
	// Unknown is a change whose commit failed so that it may or may not be durable. For readers it
	// is also the outcome of an intended one without another record: the process was killed.
	Unknown = "unknown"
	// Intended is a change that is about to be made.
	Intended = "intended"
	// NotDone is the outcome of an action that was intended and changed nothing. It has no changes.
	NotDone = "not_done"
)

// Change is one thing that was changed.
type Change struct {
	// Kind is what it is: "provider", "allocation", "server".
	Kind string `json:"kind"`
	// ID is its uuid, or its name if it has none. That of an allocation is its consumer's.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Provider is the uuid of the resource provider or compute node that it is of, if any.
	Provider     string `json:"provider,omitempty"`
	ProviderName string `json:"provider_name,omitempty"`
	// Host is the host that it is on, if any.
	Host string `json:"on_host,omitempty"`
	// Before and After are what it was and is, in JSON; nil if it was or is not there.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// maxValue bounds a value of a change, in bytes.
const maxValue = 16 << 10

// Value is a value of a change in JSON; nil is nil. A value that is too long for a record is
// replaced by its size.
func Value(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"not_shown": err.Error()})
	}
	return bounded(b)
}

func bounded(b json.RawMessage) json.RawMessage {
	if len(b) <= maxValue {
		return b
	}
	cut, _ := json.Marshal(map[string]int{"cut_bytes": len(b)})
	return cut
}

// Differs is the change with the values before and after; false if they are equal in JSON.
func (c Change) Differs(before, after any) (Change, bool) {
	b, a := Value(before), Value(after)
	if bytes.Equal(b, a) {
		return Change{}, false
	}
	c.Before, c.After = b, a
	return c, true
}

// maxText bounds texts of clients, in bytes.
const maxText = 1024

// Request is the record of a request that is being answered, without changes.
func Request(x *osapi.Exchange) Record {
	r := Record{
		RequestID: x.ID, User: short(x.Caller.User), Project: short(x.Caller.Project), Address: x.R.RemoteAddr,
		Method: short(x.R.Method), Path: short(x.R.URL.Path), Outcome: Done,
	}
	r.GlobalRequestID = osapi.GlobalRequestID(x.R)
	if x.Caller.Host != nil {
		r.Host, r.User, r.Project = x.Caller.Host.Name, "", ""
	}
	return r
}

func short(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "…"
	}
	return s
}

// Mutating reports whether a request of the method can change anything.
func Mutating(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// maxLine bounds a line, in bytes, beyond its first change: what does not fit goes into another
// record of the same request.
const maxLine = 256 << 10

// lines encodes a record as one line, or as several if it is too long for one.
func (r Record) lines() ([][]byte, []Record) {
	parts := r.split()
	out := make([][]byte, 0, len(parts))
	for i := range parts {
		line, err := json.Marshal(&parts[i])
		if err != nil { // a value that is not JSON
			for k := range parts[i].Changes {
				c := &parts[i].Changes[k]
				c.Before, c.After = nil, Value(map[string]string{"not_shown": err.Error()})
			}
			line, _ = json.Marshal(&parts[i])
		}
		out = append(out, append(line, '\n'))
	}
	return out, parts
}

// split divides the changes of a record among as many records as they need.
func (r Record) split() []Record {
	size, from := 0, 0
	var parts []Record
	add := func(to int) {
		part := r
		part.Changes = r.Changes[from:to]
		parts = append(parts, part)
		from, size = to, 0
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		c.Before, c.After = bounded(c.Before), bounded(c.After)
		one := len(c.Kind) + len(c.ID) + len(c.Name) + len(c.Provider) + len(c.ProviderName) + len(c.Host) +
			len(c.Before) + len(c.After) + 100
		if size > 0 && size+one > maxLine {
			add(i)
		}
		size += one
	}
	add(len(r.Changes))
	if len(parts) > 1 {
		for i := range parts {
			parts[i].Part, parts[i].Parts = i+1, len(parts)
		}
	}
	return parts
}
