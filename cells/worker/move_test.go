// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const gone plugins.PowerState = -1

// moving runs a test of two hosts whose workers are started.
func moving(t *testing.T, f func(s *moveScene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newMoveScene(t)
		for _, host := range moveHosts {
			s.start(host)
		}
		s.pass(time.Minute)
		f(s)
		testproc.Equal(t, s.twice, "", "%v")
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
}

func (s *moveScene) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expect compares the status of the migration and the guest on each host.
func (s *moveScene) expect(status cellwire.MigrationStatus, first, second plugins.PowerState) {
	s.Helper()
	s.pass(5 * time.Minute)
	testproc.Equal(s, s.status(), status, "the migration is %s")
	for host, want := range map[string]plugins.PowerState{"cn1": first, "cn2": second} {
		if got := s.drivers[host].power(1); got != want {
			s.Errorf("on %s the guest is %d, want %d (%s)", host, got, want, status)
		}
	}
}

func TestServersMoveThereAndBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.cell.move(cellwire.MigrationCold)
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
		s.cell.end(true)
		s.expect(cellwire.MigrationConfirmed, gone, plugins.PowerRunning)
		s.cell.move(cellwire.MigrationCold)
		s.expect(cellwire.MigrationFinished, plugins.PowerRunning, plugins.PowerShutdown)
		s.cell.end(false)
		s.expect(cellwire.MigrationReverted, gone, plugins.PowerRunning)
		want := []string{"cn1 departed", "cn2 arrived",
			"cn1 left", "cn2 departed", "cn1 arrived", "cn1 left", "cn2 settled"}
		testproc.Same(t, cmp.Diff(want, s.cell.reported))
		// the revert's are the cell's to move back
		if diff := cmp.Diff([]string{serverUUID(1001)}, s.placement.removed); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAStoppedServerStaysOffWhereItArrives(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.drivers["cn1"].set(func() { s.drivers["cn1"].guests[serverUUID(1)] = plugins.PowerShutdown })
		s.cell.mu.Lock()
		_, server := s.cell.server()
		server.VMState, server.PowerState = cellwire.VMStopped, plugins.PowerShutdown
		s.cell.want("cn1", cellwire.WantPresent, server)
		s.cell.mu.Unlock()
		s.cell.move(cellwire.MigrationCold)
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerShutdown)
		if got := s.drivers["cn2"].powers; len(got) > 0 {
			t.Errorf("its power was changed: %v", got)
		}
	})
}

// TestSourceIsNotStartedWhileItsServerIsMoved, not by a restart of the agent or of the driver, and
// what else starts it is undone.
func TestSourceIsNotStartedWhileItsServerIsMoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.cell.move(cellwire.MigrationCold)
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
		s.start("cn1")
		s.drivers["cn1"].crash()
		s.workers["cn1"].Changed("", "")
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
		s.drivers["cn1"].set(func() { s.drivers["cn1"].guests[serverUUID(1)] = plugins.PowerRunning })
		s.workers["cn1"].Changed("cn1", serverUUID(1))
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
		if n := len(s.cell.reported); n != 2 {
			t.Errorf("reported %v", s.cell.reported)
		}
	})
}

func TestAHostThatWasEvacuatedRemovesItsGuestWhenItIsBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.end("cn1") // with its guest on, as after a reboot that starts guests
		s.drivers["cn1"].set(func() { s.drivers["cn1"].guests[serverUUID(1)] = plugins.PowerShutdown })
		s.cell.move(cellwire.MigrationEvacuation)
		s.expect(cellwire.MigrationDone, plugins.PowerShutdown, plugins.PowerRunning)
		if !s.placement.holds(1001) {
			t.Error("the allocations on the lost host are gone before it is back")
		}
		s.start("cn1")
		s.expect(cellwire.MigrationConfirmed, gone, plugins.PowerRunning)
		if s.placement.holds(1001) || !s.placement.holds(1) {
			t.Errorf("allocations: %v", s.placement.held)
		}
	})
}

