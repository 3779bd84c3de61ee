// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFollow: a reader that follows gets each record once and in order, across rotations.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{File: path, MaxSize: 2 << 10, Keep: 1000})
	l.Write(t.Context(), record(0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string)
	done := make(chan error, 1)
	go func() {
		r := Reader{Paths: []string{path}, Follow: true, Poll: time.Millisecond}
		done <- r.Read(ctx, func(r Record) error {
			seen <- r.Changes[0].ID
			return nil
		})
	}()
	for i := range 60 {
		if got, want := <-seen, fmt.Sprintf("CUSTOM_%04d", i); got != want {
			t.Fatalf("record %s, want %s", got, want)
		}
		l.Write(t.Context(), record(i+1))
	}
	<-seen
	cancel()
	testproc.ErrorIs(t, <-done, context.Canceled, "%v")
}

// TestFiles: rotated files are read in order, the oldest first, and others are left alone.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit[1].log")
	testproc.Try(Files(path)).ErrorIs(t, os.ErrNotExist, "no file: %v")
	for _, name := range []string{"audit[1].log", "audit[1].log.1", "audit[1].log.2", "audit[1].log.10",
		"audit[1].log.01", "audit[1].log.gz", "audit1.log.3"} {
		testproc.Check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	got, err := Files(path)
	if want := []string{path + ".10", path + ".2", path + ".1", path}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestUnreadableLines: what is no record is counted and does not hide the others, however long it
// is.
func TestUnreadableLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	good, _ := Record{Service: "test", Changes: record(7).Changes}.lines()
	text := "not JSON\n\n{}\n" + string(good[0]) + strings.Repeat("x", maxReadLine+100) + "\n" +
		string(good[0]) + string(good[0][:40])
	testproc.Check(t, os.WriteFile(path, []byte(text), 0o600))
	testproc.EqualList(t, ids(t, path, 4), []string{"CUSTOM_0007", "CUSTOM_0007"}, "records %q")
}

// TestFilter: a filter leaves out records, and those changes of a record that it does not choose.
func TestFilter(t *testing.T) {
	at := time.Date(2026, 11, 23, 18, 0, 0, 0, time.UTC)
	r := Record{
		Time: at, RequestID: "req-1", GlobalRequestID: "req-2", Host: "cn1", User: "u", Project: "p",
		Changes: []Change{
			{Kind: KindAllocation, ID: "c1", Provider: "uuid1", ProviderName: "cn1"},
			{Kind: KindAllocation, ID: "c2", Provider: "uuid2", ProviderName: "cn2"},
			{Kind: KindProvider, ID: "uuid1", Name: "cn1"},
			{Kind: KindServer, ID: "c2", Host: "cn2"}, {Kind: KindFlavor, ID: "c1"},
		},
	}
	for _, c := range []struct {
		filter Filter
		want   int
	}{
		{Filter{}, 5}, {Filter{Consumer: "c1"}, 1}, {Filter{Consumer: "c2"}, 2}, {Filter{Provider: "uuid1"}, 2},
		{Filter{Provider: "cn1"}, 2},
		{Filter{Provider: "cn1", Consumer: "c2"}, 0}, {Filter{Host: "cn1"}, 5}, {Filter{Host: "cn2"}, 1},
		{Filter{User: "u", Project: "p"}, 5}, {Filter{User: "x"}, 0},
		{Filter{Project: "x"}, 0}, {Filter{RequestID: "req-1"}, 5}, {Filter{RequestID: "req-2"}, 5},
		{Filter{RequestID: "req-3"}, 0},
		{Filter{Since: at, Until: at}, 5}, {Filter{Since: at.Add(1)}, 0}, {Filter{Until: at.Add(-1)}, 0},
	} {
		if got, ok := c.filter.Match(r); ok != (c.want > 0) || ok && len(got.Changes) != c.want {
			t.Errorf("%+v chooses %v %d, want %d", c.filter, ok, len(got.Changes), c.want)
		}
	}
}

// TestJournal: a record is an entry whose fields find it by consumer, provider and request. When
// journald is started again the log connects again; a record while it is down is counted as lost.
func TestJournal(t *testing.T) { synctest.Test(t, testJournal) }

func testJournal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	listen := func() *net.UnixConn {
		t.Helper()
		return testproc.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})).Or(t)
	}
	read := func(conn *net.UnixConn) string {
		t.Helper()
		b := make([]byte, 64<<10)
		n := testproc.Try(conn.Read(b)).Or(t)
		return string(b[:n])
	}
	journald := listen()
	l := open(t, Options{Journal: socket, Required: true})
	claim := Record{RequestID: "req-1", User: "admin\nPRIORITY=0", Method: "PUT",
		Path: "/allocations/c1", Changes: []Change{
			{Kind: KindAllocation, ID: "c1", Provider: "uuid1", ProviderName: "cn1",
				Before: Value(map[string]int{"VCPU": 2}), After: Value(map[string]int{"VCPU": 4})},
			{Kind: KindAllocation, ID: "c1", Provider: "uuid2", ProviderName: "cn2",
				Before: Value(map[string]int{"VCPU": 2})},
		}}
	l.Write(t.Context(), claim)
	entry := read(journald)
	for _, field := range []string{
		"SYSLOG_IDENTIFIER=compute-agent-audit", "COMPUTE_AGENT_AUDIT=1", "REQUEST_ID=req-1", "CONSUMER=c1",
		"PROVIDER=uuid1", "PROVIDER=uuid2", "AUDIT_KIND=allocation",
		"MESSAGE=test: PUT /allocations/c1 by admin\\nPRIORITY=0: allocation of c1 on cn1: VCPU 2 → 4 (and 1 " +
			"more changes)", `AUDIT_RECORD={"time":`,
	} {
		if !strings.Contains("\n"+entry, "\n"+field) {
			t.Errorf("no field %s in\n%s", field, entry)
		}
	}
	if strings.Contains(entry, "\nPRIORITY=0\n") && !strings.Contains(entry, "AUDIT_USER\n") {
		t.Errorf("a user can add fields:\n%s", entry)
	}
	testproc.Check(t, errors.Join(journald.Close(), os.RemoveAll(socket)))
	l.Write(t.Context(), claim)
	if l.Refusal() == nil {
		t.Error("nothing is refused without a journal")
	}
	journald = listen()
	defer func() { _ = journald.Close() }()
	time.Sleep(retryInterval) // of synctest's clock
	synctest.Wait()
	if err := l.Refusal(); err != nil { // found out without a write, since writes are refused
		t.Error(err)
	}
	l.Write(t.Context(), claim)
	if again := read(journald); !strings.Contains(again, "CONSUMER=c1\n") || l.Refusal() != nil {
		t.Errorf("after journald was started again: %v\n%s", l.Refusal(), again)
	}
}
