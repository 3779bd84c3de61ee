// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var errEnd = errors.New("the process ends here")

// steps are all places at which a process may end.
var steps = []string{"claim", "allocate", "insert", "place", "release", "built", "cell0",
	"delete", "queue", "unallocate"}

// moveSteps are those of migrations.
var moveSteps = []string{"move", "destination", "fail", "give back"}

// TestEndAfterEveryStep: the process ends once after each step, and another goes on.
func TestEndAfterEveryStep(t *testing.T) {
	t.Parallel()
	big := small
	big.VCPUs = 100
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			w := begin(t, []int{1, 1})
			reached := false
			end := func(s string) error {
				if s != step {
					return nil
				}
				reached = true
				return errEnd
			}
			w.scheduler.SetAfter(end)
			fits := w.created()
			w.schedule()
			w.restart()
			w.scheduler.SetAfter(end)
			none := w.created(func(r *scheduler.CreateRequest) { r.Flavor = big })
			w.schedule()
			w.restart()
			w.schedule()
			w.work()
			w.pass(5 * scheduler.DefaultGrace) // no host lives
			w.scheduler.SetAfter(end)
			switch err := w.delete(fits, false); {
			case err == nil, errors.Is(err, errEnd):
			default:
				t.Fatal(err)
			}
			w.restart()
			if !reached {
				t.Error("the step was never reached")
			}
			w.consistent(map[string]bool{fits: false, none: true})
		})
	}
}

// TestSchedulerProperties: whatever happens in whatever order, when it is over all who know of a
// server agree.
func TestSchedulerProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	inMemory, onEngine, onServer := dbservers.Memory(t), databases(t), dbservers.OnServer(t)
	checks := 25
	if onServer {
		checks = 10
	}
	rapid.Check(t, testproc.Few(checks, func(t *rapid.T) {
		dir := testproc.Try(os.MkdirTemp(inMemory, "")).Or(t)
		where := onEngine
		if !onServer {
			where = files(t, dir)
		}
		w := newWorld(t, where, []int{2, 1}, func(b *scheduler.Options, _ *quota.Options) {
			b.Workers, b.Reclaim = 1, 20*scheduler.DefaultGrace
		})
		defer func() {
			w.close()
			_ = os.RemoveAll(dir) // the whole directory goes in the end
		}()
		c := &chaos{w: w, alive: map[string]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"create":    c.create,
			"delete":    c.delete,
			"restore":   c.restore,
			"schedule":  c.schedule,
			"work":      c.work,
			"migrate":   c.migrate,
			"decide":    c.decide,
			"moves":     c.moves,
			"breaks":    c.breaks,
			"reconcile": c.reconcile,
			"cell":      c.cell,
			"placement": c.placement,
			"restart":   func(*rapid.T) { w.restart() },
			"time":      c.time,
			"deliver": func(t *rapid.T) {
				rapid.SampledFrom(append([]*link{w.plink}, w.links()...)).Draw(t, "link").deliver()
			},
			"": func(*rapid.T) {},
		})
		c.over()
	}))
}

// chaos is what happens to a world.
type chaos struct {
	w     *world
	known []string
	// alive has the servers whose end is certain: true while no client asked to delete them.
	alive map[string]bool
}

func (c *chaos) create(t *rapid.T) {
	flavor := small
	flavor.VCPUs = rapid.SampledFrom([]int64{1, 1, 1, slots, 100}).Draw(t, "vcpus")
	servers := testproc.Try(c.w.scheduler.Create(ctx, scheduler.CreateRequest{
		RequestSpec: apidb.RequestSpec{Server: cellwire.Server{ProjectID: "p", UserID: "u",
			Name: "vm", Flavor: flavor}},
		Min: 1, Max: rapid.Int64Range(1, 2).Draw(t, "count"), AllowCellDown: true,
	})).Or(t)
	for _, s := range servers {
		c.known = append(c.known, s.UUID)
		c.alive[s.UUID] = true
	}
}

// one chooses a server.
func (c *chaos) one(t *rapid.T) string {
	if len(c.known) == 0 {
		t.Skip("there is no server")
	}
	return rapid.SampledFrom(c.known).Draw(t, "server")
}

func (c *chaos) delete(t *rapid.T) {
	uuid := c.one(t)
	soft := rapid.Bool().Draw(t, "soft")
	end := c.mayEnd(t)
	c.judge(t, uuid, soft, c.w.delete(uuid, soft))
	end()
}

// judge notes what an answer to a deletion means for the end.
func (c *chaos) judge(t *rapid.T, uuid string, soft bool, err error) {
	switch {
	case err == nil && !soft:
		c.alive[uuid] = false
	case soft && cellclient.IsConflict(err): // it moves
	case err == nil, errors.Is(err, gather.ErrDown), errors.Is(err, errEnd):
		if lives, certain := c.alive[uuid]; certain && lives {
			delete(c.alive, uuid)
		}
	case errors.Is(err, apidb.ErrNotFound):
		if c.alive[uuid] {
			t.Errorf("server %s is not found, and no client deleted it", uuid)
		}
	default:
		t.Errorf("deleting server %s: %v", uuid, err)
	}
}

func (c *chaos) restore(t *rapid.T) {
	uuid := c.one(t)
	m := testproc.Try(c.w.store.Mapping(ctx, uuid)).Or(t)
	_, err := c.w.scheduler.Restore(ctx, m)
	if err == nil && !c.alive[uuid] {
		if _, certain := c.alive[uuid]; certain {
			t.Errorf("server %s was deleted for good, and restored", uuid)
		}
	}
	if err != nil && !errors.Is(err, gather.ErrDown) && !cellclient.IsConflict(err) && !cellclient.IsNotFound(err) &&
		!errors.Is(err, apidb.ErrNotFound) {
		t.Errorf("restoring server %s: %v", uuid, err)
	}
}