// TestAServerInErrorRunsWhereItIsEvacuatedTo, as in Nova: it is in error after an evacuation that
// failed, and has been running before.
func TestAServerInErrorRunsWhereItIsEvacuatedTo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.end("cn1")
		s.drivers["cn1"].set(func() { s.drivers["cn1"].guests[serverUUID(1)] = plugins.PowerShutdown })
		s.cell.mu.Lock()
		_, server := s.cell.server()
		server.VMState = cellwire.VMError
		s.cell.want("cn1", cellwire.WantPresent, server)
		s.cell.mu.Unlock()
		s.cell.move(cellwire.MigrationEvacuation)
		s.expect(cellwire.MigrationDone, plugins.PowerShutdown, plugins.PowerRunning)
	})
}

// TestAHostThatComesBackTooEarly shuts its guest down while the server is still being made
// elsewhere.
func TestAHostThatComesBackTooEarly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.drivers["cn2"].set(func() { s.drivers["cn2"].err = &plugins.NotReady{} })
		s.cell.move(cellwire.MigrationEvacuation)
		s.expect(cellwire.MigrationPre, plugins.PowerShutdown, gone)
		s.drivers["cn2"].set(func() { s.drivers["cn2"].err = nil })
		s.expect(cellwire.MigrationConfirmed, gone, plugins.PowerRunning)
	})
}

func TestAServerThatCannotMoveGoesOnWhereItWas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, prepare := range map[string]func(s *moveScene){
		"the source cannot let it go": func(s *moveScene) {
			s.drivers["cn1"].faults[serverUUID(1)] =
				"its TPM cannot be copied"
		},
		"the destination is full": func(s *moveScene) { s.drivers["cn2"].faults[serverUUID(1)] = "the disk is full" },
		"its disk cannot be read": func(s *moveScene) {
			s.drivers["cn2"].copies, s.drivers["cn1"].unreadable = true, true
		},
		"it does not start there": func(s *moveScene) {
			s.drivers["cn2"].powerErrs = []error{&plugins.InstanceFault{Reason: "no KVM"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			moving(t, func(s *moveScene) {
				for _, host := range moveHosts {
					s.drivers[host].set(func() {})
				}
				prepare(s)
				s.cell.move(cellwire.MigrationCold)
				s.expect(cellwire.MigrationError, plugins.PowerRunning, gone)
				if s.drivers["cn2"].half[serverUUID(1)] {
					t.Error("half a guest is left")
				}
				if len(s.placement.removed) > 0 {
					t.Errorf("allocations were removed: %v", s.placement.removed)
				}
				if st := s.workers["cn2"].Status(); st.Servers != 0 || st.Busy != 0 {
					t.Errorf("the destination has %+v", st)
				}
			})
		})
	}
}

// TestDisksAreCopied through streams of the cell; one that is cut off or changed on the way is
// copied again.
func TestDisksAreCopied(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, damage := range map[string]func(sent int, text []byte) []byte{
		"at once": nil,
		"after a stream is cut off": func(sent int, text []byte) []byte {
			if sent > 100_000 {
				return text[:len(text)/2]
			}
			return text
		},
		"after bytes are changed": func(sent int, text []byte) []byte {
			if sent > 100_000 && len(text) > 100 {
				text[99] ^= 1
			}
			return text
		},
		"after the end is lost": func(_ int, text []byte) []byte {
			if len(text) < 60_000 { // not a whole frame
				return nil
			}
			return text
		},
	} {
		t.Run(name, func(t *testing.T) {
			moving(t, func(s *moveScene) {
				s.drivers["cn2"].copies = true
				if damage != nil {
					sent := 0
					s.cell.damage = func(text []byte) []byte {
						sent += len(text)
						return damage(sent, text)
					}
				}
				s.cell.move(cellwire.MigrationCold)
				if damage != nil {
					s.expect(cellwire.MigrationPost, plugins.PowerShutdown, gone)
					if !strings.Contains(fmt.Sprint(s.workers["cn2"].Status().Stuck), "disk") {
						t.Errorf("the destination reports %+v", s.workers["cn2"].Status().Stuck)
					}
					s.drivers["cn2"].set(func() { s.drivers["cn2"].problems = nil })
					s.cell.mu.Lock()
					s.cell.damage = nil
					s.cell.mu.Unlock()
				}
				s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
			})
		})
	}
}

