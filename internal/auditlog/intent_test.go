// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// outcomes reads the changed classes of a log and what became of them.
func outcomes(t *testing.T, path string) (list []string) {
	t.Helper()
	r := Reader{Paths: testproc.Try(Files(path)).Or(t)}
	testproc.Check(t, r.Read(t.Context(), func(r Record) error {
		for _, c := range r.Changes {
			list = append(list, c.ID+" "+r.Outcome)
		}
		return nil
	}))
	return list
}

// lines are those of a file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(testproc.Try(os.ReadFile(path)).Or(t))), "\n")
}

// TestIntents: an act is in the file before it happens, with its changes. Of one that was done
// readers get one record, of one that was not done none, and of one that a kill interrupted, or
// whose outcome is not known, one that says so.
func TestIntents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{File: path, Required: true})
	ctx := t.Context()
	act := func(ctx context.Context, n int, err error) error {
		return l.Do(ctx, Record{Command: "scheduler"}, func(a *Action) error {
			testproc.NoError(t, a.Intend(ctx, record(n).Changes...))
			if all := lines(t, path); !strings.Contains(all[len(all)-1],
				fmt.Sprintf(`"outcome":"intended","changes":[{"kind":"resource_class","id":"CUSTOM_%04d"`, n)) {
				t.Errorf("before the act the last line is %s", all[len(all)-1])
			}
			return err
		})
	}
	testproc.NoError(t, act(ctx, 0, nil))
	broken := errors.New("refused")
	testproc.ErrorIs(t, act(ctx, 1, broken), broken, "the change: %v")
	_ = act(ctx, 2, fmt.Errorf("commit: %w", engine.ErrOutcomeUnknown))
	request, trail := l.Begin(ctx, Record{Method: "POST", RequestID: "req-1"}) // with two acts, of which one fails
	testproc.NoError(t, act(request, 3, nil))
	_ = act(request, 4, broken)
	trail.Write(request)
	testproc.NoError(t, act(request, 5, nil)) // goes on after the answer
	killed := l.Intend(func() Record { return record(6) })
	testproc.NoError(t, killed.Wait(ctx))
	abandoned := l.Intend(func() Record { return record(7) })
	testproc.NoError(t, abandoned.Wait(ctx))
	abandoned.Abandon()
	testproc.NoError(t, l.Intend(func() Record { return Record{} }).Wait(ctx)) // changes nothing
	testproc.Check(t, l.Close())
	want := []string{"CUSTOM_0000 done", "CUSTOM_0003 done", "CUSTOM_0005 done",
		"CUSTOM_0002 unknown", "CUSTOM_0006 unknown"}
	testproc.EqualList(t, outcomes(t, path), want, "records %q")

	for _, follow := range []bool{false, true} {
		search := testproc.Try(NewSearch("req-11111111-2222-4333-8444-555555555555", time.Time{})).Or(t)
		text := string(testproc.Try(os.ReadFile(path)).Or(t))
		text = strings.ReplaceAll(text, `"service":"test"`,
			`"service":"test","request_id":"req-11111111-2222-4333-8444-555555555555"`)
		var got []string
		show := func(e Entry) error { got = append(got, e.Message); return nil }
		if follow {
			search.OnFound = show
		}
		for _, e := range testproc.Try(search.Run(ctx,
			func(ctx context.Context, s *Search) error { return s.ReadLines(ctx, strings.NewReader(text), "") })).
			Or(t) {
			testproc.NoError(t, show(e))
		}
		unknown := 0
		for _, message := range got {
			if strings.Contains(message, "(outcome unknown)") {
				unknown++
			}
		}
		if all := strings.Join(got, "\n"); strings.Contains(all, "intended") || strings.Contains(all, "not done") ||
			unknown != map[bool]int{false: 2}[follow] || len(got)-unknown != 3 {
			t.Errorf("found, while it is written %v:\n%s", follow, all)
		}
	}
}

