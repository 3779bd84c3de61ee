// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// waiting are servers that are to be built, or moved in each way, n of each, with what is the same
// for as long as they wait.
func (w *world) waiting(n int) (builds []string, moves map[string]string) {
	w.t.Helper()
	moves = map[string]string{}
	for range n {
		for _, kind := range []cellwire.MigrationType{
			cellwire.MigrationEvacuation, cellwire.MigrationCold, cellwire.MigrationBuild,
		} {
			uuid, from := w.moving(kind)
			from.fails = nil
			moves[uuid] = w.state(uuid)
		}
	}
	for range n {
		builds = append(builds, w.created())
	}
	return builds, moves
}

func (w *world) state(uuid string) string {
	w.t.Helper()
	row := w.row(uuid)
	return fmt.Sprintf("%s, %s on %s", row.VMState, row.TaskState, row.Host)
}

// gives says that a request writes allocations of something.
func gives(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(sent(r), `"allocations":{}`)
}

// intruder is a consumer that has something of a host.
func (w *world) intruder() string {
	w.t.Helper()
	consumer, all := uuid.NewString(), w.all()
	w.ask("PUT", "/allocations/"+consumer, map[string]any{
		"allocations": map[string]any{all[len(
			all)-1].node: map[string]any{"resources": map[string]int{"DISK_GB": 1}}},
		"consumer_generation": nil, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
	}, nil)
	return consumer
}

// TestOutageOfAKind: while Placement answers some requests, but none of a kind for any server, all
// that needs one waits, and is done afterwards. It is no fault of a server, whether there is one
// that waits, or several.
func TestOutageOfAKind(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, about := range map[string]func(*http.Request) bool{
		"writes":      func(r *http.Request) bool { return r.Method != http.MethodGet },
		"claims":      gives,
		"candidates":  func(r *http.Request) bool { return r.URL.Path == "/allocation_candidates" },
		"allocations": func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/allocations") },
	} {
		for how, c := range map[string]fault{"a failure": rubbish, "no answer": hangs, "a denial": denied} {
			for _, n := range []int{1, 2} {
				// How many wait is one question, how it fails another one.
				if n == 1 && how != "a failure" && !testproc.Nightly() {
					continue
				}
				dbservers.Case(t, fmt.Sprintf("%s: %s, %d of each", name, how, n), func(t *testing.T) {
					w := begin(t, []int{8}, attempts(3))
					builds, moves := w.waiting(n)
					w.plink.when(func(r *http.Request) fault {
						if about(r) {
							return c
						}
						return up
					})
					alive := map[string]bool{}
					for range 12 { // more than a server is tried
						w.schedule()
						w.moves()
						w.pass(time.Minute)
						w.beat()
						if name == "claims" { // that something is taken away proves nothing, and no answer neither
							w.must(w.client.Release(ctx, w.intruder()))
							alive[w.created(func(r *scheduler.CreateRequest) { r.Flavor.VCPUs = 100 })] = true
						}
					}
					for _, uuid := range builds {
						if m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t); m.CellUUID != "" {
							t.Fatalf("a server that waits is %s: %+v", w.state(uuid), w.row(uuid).Fault)
						}
					}
					for uuid, was := range moves {
						if is := w.state(uuid); is != was {
							t.Fatalf("a server that waits is %s, and was %s: %+v", is, was, w.row(uuid).Fault)
						}
					}
					said := strings.Count(w.logged(), "Placement is unavailable") // for builds, and for moves
					if said > 2 || n > 1 && said != 2 || strings.Contains(w.logged(), "is available again") {
						t.Errorf("the outage is logged %d times: %s", said, w.logged())
					}
					w.plink.set(up)
					w.schedule()
					w.moves()
					for _, uuid := range builds {
						alive[uuid] = true
						if row := w.row(uuid); row.Host == "" {
							t.Errorf("after that a server is %s: %+v", w.state(uuid), row.Fault)
						}
					}
					for uuid, was := range moves {
						alive[uuid] = true
						if is := w.state(uuid); is == was {
							t.Errorf("after that a server that moves is %s still", is)
						}
					}
					w.consistent(alive)
				})
			}
		}
	}
}

// TestWritesThatPlacementNeverCarriesOut: a server for which Placement fails each write ends as one
// whose queries it fails, if it carries out those for others meanwhile, and delays none of these.
func TestWritesThatPlacementNeverCarriesOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const newServer cellwire.MigrationType = "new"
	for how, c := range map[string]fault{"a failure": rubbish, "no answer": hangs, "a denial": denied} {
		for _, kind := range []cellwire.MigrationType{
			newServer, cellwire.MigrationCold, cellwire.MigrationEvacuation, cellwire.MigrationBuild,
		} {
			dbservers.Case(t, how+", "+string(kind), func(t *testing.T) {
				w := begin(t, []int{8}, attempts(3))
				var bad string
				ended := func() bool { return w.row(bad).TaskState == "" }
				if kind == newServer {
					bad = w.created(func(r *scheduler.CreateRequest) { r.Flavor.VCPUs = 2 })
					ended = func() bool { return testproc.Try(w.store.Mapping(ctx, bad)).Or(t).CellUUID != "" }
				} else {
					bad, _ = w.moving(kind)
				}
				w.plink.when(func(r *http.Request) fault {
					if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, bad) ||
						strings.Contains(posted(r), bad) {
						return c
					}
					return up
				})
				alive := map[string]bool{bad: true}
				tries := 0
				for ; !ended() && tries < 20; tries++ {
					w.schedule()
					w.moves()
					other := w.created()
					alive[other] = true
					w.schedule()
					if m := testproc.Try(w.store.Mapping(ctx, other)).Or(t); m.CellUUID == "" {
						t.Fatalf("another server waits after %d tries: %s", tries, w.logged())
					}
					w.pass(time.Minute)
					w.beat()
				}
				testproc.Equal(t, tries, 11, "it ends after %d tries, the first of which proves nothing")
				if row := w.row(bad); row.Fault == nil ||
					!strings.Contains(row.Fault.Details, "Placement failed a request for this server 10 times") {
					t.Errorf("it is %s: %+v", w.state(bad), row.Fault)
				}
				if kind == cellwire.MigrationBuild {
					w.plink.set(up)
					w.must(w.delete(bad, false))
					alive[bad] = false
				}
				w.consistent(alive)
			})
		}
	}
}

