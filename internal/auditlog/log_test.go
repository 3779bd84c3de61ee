// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func open(t *testing.T, opts Options) *Log {
	t.Helper()
	opts.Logger = zerolog.Nop()
	l := testproc.Try(Open(opts)).Or(t)
	t.Cleanup(func() { _ = l.Close() })
	return l.ForService("test")
}

func counted(t *testing.T, l *Log, destination, outcome string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	testproc.Check(t, registry.Register(l.Collector()))
	families := testproc.Try(registry.Gather()).Or(t)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["destination"] == destination && labels["outcome"] == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// record is one with a change of the class N.
func record(n int) Record {
	name := fmt.Sprintf("CUSTOM_%04d", n)
	return Record{Method: "PUT", Path: "/resource_classes/" + name,
		Changes: []Change{{Kind: KindClass, ID: name, After: Value(name)}}}
}

// ids reads the changed classes of a log.
func ids(t *testing.T, path string, unreadable int) (list []string) {
	t.Helper()
	files := testproc.Try(Files(path)).Or(t)
	r := Reader{Paths: files}
	testproc.Check(t, r.Read(t.Context(), func(r Record) error { list = append(list, r.Changes[0].ID); return nil }))
	if r.Unreadable != unreadable {
		t.Errorf("%d lines are no records, want %d", r.Unreadable, unreadable)
	}
	return list
}

func names(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("CUSTOM_%04d", i))
	}
	return list
}

// TestLogIsPrivateAndAppends: the file is for its owner only and made with its directory, and what
// is in it stays when the log is opened again.
func TestLogIsPrivateAndAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "audit.log")
	for i := range 3 {
		l := open(t, Options{File: path})
		l.Write(t.Context(), record(i))
		l.Write(t.Context(), Record{Method: "PUT"}) // changed nothing
		testproc.Check(t, l.Close())
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the log's file: got %v, %v, want the mode 0600", info.Mode(), err)
	}
	testproc.EqualList(t, ids(t, path, 0), names(0, 3), "records %q")
}

// TestTornLineIsEnded: a line that a crash, or the kill of another process, left incomplete is
// ended before the next record. It stays in the file, and readers count it.
func TestTornLineIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	// Write returns when the record is in the file, however slow it is
	l := open(t, Options{File: path, Required: true})
	l.Write(t.Context(), record(0))
	for i := 1; i < 3; i++ {
		f := testproc.Try(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)).Or(t)
		testproc.Try(f.WriteString(`{"time":"2026-11-23T18:00:00Z","service":"placem`)).Or(t)
		testproc.Check(t, f.Close())
		if i == 2 { // seen by a log that is opened, and by one that is open
			testproc.Check(t, l.Close())
			l = open(t, Options{File: path, Required: true})
		}
		l.Write(t.Context(), record(i))
	}
	testproc.EqualList(t, ids(t, path, 2), names(0, 3), "records %q")
}

// TestRotation: while many write, through two logs as two processes have them, and logrotate
// renames the file of which a log is sure that it is the current one, no record is lost or torn,
// and no more files are kept than asked for.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	// Write returns when the record is in a file
	opts := Options{File: path, MaxSize: 4 << 10, Keep: 1000, Required: true}
	logs := []*Log{open(t, opts), open(t, opts)}
	appends := 0
	logs[0].file.append = func(f *os.File, lines []byte) (int, error) {
		if appends++; appends == 3 {
			testproc.NoError(t, os.Rename(path, path+".2026-11-23"))
		}
		return f.Write(lines)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				logs[g%2].Write(t.Context(), record(g*50+i))
			}
		})
	}
	wg.Wait()
	moved := ids(t, path+".2026-11-23", 0)
	got := append(ids(t, path, 0), moved...)
	slices.Sort(got)
	if !slices.Equal(got, names(0, 400)) || len(moved) == 0 {
		t.Errorf("%d records, %d in the file that was moved: %q", len(got), len(moved), got)
	}
	few := open(t, Options{File: path, MaxSize: 1 << 10, Keep: 2, Required: true})
	for i := range 100 {
		few.Write(t.Context(), record(i))
	}
	for n := 1; n < 5; n++ {
		if info, err := os.Stat(numbered(path, n)); n <= 2 && (err != nil || info.Size() > 1<<10) {
			t.Errorf("file %d: %v", n, err)
		}
	}
	if got := ids(t, path, 0); !slices.Contains(got, "CUSTOM_0099") {
		t.Errorf("records %q", got)
	}
}

// TestDiskFull: a write that fits only in part leaves no part of a line. Its records are kept and
// written when there is space; beyond a bound they are lost and counted, and nothing waits. What
// cannot be written at the end is an error of Close.
func TestDiskFull(t *testing.T) {
	for _, appendOnly := range []bool{false, true} {
		t.Run(fmt.Sprint("cannot truncate ", appendOnly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "audit.log")
				l := open(t, Options{File: path})
				l.Write(t.Context(), record(0))
				var full atomic.Bool
				full.Store(true)
				l.file.append = func(f *os.File, lines []byte) (int, error) {
					if !full.Load() {
						return f.Write(lines)
					}
					n, err := f.Write(lines[:len(lines)/2])
					if appendOnly { // what was written stays
						if _, err := f.Write([]byte("\n")); err != nil {
							t.Error(err)
						}
						return 0, errors.Join(unix.ENOSPC, err)
					}
					return n, errors.Join(unix.ENOSPC, err)
				}
				l.Write(t.Context(), record(1))
				if !errors.Is(l.Problem(), unix.ENOSPC) || l.Refusal() != nil {
					t.Errorf("problem %v, refusal %v", l.Problem(), l.Refusal())
				}
				if got := ids(t, path, map[bool]int{true: 1}[appendOnly]); len(got) != 1 {
					t.Errorf("records %q", got)
				}
				full.Store(false)
				time.Sleep(2 * retryInterval) // of synctest's clock
				synctest.Wait()
				testproc.NoError(t, l.Problem())
				unreadable := map[bool]int{true: 1}[appendOnly]
				testproc.EqualList(t, ids(t, path, unreadable), names(0, 2), "records %q")
				full.Store(true)
				big := record(2)
				big.Changes[0].After = Value(strings.Repeat("x", 10000))
				for range maxPending/10000 + 10 {
					l.Write(t.Context(), big)
				}
				if lost := counted(t, l, "file", "lost"); lost < 9 || lost > 20 {
					t.Errorf("%v records are lost", lost)
				}
				if len(l.pending) > maxPending {
					t.Errorf("%d bytes are kept", len(l.pending))
				}
				testproc.ErrorHas(t, l.Close(), "are lost", "Close: %v")
			})
		})
	}
}