// TestASourceThatIsLostGetsItsServerBack after an hour in which nothing could be copied, and not
// after a copy that takes longer.
func TestASourceThatIsLostGetsItsServerBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.drivers["cn2"].copies = true
		s.cell.damage = func([]byte) []byte { return nil }
		s.cell.move(cellwire.MigrationCold)
		s.pass(50 * time.Minute)
		s.expect(cellwire.MigrationPost, plugins.PowerShutdown, gone)
		s.pass(10 * time.Minute)
		s.expect(cellwire.MigrationError, plugins.PowerRunning, gone)
		if s.drivers["cn2"].half[serverUUID(1)] {
			t.Error("half a guest is left")
		}
		s.cell.damage = func(text []byte) []byte { // some of it arrives each time
			if len(text) < 60_000 {
				return nil
			}
			return text
		}
		s.cell.move(cellwire.MigrationCold)
		s.pass(3 * time.Hour)
		s.expect(cellwire.MigrationPost, plugins.PowerShutdown, gone)
	})
}

// TestAServerThatCannotComeBack: what stands in the way of a guest on the source is reported as a
// fault after a revert, once, and the guest is not tried again.
func TestAServerThatCannotComeBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for reason, c := range map[string]struct {
		prepare func(d *fakeDriver)
		guest   plugins.PowerState
		power   plugins.PowerState
	}{
		"its disk is gone": {
			func(d *fakeDriver) { d.powerErrs = []error{&plugins.InstanceFault{Reason: "its disk is gone"}} },
			plugins.PowerShutdown, plugins.PowerShutdown,
		},
		"its guest does not exist": {func(d *fakeDriver) { delete(d.guests, serverUUID(1)) }, gone,
			plugins.PowerNoState},
	} {
		t.Run(reason, func(t *testing.T) {
			moving(t, func(s *moveScene) {
				s.cell.move(cellwire.MigrationCold)
				s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
				s.drivers["cn1"].set(func() { c.prepare(s.drivers["cn1"]) })
				s.cell.end(false)
				s.expect(cellwire.MigrationReverted, c.guest, gone)
				s.cell.mu.Lock()
				defer s.cell.mu.Unlock()
				_, server := s.cell.server()
				want := fmt.Sprintf("Revert of the migration of instance %s failed: %s", serverUUID(1), reason)
				if server.Fault == nil || server.Fault.Message != want || server.TaskState != "" ||
					server.PowerState != c.power {
					t.Errorf("the server is %+v, with the fault %+v; want %q", server, server.Fault, want)
				}
				testproc.Same(t,
					cmp.Diff([]string{"cn1 departed", "cn2 arrived", "cn2 left", "cn1 settled"}, s.cell.reported))
			})
		})
	}
}

func TestAMissingGuestCannotBeMoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.drivers["cn1"].set(func() { delete(s.drivers["cn1"].guests, serverUUID(1)) })
		s.cell.move(cellwire.MigrationCold)
		s.pass(time.Minute)
		testproc.Equal(t, s.status(), cellwire.MigrationError, "the migration is %s")
		if s.drivers["cn2"].power(1) != gone {
			t.Error("it was created again")
		}
	})
}

// TestTheSourceSaysWhetherItKeepsAGuest: when the server has arrived elsewhere, whenever that
// changes, and when the cell asks because the migration is reverted.
func TestTheSourceSaysWhetherItKeepsAGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		guests, uuid := s.drivers["cn1"].guests, serverUUID(1)
		s.cell.move(cellwire.MigrationCold)
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
		for _, stage := range []struct {
			name    string
			do      func()
			says    []string
			missing []worker.Missing
		}{
			{"it is there", func() {}, []string{"cn1 has it: true"}, nil},
			{"removed", func() { s.drivers["cn1"].set(func() { delete(guests, uuid) }) }, []string{"cn1 has it: false"},
				[]worker.Missing{{UUID: uuid, Name: "web", Node: "cn1", NowOn: "cn2"}}},
			{"still gone", func() {}, nil, []worker.Missing{{UUID: uuid, Name: "web", Node: "cn1", NowOn: "cn2"}}},
			{"there again", func() { s.drivers["cn1"].set(func() { guests[uuid] = plugins.PowerShutdown }) },
				[]string{"cn1 has it: true"}, nil},
			{"asked", func() {
				s.cell.mu.Lock()
				defer s.cell.mu.Unlock()
				_, server := s.cell.server()
				s.cell.migration.Status = cellwire.MigrationRevert
				s.cell.want("cn1", cellwire.WantDeparting, server)
			}, []string{"cn1 has it: true"}, nil},
		} {
			stage.do()
			s.workers["cn1"].Changed("cn1", uuid)
			s.pass(5 * time.Minute)
			s.cell.mu.Lock()
			said := s.cell.kept
			s.cell.kept = nil
			s.cell.mu.Unlock()
			testproc.Samef(t, cmp.Diff(stage.says, said), "%s: it says", stage.name)
			testproc.Samef(t, cmp.Diff(stage.missing, s.workers["cn1"].Status().Missing), "%s: missing are", stage.name)
		}
		if running := s.drivers["cn2"].power(1); running != plugins.PowerRunning {
			t.Errorf("the guest on the destination is %d", running)
		}
	})
}