// TestIntentOnAFullDisk: with a required log the first act is refused already, and nothing of it is
// written later. What clients do not wait for goes on. Without, acts go on, and their records are
// written when there is space.
func TestIntentOnAFullDisk(t *testing.T) {
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprint("required ", required), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "audit.log")
				l := open(t, Options{File: path, Required: required})
				var full atomic.Bool
				full.Store(true)
				l.file.append = func(f *os.File, lines []byte) (int, error) {
					if full.Load() {
						return 0, unix.ENOSPC
					}
					return f.Write(lines)
				}
				done := 0
				act := func(n int) func(*Action) error {
					return func(a *Action) error {
						if err := a.Intend(t.Context(), record(n).Changes...); err != nil {
							return err
						}
						done++
						return nil
					}
				}
				for n := range 2 {
					request, trail := l.Begin(t.Context(), Record{Method: "PUT"})
					err := l.Do(request, Record{}, act(n))
					trail.Write(request)
					if errors.Is(err, ErrNotRecorded) != required || required && !errors.Is(err, unix.ENOSPC) {
						t.Errorf("act %d: %v", n, err)
					}
				}
				testproc.NoError(t, l.Do(t.Context(), Record{Command: "scheduler"}, act(2)))
				if want := map[bool]int{false: 3, true: 1}[required]; done != want || (l.Refusal() != nil) != required {
					t.Errorf("%d acts were done, want %d; refusal %v", done, want, l.Refusal())
				}
				full.Store(false)
				time.Sleep(2 * retryInterval) // of synctest's clock
				synctest.Wait()
				testproc.NoError(t, l.Refusal())
				want := []string{"CUSTOM_0000 done", "CUSTOM_0001 done", "CUSTOM_0002 done"}
				if required {
					want = want[2:]
				}
				testproc.EqualList(t, outcomes(t, path), want, "records %q")
			})
		})
	}
}

// TestIntentsShareASync: many acts that begin together cost one fsync, their records none.
func TestIntentsShareASync(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{File: path, Sync: true, Required: true})
	held, writes, syncs := make(chan struct{}), 0, 0
	l.file.append = func(f *os.File, lines []byte) (int, error) {
		writes++
		<-held
		return f.Write(lines)
	}
	l.file.flush = func(*os.File) error { syncs++; return nil }
	first := l.Enqueue(func() Record { return record(0) }) // the others come while it is written
	var intents []*Intent
	for n := range 50 {
		intents = append(intents, l.Intend(func() Record { return record(n + 1) }))
	}
	close(held)
	<-first
	for n, i := range intents {
		testproc.NoError(t, i.Wait(t.Context()))
		l.Enqueue(func() Record {
			r := record(n + 1)
			r.ID = i.ID()
			return r
		})
	}
	testproc.Check(t, l.Close())
	if got := outcomes(t, path); !slices.Equal(got, func() (want []string) {
		for n := range 51 {
			want = append(want, fmt.Sprintf("CUSTOM_%04d done", n))
		}
		return want
	}()) {
		t.Errorf("records %q", got)
	}
	if syncs > 3 || syncs >= writes { // the first record, and the intents in one or two writes
		t.Errorf("%d writes had %d fsyncs", writes, syncs)
	}
}

// TestOutcomeInTheBatchOfItsIntent: acts go on while a log that is not required hangs. Their
// records close their intents, although both are written at once.
func TestOutcomeInTheBatchOfItsIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		l := open(t, Options{File: path})
		answer := hang(l)
		l.Write(t.Context(), record(0))
		for n := range 3 {
			testproc.NoError(t, l.Do(t.Context(), Record{},
				func(a *Action) error { return a.Intend(t.Context(), record(n+1).Changes...) }))
		}
		l.Intend(func() Record { return record(4) }).Abandon()
		answer()
		testproc.Check(t, l.Close())
		testproc.EqualList(t, outcomes(t, path),
			[]string{"CUSTOM_0000 done", "CUSTOM_0001 done", "CUSTOM_0002 done", "CUSTOM_0003 done"}, "records %q")
	})
}

// hang has the file of a log not answer until the returned function is called.
func hang(l *Log) (answer func()) {
	hung := make(chan struct{})
	l.file.append = func(f *os.File, lines []byte) (int, error) {
		<-hung
		return f.Write(lines)
	}
	return func() { close(hung) }
}

// TestHungRequiredLogRefuses: the first act waits, the next ones are refused at once, however many
// they are. None of them is unknown when the log answers again.
func TestHungRequiredLogRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		l := open(t, Options{File: path, Required: true})
		answer := hang(l)
		l.Enqueue(func() Record { return record(0) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // what waits without a limit fails
		defer cancel()
		began := time.Now()
		for n := range queueLength {
			request, trail := l.Begin(ctx, Record{Method: "PUT"})
			err := l.Do(request, Record{}, func(a *Action) error { return a.Intend(request, record(n+1).Changes...) })
			testproc.ErrorIs(t, err, ErrNotRecorded, "%v")
			trail.Write(request)
			i := l.Intend(func() Record { return record(n + 1) })
			testproc.ErrorIs(t, i.Wait(ctx), ErrNotRecorded, "Wait: %v")
			i.Abandon()
		}
		testproc.Equal(t, time.Since(began), intentAtMost, "they took %v")
		answer()
		synctest.Wait()
		testproc.NoError(t, l.Do(ctx, Record{}, func(a *Action) error { return a.Intend(ctx, record(1).Changes...) }))
		testproc.Check(t, l.Close())
		testproc.EqualList(t, outcomes(t, path), []string{"CUSTOM_0000 done", "CUSTOM_0001 done"}, "records %q")
	})
}
