// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

const requestA, requestB = "req-00000000-0000-4000-8000-00000000000a", "req-00000000-0000-4000-8000-00000000000b"

// TestParseEntry: the forms of lines that a search may get, and others.
func TestParseEntry(t *testing.T) {
	at := time.Date(2026, 11, 24, 3, 0, 0, 500_000_000, time.UTC)
	for name, c := range map[string]struct {
		line string
		want string
	}{
		"a service": {`{"level":"warn","time":"2026-11-24T03:00:00.5Z","message":"m",` +
			`"request_id":"r","n":12345678901234567890}`, "03:00:00.500  src warn m [r ] map[n:12345678901234567890]"},
		"a driver": {`{"level":"info","time":"2026-11-24T03:00:00.5Z","message":"m",` +
			`"driver":"x","pid":7}`, "03:00:00.500  driver x info m [ ] map[]"},
		"about a driver": {`{"level":"info","time":"2026-11-24T03:00:00.5Z","message":"m","driver":"x"}`,
			"03:00:00.500  src info m [ ] map[driver:x]"},
		"the journal": {`{"__REALTIME_TIMESTAMP":"1795489200500000","_HOSTNAME":"h",` +
			`"_SYSTEMD_UNIT":"u.service","PRIORITY":"3","MESSAGE":"m","REQUEST_ID":["a","b"],"_PID":"1","NODE":"n"}`,
			"03:00:00.500 h u error m [a ] map[node:n]"},
		"the journal, of bytes": {`{"__REALTIME_TIMESTAMP":"1795489200500000","SYSLOG_IDENTIFIER":"i",` +
			`"PRIORITY":"9","MESSAGE":[104,105,255]}`, "03:00:00.500  i  hi\uFFFD [ ] map[]"},
		"the journal, of a JSON line": {`{"__REALTIME_TIMESTAMP":"1795489200500001","_HOSTNAME":"h",` +
			`"_SYSTEMD_UNIT":"u.service","PRIORITY":"6","MESSAGE":"{\"level\":\"warn\",` +
			`\"time\":\"2026-11-24T03:00:00.5Z\",\"message\":\"m\"}"}`, "03:00:00.500 h u warn m [ ] map[]"},
		"the journal, without message": {`{"__REALTIME_TIMESTAMP":"1795489200500000","MESSAGE":null}`,
			"03:00:00.500     [ ] map[]"},
		"a record": {`{"time":"2026-11-24T03:00:00.5Z","service":"placement","request_id":"r",` +
			`"method":"PUT","path":"/traits/T","user":"u","outcome":"done","changes":[]}`,
			"03:00:00.500  placement audit PUT /traits/T by u [r ] map[]"},
		"a record in the journal": {`{"__REALTIME_TIMESTAMP":"1795489200900000","_HOSTNAME":"h",` +
			`"AUDIT_RECORD":"{\"time\":\"2026-11-24T03:00:00.5Z\",\"service\":\"placement\",\"method\":\"PUT\",` +
			`\"path\":\"/x\",\"outcome\":\"done\",\"changes\":[]}","MESSAGE":"x"}`,
			"03:00:00.500 h placement audit PUT /x by - [ ] map[]"},
		"a service of OpenStack": {"2026-11-24 03:00:00.500 31 INFO nova.api [None " + requestA + "] m",
			"03:00:00.500  src  2026-11-24 03:00:00.500 31 INFO nova.api [None " + requestA + "] m [ ] map[]"},
		"a text":       {"{ no JSON", "-  src  { no JSON [ ] map[]"},
		"another JSON": {`{"a":1}`, `-  src  {"a":1} [ ] map[]`},
	} {
		e := ParseEntry([]byte(c.line), "src")
		clock := "-"
		if !e.Time.IsZero() {
			clock = e.Time.Format("15:04:05.000")
			if !e.Time.Equal(at) {
				t.Errorf("%s: the time is %s", name, e.Time)
			}
		}
		if d := cmp.Diff(c.want, fmt.Sprintf("%s %s %s %s %s [%s %s] %v", clock, e.Host, e.Service, e.Level, e.Message,
			e.RequestID, e.GlobalRequestID, e.Fields)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestSearchIsBounded: requests are followed a few times, whatever the lines say, and lines without
// end are cut.
func TestSearchIsBounded(t *testing.T) {
	s := testproc.Try(NewSearch(requestA, time.Time{})).Or(t)
	rounds := 0
	found, err := s.Run(t.Context(), func(ctx context.Context, s *Search) error {
		rounds++
		var log strings.Builder
		last := requestA
		for i := range 50 { // the caused ones first, so that each round finds one more
			next := fmt.Sprintf("req-00000000-0000-4000-8000-%012x", 0x100+i)
			log.WriteString(`{"message":"m","request_id":"` + next + `","global_request_id":"` + last + "\"}\n")
			last = next
		}
		lines := strings.Split(log.String(), "\n")
		for i := len(lines) - 1; i >= 0; i-- {
			if err := s.ReadLines(ctx, strings.NewReader(lines[i]+"\n"), "src"); err != nil {
				return err
			}
		}
		if rounds < maxRounds {
			return nil
		}
		return s.ReadLines(ctx, strings.NewReader(requestA+strings.Repeat("x", maxReadLine+5)), "src")
	})
	if err != nil || rounds != maxRounds || len(found) != maxRounds+1 || len(found[0].Message) > maxReadLine+64<<10 {
		t.Errorf("%d rounds, %d entries, %v", rounds, len(found), err)
	}
	if _, err := NewSearch(strings.Repeat("x", 1000), time.Time{}); err == nil || len(err.Error()) > 300 {
		t.Errorf("an invalid target: %v", err)
	}
}

// TestSearchStops: a canceled search ends.
func TestSearchStops(t *testing.T) {
	s := testproc.Try(NewSearch(requestB, time.Time{})).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx,
		func(ctx context.Context, s *Search) error {
			return s.ReadLines(ctx, strings.NewReader("a\nb\n"), "")
		}); err == nil {
		t.Error("no error")
	}
}
