// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// failure is one of the database servers of a cell.
type failure struct {
	name       string
	begin, end func(t testing.TB)
	// down says that no server takes writes until the end.
	down bool
}

// TestDatabasesOfACellFailOver: the database of a cell is on a Galera cluster, or on PostgreSQL
// with a standby. Servers fail, and others take their place, while the cell builds servers and its
// agent reports. Nothing is lost or built twice, and the list of cells says what is wrong and when
// it is over.
func TestDatabasesOfACellFailOver(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	long := dbservers.Long(t)
	t.Run("postgresql", func(t *testing.T) {
		p := dbservers.StartPostgreSQLPair(t, dbservers.Options{Durable: true})
		on := &servers{database: func(t testing.TB, name string) string {
			p.Primary.Database(t, name)
			return p.DSN(name)
		}}
		back := func(t testing.TB) { p.Rejoin(t) }
		all := []failure{{
			name: "the primary is killed, and the standby promoted", end: back,
			begin: func(t testing.TB) { p.Primary.Kill(t); p.Promote(t) },
		}}
		if long {
			all = append(all, failure{
				name: "the primary hangs, and the standby is promoted", end: back,
				begin: func(t testing.TB) { p.Primary.Pause(t); p.Promote(t) },
			}, failure{
				name: "the primary is killed", down: true,
				begin: func(t testing.TB) { p.Primary.Kill(t) },
				end:   func(t testing.TB) { p.Primary.Start(t); p.WaitSynchronous(t) },
			})
		}
		failOver(t, on, all)
	})
	if !long {
		return
	}
	t.Run("galera", func(t *testing.T) {
		c := dbservers.StartGalera(t, 3, dbservers.Options{Durable: true, Networks: os.Geteuid() == 0})
		on := &servers{database: func(t testing.TB, name string) string {
			var hosts []string
			first := ""
			for _, dsn := range c.Database(t, name) {
				u := testproc.Try(url.Parse(dsn)).Or(t)
				if hosts = append(hosts, u.Host); first == "" {
					first = dsn
				}
			}
			return strings.Replace(first, hosts[0], strings.Join(hosts, ","), 1)
		}}
		all := []failure{{
			name: "the node that is used is killed", begin: func(t testing.TB) { c.Nodes[0].Kill(t) },
			end: func(t testing.TB) { c.Nodes[0].Start(t); c.WaitSynced(t) },
		}, {
			name: "the node that is used hangs", begin: func(t testing.TB) { c.Nodes[1].Pause(t) },
			end: func(t testing.TB) { c.Nodes[1].Continue(t); c.WaitSynced(t) },
		}, {
			name: "two of three nodes are killed", down: true,
			begin: func(t testing.TB) { c.Nodes[1].Kill(t); c.Nodes[2].Kill(t) },
			end: func(t testing.TB) {
				c.Bootstrap(t, 0)
				c.Nodes[1].Start(t)
				c.Nodes[2].Start(t)
				c.WaitSynced(t)
			},
		}}
		if os.Geteuid() == 0 {
			for n := range c.Nodes[:2] {
				all = append(all, failure{
					name:  fmt.Sprintf("node %d is separated from the others", n),
					begin: func(t testing.TB) { c.Partition(t, n) },
					end:   func(t testing.TB) { c.Heal(t); c.WaitSynced(t) },
				})
			}
		}
		failOver(t, on, all)
	})
}

// failOver has one failure after the other in a deployment of two cells: the first has its database
// on the servers, and two processes.
func failOver(t *testing.T, on *servers, all []failure) {
	t.Helper()
	on.processes = map[string]int{"cell1": 2}
	w := newWorld(t, plan{cells: 2, kinds: []kind{fake, fake}, servers: on, downTime: 20 * time.Second, api: hurried})
	watch := w.watching(unmoved)
	kept := []string{w.bootOn("h1", "before")}
	for i, f := range all {
		f.begin(t)
		w.listed(f.name, f.down)
		// It waits, goes to another cell, or fails, and is then in error.
		w.boot(world.Admin, fmt.Sprintf("during%d", i), "shared", nil)
		w.boot(world.Admin, fmt.Sprintf("there%d", i), "shared", record{"availability_zone": "nova:h1"})
		if !f.down {
			kept = append(kept, w.bootOn("h1", fmt.Sprintf("goes-on%d", i)))
		}
		f.end(t)
		w.listed("after: "+f.name, false)
		kept = append(kept, w.bootOn("h1", fmt.Sprintf("after%d", i)))
		p := w.settled()
		for _, uuid := range kept {
			if row := p.rows[p.mappings[uuid].CellUUID][uuid]; row.VMState != cellwire.VMActive || row.Host != "h1" {
				t.Errorf("after: %s: %s is %+v", f.name, uuid, row)
			}
		}
	}
	for uuid := range w.list(world.Admin) {
		w.removed(uuid)
	}
	w.nothingLeft()
	watch.judge()
}

// bootOn boots a server on a host, and again until one is active there.
func (d *deployment) bootOn(host, name string) string {
	d.T.Helper()
	all := d.bootUntil(name, "shared", record{"availability_zone": "nova:" + host})
	return all[len(all)-1]
}

// bootUntil boots servers until one is active, which is the last: a host that does not take one may
// be down for a moment.
func (d *deployment) bootUntil(name, flavor string, extra record) (uuids []string) {
	d.T.Helper()
	testproc.Eventually(d.T, 2*patience, "a server is built", func() error {
		uuid := d.boot(world.Admin, name, flavor, extra)
		uuids = append(uuids, uuid)
		var is shown
		testproc.Eventually(d.T, 2*patience, uuid+" is built, or not", func() error {
			if is = d.show(world.Admin, uuid); is.Status == "BUILD" || is.Status == "UNKNOWN" {
				return fmt.Errorf("it is %+v", is)
			}
			return nil
		})
		if is.Status != "ACTIVE" {
			return fmt.Errorf("it is %+v", is)
		}
		return nil
	})
	return uuids
}

// listed waits until the list of cells says that all are up, or that the first is down and why.
func (d *deployment) listed(when string, down bool) {
	d.T.Helper()
	testproc.Eventually(d.T, 2*patience, fmt.Sprintf("%s: cell1 is listed as down: %v", when, down), func() error {
		out, code := d.TryManage("list", "--output", "json")
		var views []struct{ Name, State, Cause string }
		if code != 0 {
			return fmt.Errorf("it ended with %d: %s", code, out)
		}
		if err := json.Unmarshal([]byte(out), &views); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if len(views) != len(d.cells) {
			return fmt.Errorf("it lists %+v", views)
		}
		for _, v := range views {
			right := v.State == "up" && v.Cause == ""
			if down && v.Name == "cell1" {
				right = v.State == "down" && strings.Contains(v.Cause, "database is unavailable")
			}
			if !right {
				return fmt.Errorf("it says %+v", v)
			}
		}
		return nil
	})
}

// removed deletes a server for good. A cell that is slow for a moment is asked again.
func (d *deployment) removed(uuid string) {
	d.T.Helper()
	testproc.Eventually(d.T, patience, uuid+" is deleted", func() error {
		got := d.Ask(world.Admin, "2.69", "POST", "/servers/"+uuid+"/action", record{"forceDelete": nil})
		if got.Code != 202 && got.Code != 404 {
			return errors.New(got.String())
		}
		return nil
	})
}
