// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"slices"

	"github.com/compute-agent/compute-agent/systemd"
)

// identifier is the SYSLOG_IDENTIFIER of the entries.
const identifier = "compute-agent-audit"

// maxFields bounds how many values of one field an entry has; the record has all.
const maxFields = 256

// journal sends records to systemd's journal. Its connection is made when it is needed, and made
// again after journald was started again.
type journal struct {
	socket string
	conn   *systemd.Journal
}

func (j *journal) send(r *Record, line []byte) error {
	fields := journalFields(r, line)
	if j.conn != nil && j.conn.Send(fields) == nil {
		return nil
	}
	j.close()
	if err := j.connect(); err != nil {
		return err
	}
	return j.conn.Send(fields)
}

// connect connects to journald if that is not done.
func (j *journal) connect() error {
	if j.conn != nil {
		return nil
	}
	conn, err := systemd.NewJournal(j.socket, identifier, nil)
	if err == nil {
		j.conn = conn
	}
	return err
}

func (j *journal) close() {
	if j.conn != nil {
		_ = j.conn.Close()
		j.conn = nil
	}
}

// journalFields returns the fields of the journal's entry for a record. A field with several values
// is repeated, so that journalctl finds the entry by each of them.
func journalFields(r *Record, line []byte) []systemd.Field {
	fields := []systemd.Field{{Name: "PRIORITY", Value: "5"}, {Name: "MESSAGE", Value: r.Summary()},
		{Name: "COMPUTE_AGENT_AUDIT", Value: "1"}}
	add := func(name string, values ...string) {
		slices.Sort(values)
		values = slices.DeleteFunc(slices.Compact(values), func(v string) bool { return v == "" })
		for _, value := range values[:min(len(values), maxFields)] {
			fields = append(fields, systemd.Field{Name: name, Value: value})
		}
	}
	add("AUDIT_SERVICE", r.Service)
	add("REQUEST_ID", r.RequestID, r.GlobalRequestID)
	add("AUDIT_HOST", r.Host)
	add("AUDIT_USER", r.User)
	add("AUDIT_PROJECT", r.Project)
	add("AUDIT_ADDRESS", r.Address)
	var kinds, consumers, providers []string
	for i := range r.Changes {
		c := &r.Changes[i]
		kinds = append(kinds, c.Kind)
		if c.OfConsumer() {
			consumers = append(consumers, c.ID)
		}
		providers = append(providers, c.Provider)
		if c.Kind == KindProvider || c.Kind == KindNode {
			providers = append(providers, c.ID)
		}
	}
	add("AUDIT_KIND", kinds...)
	add("CONSUMER", consumers...)
	add("PROVIDER", providers...)
	return append(fields, systemd.Field{Name: "AUDIT_RECORD", Value: string(line[:len(line)-1])})
}
