// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// LevelAudit is the level of entries that are records of the audit log.
const LevelAudit = "audit"

// Entry is a line of the log of a service, or a record of its audit log.
type Entry struct {
	Time    time.Time `json:"time"`
	Host    string    `json:"host,omitempty"`
	Service string    `json:"service,omitempty"`
	Level   string    `json:"level,omitempty"`
	Message string    `json:"message"`
	// RequestID is the request that the line is about; GlobalRequestID the one that it serves.
	RequestID       string         `json:"request_id,omitempty"`
	GlobalRequestID string         `json:"global_request_id,omitempty"`
	Fields          map[string]any `json:"fields,omitempty"`
	Record          *Record        `json:"audit,omitempty"`

	// cursor is the journal's name of an entry.
	cursor string
}

// ParseEntry reads a line as `journalctl --output json` prints it, as a service writes it in JSON,
// or as it is in the audit log. Anything else is a text, which may begin with its time. source is
// the service of lines that do not name it.
func ParseEntry(line []byte, source string) Entry {
	line = bytes.TrimSpace(line)
	fields := map[string]any{}
	if bytes.HasPrefix(line, []byte("{")) {
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		if dec.Decode(&fields) != nil {
			fields = map[string]any{}
		}
	}
	switch {
	case text(fields["__REALTIME_TIMESTAMP"]) != "":
		return fromJournal(fields)
	case fields["outcome"] != nil && (fields["changes"] != nil || fields["id"] != nil):
		var r Record
		if json.Unmarshal(line, &r) == nil && r.Service != "" {
			return ofRecord(&r)
		}
	case fields["message"] != nil || fields["level"] != nil:
		return ofFields(fields, source)
	}
	e := Entry{Service: source, Message: string(line)}
	if at := timePrefix.FindString(e.Message); at != "" {
		e.Time = timeOf(at)
	}
	return e
}

// timePrefix is how lines of OpenStack's services and of many others begin.
var timePrefix = regexp.MustCompile(`^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?`)

func timeOf(text string) time.Time {
	text = strings.Replace(strings.Replace(text, " ", "T", 1), ",", ".", 1)
	for _, layout := range []string{time.RFC3339Nano,
		"2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

func ofRecord(r *Record) Entry {
	return Entry{
		Time:            r.Time,
		Service:         r.Service,
		Level:           LevelAudit,
		Message:         strings.TrimPrefix(r.Summary(), r.Service+": "),
		RequestID:       r.RequestID,
		GlobalRequestID: r.GlobalRequestID,
		Record:          r,
	}
}

// ofFields makes an entry of a line that a service wrote.
func ofFields(fields map[string]any, source string) Entry {
	take := func(name string) string {
		value := text(fields[name])
		delete(fields, name)
		return value
	}
	e := Entry{
		Time: timeOf(take("time")), Level: take("level"), Message: take("message"), Service: source,
		RequestID: take("request_id"), GlobalRequestID: take("global_request_id"), Fields: fields,
	}
	e.ofDriver()
	return e
}

// ofDriver names the driver of a line that its process wrote: the agent adds both fields to these.
func (e *Entry) ofDriver() {
	if driver := text(e.Fields["driver"]); driver != "" && e.Fields["pid"] != nil {
		e.Service = "driver " + driver
		delete(e.Fields, "driver")
		delete(e.Fields, "pid")
	}
}

// levels are syslog's, in the words of our log.
var levels = [...]string{"fatal", "fatal", "fatal", "error", "warn", "info", "info", "debug"}

// fromJournal makes an entry of one of the journal.
func fromJournal(fields map[string]any) Entry {
	var e Entry
	if record := text(fields["AUDIT_RECORD"]); record != "" {
		var r Record
		if json.Unmarshal([]byte(record), &r) == nil {
			e = ofRecord(&r)
		}
	}
	message := text(fields["MESSAGE"])
	if e.Record == nil && strings.HasPrefix(message, "{") { // a service with [log] format = "json"
		if inner := ParseEntry([]byte(message), ""); inner.Level != "" {
			e = inner
		}
	}
	service := strings.TrimSuffix(text(fields["_SYSTEMD_UNIT"]), ".service")
	if service == "" {
		service = text(fields["SYSLOG_IDENTIFIER"])
	}
	if e.Service == "" {
		e.Service = service
	}
	e.Host, e.cursor = text(fields["_HOSTNAME"]), text(fields["__CURSOR"])
	if e.Time.IsZero() {
		if us, err := strconv.ParseInt(text(fields["__REALTIME_TIMESTAMP"]), 10, 64); err == nil {
			e.Time = time.UnixMicro(us).UTC()
		}
	}
	if e.Level != "" {
		return e
	}
	if n, err := strconv.Atoi(text(fields["PRIORITY"])); err == nil && n >= 0 && n < len(levels) {
		e.Level = levels[n]
	}
	e.Message, e.RequestID, e.GlobalRequestID, e.Fields =
		message, text(fields["REQUEST_ID"]), text(fields["GLOBAL_REQUEST_ID"]), map[string]any{}
	for name, value := range fields {
		switch {
		case strings.HasPrefix(name, "_"), strings.HasPrefix(name, "SYSLOG_"), strings.HasPrefix(name, "CODE_"),
			strings.HasPrefix(name, "AUDIT_"):
		case name == "MESSAGE", name == "PRIORITY", name == "REQUEST_ID", name == "GLOBAL_REQUEST_ID",
			name == "TID", name == "MESSAGE_ID":
		default:
			e.Fields[strings.ToLower(name)] = text(value)
		}
	}
	e.ofDriver()
	return e
}

// text is a value as text. The journal has values that are no UTF-8 as arrays of bytes, and fields
// that are there several times as arrays of values, of which this is the first.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		if len(v) == 0 {
			return ""
		}
		if _, isByte := v[0].(json.Number); !isByte {
			return text(v[0])
		}
		var b []byte
		for _, one := range v {
			n, _ := strconv.Atoi(fmt.Sprint(one))
			b = append(b, byte(n))
		}
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return fmt.Sprint(value)
}