// TestADeletedServerThatHadMoved has its allocations removed where they are: the destination's with
// its guest, the source's with what was kept there.
func TestADeletedServerThatHadMoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moving(t, func(s *moveScene) {
		s.cell.move(cellwire.MigrationCold)
		s.expect(cellwire.MigrationFinished, plugins.PowerShutdown, plugins.PowerRunning)
		s.cell.mu.Lock()
		_, server := s.cell.server()
		s.cell.want("cn1", cellwire.WantGone, server)
		s.cell.mu.Unlock()
		s.pass(time.Minute)
		if s.drivers["cn1"].power(1) != gone || s.placement.holds(1001) || !s.placement.holds(1) {
			t.Errorf("the source has a guest (%d), or the allocations are %v",
				s.drivers["cn1"].power(1), s.placement.held)
		}
		s.cell.mu.Lock()
		s.cell.want("cn2", cellwire.WantGone, server)
		s.cell.mu.Unlock()
		s.pass(time.Minute)
		if s.drivers["cn2"].power(1) != gone || s.placement.holds(1) {
			t.Errorf("the destination has a guest (%d), or the allocations are %v",
				s.drivers["cn2"].power(1), s.placement.held)
		}
	})
}

var moveHappenings = []string{
	"migrate", "migrate", "evacuate", "confirm", "confirm", "revert", "revert",
	"restart", "restart", "crash", "cell away", "cell back", "lose answers", "not ready", "unsure", "ready", "fault",
	"no fault", "placement away", "placement back", "driver event",
}

func (s *moveScene) happen(x step) {
	host := moveHosts[x.N%2]
	d := s.drivers[host]
	switch x.What {
	case "migrate":
		s.cell.move(cellwire.MigrationCold)
	case "evacuate": // its host has lost power, and is back after a while
		s.cell.mu.Lock()
		host, _ := s.cell.server()
		idle := s.cell.idle() && s.cell.items[host].Want == cellwire.WantPresent
		s.cell.mu.Unlock()
		if idle {
			s.end(host)
			s.drivers[host].set(func() {
				if _, there := s.drivers[host].guests[serverUUID(1)]; there {
					s.drivers[host].guests[serverUUID(1)] = plugins.PowerShutdown
				}
			})
			s.cell.move(cellwire.MigrationEvacuation)
			s.pass(time.Duration(x.Then) * time.Second)
			s.start(host)
		}
	case "confirm", "revert":
		s.cell.end(x.What == "confirm")
	case "restart":
		s.start(host)
	case "crash":
		d.crash()
		s.workers[host].Changed("", "")
	case "driver event":
		s.workers[host].Changed(host, "")
	case "cell away", "cell back":
		s.cell.mu.Lock()
		s.cell.away = map[string]error{"cell away": refusal()}[x.What]
		s.cell.mu.Unlock()
	case "lose answers":
		s.cell.mu.Lock()
		s.cell.lose = x.N
		s.cell.mu.Unlock()
	case "not ready":
		d.set(func() { d.err = &plugins.NotReady{} })
	case "unsure":
		d.set(func() { d.spawnErrs = slices.Repeat([]error{errors.New("outcome unknown")}, x.N) })
	case "ready":
		d.set(func() { d.err = nil })
		s.workers[host].Changed("", "")
	case "fault":
		d.set(func() { d.faults[serverUUID(1)] = "it cannot" })
	case "no fault":
		d.set(func() { delete(d.faults, serverUUID(1)) })
	case "placement away":
		s.placement.set(errors.New("503"))
	case "placement back":
		s.placement.set(nil)
	}
}