// TestOutageOfProviders: while Placement answers no query for providers, a move that has a claim,
// whose destination it is asked for, waits.
func TestOutageOfProviders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3})
	uuid, from := w.moving(cellwire.MigrationCold)
	w.scheduler.SetAfter(func(step string) error {
		if step == "move" {
			return errEnd
		}
		return nil
	})
	w.moves()
	w.scheduler.SetAfter(nil)
	asked := 0
	w.plink.when(func(r *http.Request) fault {
		if strings.HasPrefix(r.URL.Path, "/resource_providers") {
			asked++
			return rubbish
		}
		return up
	})
	for range 20 {
		w.pass(time.Minute)
		w.beat()
		w.moves()
	}
	w.is(uuid, cellwire.VMActive, cellwire.TaskResizePrep, from)
	if asked < 20 {
		t.Errorf("providers are asked for %d times only", asked)
	}
	w.plink.set(up)
	w.pass(time.Minute)
	w.beat()
	w.moves()
	w.is(uuid, cellwire.VMActive, cellwire.TaskResizeMigrating, from)
	w.consistent(map[string]bool{uuid: true})
}

// TestSeveralWhoseWritesFail: several servers for which Placement fails each write end, however few
// it carries out for others between.
func TestSeveralWhoseWritesFail(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, every := range []int{1, 3} {
		for _, n := range []int{2, 4} {
			dbservers.Case(t, fmt.Sprintf("%d of them, another write in each %d rounds", n, every), func(t *testing.T) {
				w := begin(t, []int{16}, attempts(3))
				alive, bad := map[string]bool{}, []string{}
				for range n {
					uuid, _ := w.moving(cellwire.MigrationCold)
					bad, alive[uuid] = append(bad, uuid), true
				}
				w.plink.when(func(r *http.Request) fault {
					if slices.ContainsFunc(bad, func(uuid string) bool { return strings.Contains(posted(r), uuid) }) {
						return rubbish
					}
					return up
				})
				moves := func(uuid string) bool { return w.row(uuid).TaskState != "" }
				rounds := 0
				for ; slices.ContainsFunc(bad, moves) && rounds < 20*every; rounds++ {
					w.moves()
					w.pass(time.Minute)
					w.beat()
					if (rounds+1)%every == 0 {
						alive[w.created()] = true
						w.schedule()
					}
				}
				testproc.Equal(t, rounds, 10*every+1, "they end after %d rounds")
				for _, uuid := range bad {
					if row := w.row(uuid); row.Fault == nil ||
						!strings.Contains(row.Fault.Details, "Placement failed a request for this server 10 times") {
						t.Errorf("one is %s: %+v", w.state(uuid), row.Fault)
					}
				}
				w.consistent(alive)
			})
		}
	}
}

// TestUnansweredTakeTurns: of more servers whose requests are not answered than there are workers
// for them, each is asked for.
func TestUnansweredTakeTurns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, moved := range map[string]bool{"builds": false, "moves": true} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{2, 2, 2}, func(o *scheduler.Options, _ *quota.Options) { o.Workers = 1 })
			const n = 3
			round := w.scheduler.ScheduleThen
			for i := range n {
				uuid := w.created(func(r *scheduler.CreateRequest) {
					if r.Flavor.VCPUs = int64(i + 2); moved {
						r.ForcedHost = fmt.Sprintf("cell%d-host1", i+1)
					}
				})
				if moved {
					w.schedule()
					w.work()
					w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
					round = w.scheduler.MovesThen
				}
			}
			asked := map[string]int{}
			var answer chan struct{}
			w.plink.when(func(r *http.Request) fault {
				for i := range n {
					if vcpus := fmt.Sprintf("VCPU%%3A%d", i+2); r.URL.Path == "/allocation_candidates" &&
						strings.Contains(r.URL.RawQuery, vcpus) {
						if answer != nil {
							asked[vcpus]++ // one at a time
							<-answer
						}
						return hangs
					}
				}
				return up
			})
			w.must(round(ctx, func() {})) // now it is known
			for range 2 * n {
				w.pass(time.Minute)
				w.beat()
				answer = make(chan struct{})
				w.must(round(ctx, func() { close(answer) }))
			}
			diff(t, map[string]int{"VCPU%3A2": 2, "VCPU%3A3": 2, "VCPU%3A4": 2}, asked)
		})
	}
}