// migrate has a server moved, if its state and that of its host allow it.
func (c *chaos) migrate(t *rapid.T) {
	m := testproc.Try(c.w.store.Mapping(ctx, c.one(t))).Or(t)
	kind := rapid.SampledFrom([]cellwire.MigrationType{cellwire.MigrationCold, cellwire.MigrationEvacuation}).
		Draw(t, "type")
	c.tolerate(t, c.w.scheduler.Migrate(ctx, m, kind, ""))
}

// decide confirms or reverts a migration.
func (c *chaos) decide(t *rapid.T) {
	m := testproc.Try(c.w.store.Mapping(ctx, c.one(t))).Or(t)
	if m.CellUUID == "" {
		return
	}
	if err := c.w.scheduler.Decide(ctx, m, rapid.Bool().Draw(t, "stays")); !errors.Is(err, scheduler.ErrNotResized) {
		c.tolerate(t, err)
	}
}

// tolerate fails for an error that is neither a refusal nor an outage.
func (c *chaos) tolerate(t *rapid.T, err error) {
	if err != nil && !errors.Is(err, gather.ErrDown) && !cellclient.IsConflict(err) && !cellclient.IsInUse(err) &&
		!cellclient.IsNotFound(err) && !errors.Is(err, apidb.ErrNotFound) {
		t.Errorf("migrating a server: %v", err)
	}
}

func (c *chaos) moves(t *rapid.T) {
	end := c.mayEnd(t)
	_ = c.w.scheduler.Moves(ctx) // what fails is tried again
	end()
}

// breaks has a host be able to do what a migration asks for, or not.
func (c *chaos) breaks(t *rapid.T) {
	a := rapid.SampledFrom(c.w.all()).Draw(t, "host")
	a.fails = map[cellwire.Want]bool{rapid.SampledFrom(
		[]cellwire.Want{"", cellwire.WantDeparting, cellwire.WantArriving}).Draw(t, "fails"): true}
}

// mayEnd has the process end, or another process delete something, at a step. What it returns puts
// the world right.
func (c *chaos) mayEnd(t *rapid.T) func() {
	step := rapid.SampledFrom(slices.Concat([]string{""}, steps, moveSteps)).Draw(t, "step")
	ended := false
	other := rapid.IntRange(0, 3).Draw(t, "another process deletes") == 0 && len(c.known) > 0
	victim := ""
	if other {
		victim = rapid.SampledFrom(c.known).Draw(t, "victim")
	}
	c.w.scheduler.SetAfter(func(s string) error {
		switch {
		case ended:
			return errEnd // nothing more happens in this process
		case s != step:
			return nil
		case other:
			first := c.w.scheduler
			c.w.restart() // a process of its own
			err := c.w.delete(victim, false)
			c.w.scheduler = first
			c.judge(t, victim, false, err)
			return nil
		}
		ended = true
		return errEnd
	})
	return func() {
		c.w.scheduler.SetAfter(nil)
		if ended {
			c.w.restart()
		}
	}
}

func (c *chaos) schedule(t *rapid.T) {
	end := c.mayEnd(t)
	testproc.Check(t, c.w.scheduler.Schedule(ctx))
	end()
}

func (c *chaos) reconcile(t *rapid.T) {
	end := c.mayEnd(t)
	_ = c.w.scheduler.Reconcile(ctx) // what it cannot do now it does later
	end()
}

func (c *chaos) work(t *rapid.T) {
	for _, a := range c.w.all() {
		a.off = rapid.IntRange(0, 3).Draw(t, "off") == 0
		a.work()
	}
}

// spoil draws how a link fails: always, from the n-th request on, or only then.
func (c *chaos) spoil(t *rapid.T, l *link) {
	how := rapid.SampledFrom([]fault{up, up, refused, lost, hangs, rubbish, late, late}).Draw(t, "how")
	if rapid.Bool().Draw(t, "always") {
		l.set(how)
		return
	}
	n, once := rapid.IntRange(1, 6).Draw(t, "request"), rapid.Bool().Draw(t, "once")
	l.set(up)
	l.when(func(*http.Request) fault {
		l.mu.Lock()
		defer l.mu.Unlock()
		n--
		if n == 0 || (n < 0 && !once) {
			return how
		}
		return up
	})
}

func (c *chaos) cell(t *rapid.T)      { c.spoil(t, rapid.SampledFrom(c.w.sites).Draw(t, "cell").link) }
func (c *chaos) placement(t *rapid.T) { c.spoil(t, c.w.plink) }

// links are those of all cells.
func (w *world) links() []*link {
	var all []*link
	for _, s := range w.sites {
		all = append(all, s.link)
	}
	return all
}

func (c *chaos) time(t *rapid.T) {
	c.w.pass(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
	if rapid.Bool().Draw(t, "hosts live") {
		for _, a := range c.w.all() {
			a.beat()
		}
	}
}

// over lets it all settle, and compares. Of what is softly deleted, or may be, the cell is asked.
func (c *chaos) over() {
	w := c.w
	w.settle()
	for _, uuid := range slices.Sorted(slices.Values(c.known)) {
		m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
		if _, certain := c.alive[uuid]; certain {
			continue
		}
		if m.CellUUID == "" {
			c.alive[uuid] = false
			continue
		}
		row, err := gather.One(ctx, w.gatherer, w.site(m.CellUUID).cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Server(ctx, uuid) })
		w.must(err)
		c.alive[uuid] = !row.Deleted
		if !row.Deleted && row.VMState == cellwire.VMSoftDeleted {
			w.must(w.delete(uuid, false))
			c.alive[uuid] = false
		}
	}
	w.consistent(c.alive)
}
