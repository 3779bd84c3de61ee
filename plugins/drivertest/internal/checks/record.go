// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
)

// record is one line that a plugin process wrote, as the agent would log it.
type record struct {
	check   string // that ran
	level   string
	text    string
	raw     bool // not a log line in the SDK's format
	cut     bool // longer than the agent reads
	dropped int  // lines dropped by the rate limit
	panics  bool
}

func (r record) String() string {
	if r.raw {
		return r.text
	}
	return r.level + ": " + r.text
}

// recorder keeps what the plugin processes log.
type recorder struct {
	mu      sync.Mutex
	check   string
	records []record
	copy    func(line []byte) // or nil
}

func (r *recorder) begin(check string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check = check
}

// Write receives one line of the host's log. Lines of plugin processes have the process' id; output
// that is not a log line is marked as raw.
func (r *recorder) Write(line []byte) (int, error) {
	var fields struct {
		PID     int    `json:"pid"`
		Level   string `json:"level"`
		Message string `json:"message"`
		Output  string `json:"output"`
		Cut     bool   `json:"cut"`
		Dropped int    `json:"dropped"`
		Panic   any    `json:"panic"`
	}
	if json.Unmarshal(bytes.TrimSpace(line), &fields) != nil ||
		(fields.PID == 0 && fields.Output == "" && fields.Dropped == 0) {
		return len(line), nil
	}
	const kept, width = 100_000, 2000
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copy != nil {
		r.copy(line)
	}
	if len(r.records) < kept {
		text := fields.Message
		if len(text) > width {
			text = text[:width] + "..."
		}
		if fields.Panic != nil {
			text += fmt.Sprintf(" (panic: %v)", fields.Panic)
		}
		r.records = append(r.records, record{
			check: r.check, level: fields.Level, text: text, raw: fields.Output == "raw",
			cut: fields.Cut, dropped: fields.Dropped,
			panics: fields.Panic != nil || (fields.Output == "raw" && fields.Level == "error"),
		})
	}
	return len(line), nil
}

// all returns the records so far.
func (r *recorder) all() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]record(nil), r.records...)
}

// tail returns the last records of a check.
func (r *recorder) tail(check string) []string {
	const most = 5
	var out []string
	for _, rec := range r.all() {
		if rec.check == check {
			out = append(out, rec.String())
		}
	}
	return out[max(0, len(out)-most):]
}
