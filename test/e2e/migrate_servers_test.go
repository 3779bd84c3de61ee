// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// offlineHost is a host whose tree has to be reshaped, with three guests, while no service runs.
type offlineHost struct {
	t      *testing.T
	number int
	dir    string
}

func newOfflineHost(t *testing.T, number int) *offlineHost {
	t.Helper()
	h := &offlineHost{t, number, testproc.SocketDir(t)}
	h.configure("vgpu-children")
	return h
}

func (h *offlineHost) name() string { return fmt.Sprintf("cn%d", h.number) }
func (h *offlineHost) uuid() string { return fmt.Sprintf("c0000000-0000-4000-8000-%012d", h.number) }
func (h *offlineHost) consumer(i int) string {
	return fmt.Sprintf("99999999-0000-4000-%04d-%012d", 8000+h.number, i+1)
}

// configure has the driver report a layout.
func (h *offlineHost) configure(layout string) {
	h.t.Helper()
	check(h.t, os.WriteFile(filepath.Join(h.dir, "agent.toml"), []byte(fmt.Sprintf(`
[agent]
host = %[1]q
state_dir = "%[2]s/state"
runtime_dir = "%[2]s/run"
[plugins]
dir = %[3]q
[drivers.fake.config]
layout = %[4]q
nodes = [{name = %[1]q, uuid = %[5]q, inventories = {VCPU = {total = 8}, VGPU = {total = 8}}}]
`, h.name(), h.dir, binaries.Dir(), layout, h.uuid())), 0o600))
}

// migrate starts the command on a database.
func (h *offlineHost) migrate(database string) *testproc.Process {
	h.t.Helper()
	cmd := binaries.Command("compute-agent", "placement", "migrate-compute-inventory", "--all-nodes",
		"--config", filepath.Join(h.dir, "agent.toml"), "--database", database)
	cmd.Env = append(cmd.Env, "TMPDIR="+h.dir)
	p := testproc.Start(h.t, h.name(), cmd)
	p.KilledBy(h.t)
	return p
}

// migrates runs the command to its end.
func (h *offlineHost) migrates(database string, code int, words ...string) {
	h.t.Helper()
	p := h.migrate(database)
	got := p.Exit(h.t)
	if out := strings.Join(p.Lines(), "\n"); got != code || !testproc.ContainsAll(out, words) {
		h.t.Errorf("%s: exit code %d, want %d; %q should be in\n%s", h.name(), got, code, words, out)
	}
}

// direct makes requests to Placement in this process, on a database that no service uses.
func direct(t *testing.T, database string, use func(ask func(method, path string, body, into any))) {
	t.Helper()
	opened, err := placement.NewDirect(t.Context(), placement.Config{Database: database, Logger: zerolog.Nop()})
	check(t, err)
	use(func(method, path string, body, into any) {
		t.Helper()
		client := &http.Client{Transport: opened}
		testproc.Send(t, client, method, "http://placement"+path, "placement 1.39", body).Good(t).Into(t, into)
	})
	check(t, opened.Close())
}

// inhabit makes the host with the old layout, and its guests.
func (h *offlineHost) inhabit(database string) {
	h.t.Helper()
	type object = map[string]any
	direct(h.t, database, func(ask func(method, path string, body, into any)) {
		ask("POST", "/resource_providers", object{"uuid": h.uuid(), "name": h.name()}, nil)
		ask("PUT", "/resource_providers/"+h.uuid()+"/inventories",
			object{"resource_provider_generation": 0,
				"inventories": object{"VCPU": object{"total": 8}, "VGPU": object{"total": 8}}}, nil)
		for i := range 3 {
			ask("PUT", "/allocations/"+h.consumer(i),
				object{"consumer_generation": nil, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
					"allocations": object{h.uuid(): object{"resources": object{"VCPU": 1, "VGPU": i + 1}}}}, nil)
		}
	})
}

