// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// logColumns are the widths of the host, the service and the level of lines.
type logColumns [3]int

// Logs prints entries of logs, a line for each: when, on which host, which service, the level, the
// message, and then the fields.
func Logs(w io.Writer, entries []auditlog.Entry) error {
	var widths logColumns
	for i := range entries {
		for k, text := range logWords(&entries[i]) {
			widths[k] = max(widths[k], runes(text))
		}
	}
	p := newPrinter(w)
	for i := range entries {
		p.entry(&entries[i], widths)
	}
	return p.err
}

// NothingLogged prints that a search in logs found nothing.
func NothingLogged(w io.Writer, target string, logs *auditlog.Sources) error {
	text := strings.Join(logs.Names(), ", ")
	if len(logs.Files) == 0 {
		text += ". The journal has the lines of services on this machine that log to it with fields " +
			"([log] format = \"journald\", the default under systemd); " +
			"root and members of the group systemd-journal see all of it. " +
			"Logs of other machines are read with --file or --directory"
	}
	_, err := fmt.Fprintf(w, "Nothing names %s in %s.\n", target, text)
	return err
}

// AuditRecord prints a line for each change of a record of the audit log. In the path, … stands for
// uuids that the change names.
func AuditRecord(w io.Writer, r *auditlog.Record) error {
	for i := range r.Changes {
		c := &r.Changes[i]
		what := r.Operation()
		for _, id := range []string{c.ID, c.Provider} {
			if len(id) == len("00000000-0000-0000-0000-000000000000") {
				what = strings.ReplaceAll(what, id, "…")
			}
		}
		note := ""
		if r.Outcome == auditlog.Unknown {
			note = " (outcome unknown)"
		}
		line := fmt.Sprintf("%s  %s  %s  %s  %s%s",
			r.Time.UTC().Format("2006-01-02T15:04:05Z"), r.Service, r.Sender(), what, c.String(), note)
		if _, err := fmt.Fprintln(w, textutil.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

func logWords(e *auditlog.Entry) [3]string {
	return [3]string{cmp.Or(e.Host, "-"), cmp.Or(e.Service, "-"), cmp.Or(e.Level, "-")}
}

func (p *printer) entry(e *auditlog.Entry, widths logColumns) {
	var b strings.Builder
	at := "-"
	if !e.Time.IsZero() {
		at = e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	b.WriteString(at)
	for k, word := range logWords(e) {
		s := plain
		if k == len(widths)-1 {
			s = levelStyle(word)
		}
		fmt.Fprintf(&b, "  %s%s", p.styled(s, word), strings.Repeat(" ", max(0, widths[k]-runes(word))))
	}
	b.WriteString("  " + string(p.styled(plain, e.Message)))
	field := func(name string, value any) {
		text := fieldText(value)
		if text == "" || strings.ContainsAny(text, " \t\n\"=") {
			text = strconv.Quote(text)
		}
		b.WriteString(" " + string(p.styled(dim, name+"=")) + string(p.styled(plain, text)))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		field(name, e.Fields[name])
	}
	if e.RequestID != "" {
		field("request_id", e.RequestID)
	}
	if e.GlobalRequestID != "" {
		field("global_request_id", e.GlobalRequestID)
	}
	p.row("%s", painted(b.String())) // not folded: lines are copied, and searched
}

// fieldText is the value of a field on a line.
func fieldText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