// TestHungDisk: while the disk does not answer, a log that is not required makes a request wait a
// second at most, and loses records when its queue is full; one that is required makes it wait
// until its context ends.
func TestHungDisk(t *testing.T) {
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprint("required ", required), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, Options{File: filepath.Join(t.TempDir(), "audit.log"), Required: required})
				hung := make(chan struct{})
				l.file.append = func(f *os.File, lines []byte) (int, error) {
					<-hung
					return f.Write(lines)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				l.Write(ctx, record(0))
				if took, want := time.Since(began),
					map[bool]time.Duration{false: waitAtMost, true: time.Minute}[required]; took != want {
					t.Errorf("the request waited for %v, want %v", took, want)
				}
				began = time.Now()
				err := l.Intend(func() Record { return record(1) }).Wait(t.Context())
				took, atMost := time.Since(began),
					map[bool]time.Duration{false: waitAtMost, true: intentAtMost}[required]
				if took != atMost || errors.Is(err, ErrNotRecorded) != required {
					t.Errorf("an act waited for %v, want %v: %v", took, atMost, err)
				}
				if !required {
					began = time.Now()
					if err := l.Intend(func() Record { return record(2) }).Wait(t.Context()); err != nil ||
						time.Since(began) > 0 {
						t.Errorf("the next act waited for %v: %v", time.Since(began), err)
					}
					for i := range queueLength + 5 {
						l.Enqueue(func() Record { return record(i) })
					}
					testproc.Equal(t, counted(t, l, "queue", "lost"), 7, "%v records are lost")
				}
				close(hung)
				testproc.NoError(t, l.Close())
			})
		})
	}
}

// TestRequiredLogMustOpen: a service with a required log does not start without it.
func TestRequiredLogMustOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file", "audit.log")
	testproc.Check(t, os.WriteFile(filepath.Dir(path), nil, 0o600))
	if _, err := Open(Options{File: path, Required: true, Logger: zerolog.Nop()}); err == nil {
		t.Error("it started")
	}
	open(t, Options{File: path}).Write(t.Context(), record(0)) // not required: it does
	if l, err := Open(Options{}); l != nil || err != nil {
		t.Errorf("without a file and a journal: %v, %v", l, err)
	}
	(*Log)(nil).Write(t.Context(), record(0))
}

// TestLongRecordsAreSplit: no line is much longer than the bound, no change is left out, and a
// value that is too long is replaced by its size.
func TestLongRecordsAreSplit(t *testing.T) {
	long := Record{Service: "test", RequestID: "req-1"}
	for i := range 5000 {
		long.Changes = append(long.Changes,
			Change{Kind: KindAllocation, ID: fmt.Sprint("consumer", i), Provider: strings.Repeat("p", 36),
				After: Value(map[string]int{"VCPU": i})})
	}
	long.Changes = append(long.Changes,
		Change{Kind: KindServer, ID: "s", After: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)})
	lines, parts := long.lines()
	total := 0
	for i, line := range lines {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil ||
			len(line) > maxLine+maxValue || r.Part != i+1 || r.Parts != len(lines) || r.RequestID != "req-1" {
			t.Errorf("line %d has %d bytes: part %d of %d, %v", i, len(line), r.Part, r.Parts, err)
		}
		total += len(r.Changes)
	}
	if total != 5001 || len(lines) != len(parts) || len(lines) < 2 {
		t.Errorf("%d changes in %d lines", total, len(lines))
	}
	if last := parts[len(parts)-1].Changes; string(last[len(last)-1].After) != fmt.Sprintf(`{"cut_bytes":%d}`,
		1<<20+2) {
		t.Errorf("the long value is %.100s", last[len(last)-1].After)
	}
}

// BenchmarkEnqueue is a record of one claim, from many goroutines as requests are.
func BenchmarkEnqueue(b *testing.B) {
	l, err := Open(Options{File: filepath.Join(b.TempDir(), "audit.log"), MaxSize: 1 << 40, Logger: zerolog.Nop()})
	testproc.Check(b, err)
	r := Record{Service: "placement", RequestID: "req-11111111-2222-4333-8444-555555555555", User: "nova",
		Project: "service", Method: "PUT", Path: "/allocations/" + strings.Repeat("1", 36),
		Changes: []Change{{Kind: KindAllocation, ID: strings.Repeat("1", 36), Provider: strings.Repeat("2", 36),
			ProviderName: "cn1", After: Value(map[string]int{"VCPU": 2, "MEMORY_MB": 4096})}}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Write(b.Context(), r)
		}
	})
	testproc.Check(b, l.Close())
}