// layout is where the guests' VGPUs are: "old", "new", or what is wrong.
func (h *offlineHost) layout(database string) (where string) {
	h.t.Helper()
	direct(h.t, database, func(ask func(method, path string, body, into any)) {
		for i := range 3 {
			var got struct {
				Allocations map[string]struct{ Resources map[string]int }
				Project     string `json:"project_id"`
			}
			ask("GET", "/allocations/"+h.consumer(i), nil, &got)
			vcpu, vgpu, now := 0, 0, "new"
			for provider, a := range got.Allocations {
				vcpu, vgpu = vcpu+a.Resources["VCPU"], vgpu+a.Resources["VGPU"]
				if provider == h.uuid() && a.Resources["VGPU"] > 0 {
					now = "old"
				}
			}
			if vcpu != 1 || vgpu != i+1 || got.Project != "p" || where != "" && where != now {
				where = fmt.Sprintf("guest %d has %+v, those before it are %q", i, got, where)
				return
			}
			where = now
		}
	})
	return where
}

// writes are requests that change a database.
var writes = regexp.MustCompile(`\b(INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|TRUNCATE)\b`)

// TestDatabasesMigrateComputeInventory: hosts are moved on a database of servers while no service
// runs: nothing is written when nothing has to move; beside a server it is refused with that one's
// name, and servers and other hypervisors beside it; and wherever it is killed, a repetition brings
// it to the end, with nothing lost.
func TestDatabasesMigrateComputeInventory(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	long, kills := dbservers.Long(t), 6
	if !long {
		kills = 1
	}
	check(t, binaries.Build())
	for engine, fresh := range serverEngines(t, long) {
		t.Run(engine, func(t *testing.T) {
			proxy := dbservers.NewProxy(t, fresh(t))
			database := dbservers.WithPasswordFile(t, proxy.DSN)
			first, second := newOfflineHost(t, 1), newOfflineHost(t, 2)
			first.inhabit(database)
			second.inhabit(database)

			first.configure("")
			var seen atomic.Int64
			proxy.Watch(func(request []byte) {
				if w := writes.Find(request); w != nil {
					seen.Add(1)
					t.Errorf("with nothing to move it writes: %q", request)
				}
			})
			first.migrates(database, 0, "nothing needs to move, nothing is written")
			proxy.Watch(nil)
			first.configure("vgpu-children")

			server := func() *testproc.Process {
				p := testproc.Start(t, "server", binaries.Command("compute-agent", "placement", "serve", "--listen",
					"127.0.0.1:0", "--database", database,
					"--config", emptyFile(t), "--runtime-dir", filepath.Join(testproc.SocketDir(t), "run")))
				p.KilledBy(t)
				return p
			}
			serving := server()
			serving.Await(t, 0, "Serving the Placement API.")
			first.migrates(database, 3, fmt.Sprintf("process %d", serving.Pid()), "has it open")
			serving.Stop(t)

			// While another hypervisor has the database, one and servers are refused.
			other, err := placement.NewDirect(t.Context(),
				placement.Config{Database: database, Exclusive: true, Logger: zerolog.Nop()})
			check(t, err)
			holder := fmt.Sprintf("process %d has it open", os.Getpid())
			second.migrates(database, 3, holder)
			refused := server()
			if code := refused.Exit(t); code == 0 || refused.Count(0, holder) == 0 {
				t.Errorf("a server beside it ended with %d:\n%s", code, strings.Join(refused.Lines(), "\n"))
			}
			check(t, other.Close())

			// Of two at the same time, both may be refused, and a repetition is not.
			both := []*testproc.Process{first.migrate(database), second.migrate(database)}
			for i, p := range both {
				if code := p.Exit(t); code != 0 && (code != 3 || p.Count(0, "has it open") == 0) {
					t.Errorf("hypervisor %d beside another one ended with %d:\n%s",
						i+1, code, strings.Join(p.Lines(), "\n"))
				}
			}
			first.migrates(database, 0)
			second.migrates(database, 0)

			// It is killed at some of the requests that a whole run makes, before each COMMIT, and
			// after it.
			third := newOfflineHost(t, 3)
			third.inhabit(database)
			var commits atomic.Int64
			proxy.Watch(func([]byte) { seen.Add(1) })
			proxy.Faults(func() dbservers.Fault { commits.Add(1); return dbservers.None })
			third.migrates(database, 0)
			proxy.Watch(nil)
			proxy.Faults(nil)
			requests, all := seen.Load(), commits.Load()
			found, number := map[string]int{}, 10
			// killed kills a run at a moment that arm waits for. comes says that it comes for
			// certain: a run that takes longer gives more signs of life, which are requests.
			killed := func(when string, comes bool, arm func(kill func())) {
				t.Helper()
				h := newOfflineHost(t, number)
				number++
				h.inhabit(database)
				var p *testproc.Process
				started := make(chan struct{})
				arm(func() {
					<-started
					p.Kill()
				})
				p = h.migrate(database)
				close(started)
				code := p.Exit(t)
				proxy.Watch(nil)
				proxy.Faults(nil)
				was := h.layout(database)
				if code == 0 && was == "new" && !comes {
					return
				}
				if found[was]++; code != -1 || was != "old" && was != "new" {
					t.Fatalf("killed %s, it ended with %d, and the layout is %s", when, code, was)
				}
				h.migrates(database, 0)
				if now := h.layout(database); now != "new" {
					t.Fatalf("killed %s, and repeated: %s", when, now)
				}
			}
			for i := range kills {
				at := requests/2 + requests*int64(2*i+1)/int64(4*kills) // the first half reads
				killed(fmt.Sprintf("at request %d of %d", at, requests), false, func(kill func()) {
					var n atomic.Int64
					proxy.Watch(func([]byte) {
						if n.Add(1) == at {
							kill()
						}
					})
				})
			}
			at := int64(1)
			if !long {
				at = all
			}
			for ; at <= all; at++ {
				for _, after := range []bool{false, true} {
					killed(fmt.Sprintf("at COMMIT %d of %d, after it: %t", at, all, after), true, func(kill func()) {
						var n atomic.Int64
						var lost atomic.Bool
						proxy.Watch(func([]byte) {
							if lost.Load() { // it looks for the outcome
								kill()
							}
						})
						proxy.Faults(func() dbservers.Fault {
							switch {
							case n.Add(1) != at:
								return dbservers.None
							case after:
								lost.Store(true)
								return dbservers.LoseAnswer
							}
							kill()
							return dbservers.LoseCommit
						})
					})
				}
			}
			if found["old"] == 0 || found["new"] == 0 {
				t.Errorf("the kills did not reach both layouts: %v", found)
			}
			t.Logf("a run makes %d requests with %d COMMITs; after the kills the layouts were %v", requests, all, found)
			for _, h := range []*offlineHost{first, second, third} {
				testproc.Equal(t, h.layout(database), "new", "%s: %s", h.name())
			}
		})
	}
}

func emptyFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "empty.toml")
	check(t, os.WriteFile(file, nil, 0o600))
	return file
}

// TestOnlineMigrationsOnServers: records that are missing are made on a database of servers, some
// at a time, and are there for all who open it then.
func TestOnlineMigrationsOnServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check(t, binaries.Build())
	for engine, fresh := range serverEngines(t, testproc.Nightly()) {
		t.Run(engine, func(t *testing.T) {
			plain := fresh(t)
			database := dbservers.WithPasswordFile(t, plain)
			h := newOfflineHost(t, 1)
			h.inhabit(database)
			dbservers.Execute(t, plain, "DELETE FROM consumers")
			for _, step := range []struct {
				args string
				code int
				says []string
			}{
				{"--max-count=1", 1, []string{"|      3       |     1     |"}},
				{"--max-count=1", 1, []string{"|      2       |     1     |"}},
				{"--max-count=7", 1, []string{"|      1       |     1     |"}},
				{"--max-count=7", 0, []string{"|      0       |     0     |"}},
			} {
				out, code := command(t, "placement", "db",
					"online-data-migrations", "--config", emptyFile(t), "--database", database, step.args)
				if code != step.code || !testproc.ContainsAll(out, step.says) {
					t.Errorf("%s: %d, want %d and %q in\n%s", step.args, code, step.code, step.says, out)
				}
			}
			direct(t, database, func(ask func(method, path string, body, into any)) {
				for i := range 3 {
					var got struct {
						Project string `json:"project_id"`
					}
					if ask("GET", "/allocations/"+h.consumer(i), nil,
						&got); got.Project != "00000000-0000-0000-0000-000000000000" {
						t.Errorf("guest %d is %q's", i, got.Project)
					}
				}
			})
		})
	}
}