// judge compares what is with what the cell wants.
func (s *moveScene) judge() string {
	s.cell.mu.Lock()
	defer s.cell.mu.Unlock()
	at, server := s.cell.server()
	m := s.cell.migration
	kept := m.Status == cellwire.MigrationFinished
	var wrong []string
	for _, host := range moveHosts {
		want := gone
		switch {
		case host == at:
			want = plugins.PowerRunning
		case kept && host == m.SourceHost:
			want = plugins.PowerShutdown
		}
		if got := s.drivers[host].power(1); got != want {
			wrong = append(wrong, fmt.Sprintf("on %s the guest is %d, want %d", host, got, want))
		}
		if s.drivers[host].half[serverUUID(1)] {
			wrong = append(wrong, "half a guest is left on "+host)
		}
		if st := s.workers[host].Status(); st.Busy != 0 || st.Waiting != 0 || len(st.Unknown) > 0 {
			wrong = append(wrong, fmt.Sprintf("the worker of %s: %+v", host, st))
		}
		wrong = append(wrong, s.drivers[host].problems...)
	}
	if !kept && !s.cell.idle() {
		wrong = append(wrong, "the migration has not ended")
	}
	if server.PowerState != plugins.PowerRunning || s.cell.items[at].Want != cellwire.WantPresent {
		wrong = append(wrong, fmt.Sprintf("the cell has power %d and wants %s",
			server.PowerState, s.cell.items[at].Want))
	}
	s.placement.mu.Lock()
	defer s.placement.mu.Unlock()
	if held := s.placement.held; len(held[serverUUID(1)][nodeOn(at)]) == 0 ||
		len(held) != map[bool]int{true: 2, false: 1}[kept] {
		wrong = append(wrong, fmt.Sprintf("allocations: %v", held))
	}
	if s.twice != "" {
		wrong = append(wrong, s.twice)
	}
	if wrong != nil {
		wrong = append(wrong, fmt.Sprintf("it is on %s, the migration %s %s, reported %v",
			at, m.Type, m.Status, s.cell.reported))
	}
	return strings.Join(wrong, "\n")
}

// TestMoveProperties: a server moves between two hosts, by migrations that are confirmed, reverted
// or fail, and by evacuations, while workers are restarted, and cell, drivers and Placement come
// and go. There are never two guests of it that run, and when all are back, it runs where the cell
// has it, nothing is left elsewhere but what an unconfirmed migration keeps, and Placement has the
// allocations for just that.
func TestMoveProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				What: rapid.SampledFrom(moveHappenings).Draw(rt, "what"), N: rapid.IntRange(1, 4).Draw(rt, "n"),
				Then: rapid.SampledFrom([]int{0, 0, 1, 3, 20, 200}).Draw(rt, "then"),
			}
		}), 1, 40).Draw(rt, "steps")
		slow := rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 100 * time.Second}).Draw(rt, "slow")
		copies := rapid.Bool().Draw(rt, "copies")
		problem := ""
		synctest.Test(t, func(t *testing.T) {
			s := newMoveScene(t)
			for _, host := range moveHosts {
				s.drivers[host].slow, s.drivers[host].copies = slow, copies
				s.start(host)
			}
			for _, x := range steps {
				s.happen(x)
				s.pass(time.Duration(x.Then) * time.Second)
			}
			for n := range 2 {
				for _, what := range []string{"cell back", "ready", "no fault", "placement back"} {
					s.happen(step{What: what, N: n})
				}
			}
			s.happen(step{What: "lose answers"})
			s.pass(40 * time.Minute)
			if problem = s.judge(); problem != "" {
				problem += "\n" + s.log.String()
			}
			for _, host := range moveHosts {
				s.drivers[host].problems = nil
			}
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}
