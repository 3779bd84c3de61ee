// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// TestStorm kills and stops processes at random while servers are booted, listed, shown, started,
// stopped, rebooted, deleted and restored. When all run again, everything goes together, and each
// server is what its owner was answered: its guest runs unless the last action was a stop.
func TestStorm(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	stormOn(t, nil)
}

// TestSharedStorm is TestStorm with several compute APIs on one database of a server, of which one
// schedules, and two cells with databases there, of which one has two processes. The server is
// killed, stopped and ended in order, too, and connections to it are cut.
func TestSharedStorm(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	start := dbservers.StartMariaDB
	if dbservers.Engine(t) == "postgresql" {
		start = dbservers.StartPostgreSQL
	}
	stormOn(t, stormServers(t, start))
}

func stormOn(t *testing.T, on *servers) {
	t.Helper()
	seed, lasts := testproc.Seed(t), *stormTime
	if lasts == 0 {
		lasts = 6 * time.Second
		if testproc.Nightly() {
			lasts = 2 * time.Minute
		}
	}
	kinds := []kind{fake, fake, fake, fake}
	for i := range min(*stormLibvirt, 3) {
		kinds[i] = libvirt
	}
	kinds[3] = kinds[2]
	w := newWorld(t, plan{
		cells: 3, kinds: kinds, servers: on, downTime: 4 * time.Second,
		api: append(slices.Clone(hurried), `compute_api.reclaim_instance_interval = "15s"`),
	})
	s := &storm{w: w, model: newModel(), flavors: []string{"shared", "pinned"}}
	if kinds[0] == libvirt {
		s.flavors = append(s.flavors, "gpu")
	}
	watch := w.watching(s.model.movedHow)
	kept := s.keep(t)
	s.bootPermanent(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var owners sync.WaitGroup
	owners.Go(func() {
		defer stop()
		s.lasts(ctx, lasts)
	})
	for i := range 3 {
		r := rand.New(rand.NewPCG(seed, uint64(i)+1))
		owners.Go(func() { s.own(ctx, r, i) })
	}
	chaos := w.chaos(ctx, t, rand.New(rand.NewPCG(seed, 0)))
	owners.Wait()
	t.Logf("faults: %v", counted(chaos))
	t.Logf("answers: %v", counted(s.model.counts))

	s.endMoves(t)
	p := w.settled()
	var mappings map[string]apidb.Mapping
	check(t, w.read(t.Context(), func(db apidb.Store) (err error) {
		mappings, err = db.MappingsOf(t.Context(), slices.Collect(maps.Keys(s.model.servers)))
		return err
	}))
	wrong, outcomes := s.model.judge(p, mappings)
	t.Logf("outcomes: %v", counted(outcomes))
	w.tell(wrong)
	if is := p.rows[mappings[kept].CellUUID][kept].VMState; is != cellwire.VMActive {
		t.Errorf("the server %s, which no owner asked anything about, is %s", kept, is)
	}

	for uuid := range w.list(world.Admin) {
		w.removed(uuid)
	}
	w.nothingLeft()
	watch.judge()
}

// keep boots a server before the first fault. No owner touches it: it has to outlive the storm. On
// a machine that is slow hosts may be down for a moment, and then it is booted again.
func (s *storm) keep(t *testing.T) string {
	t.Helper()
	all := s.w.bootUntil("kept", s.flavors[0], nil)
	for _, uuid := range all {
		s.model.add(&tracked{uuid: uuid, name: "kept", who: world.Admin, flavor: s.flavors[0], busy: true})
	}
	return all[len(all)-1]
}

// bootPermanent boots servers that are only started, stopped and rebooted: at the end it is known
// of most what was asked for last.
func (s *storm) bootPermanent(t *testing.T) {
	t.Helper()
	for i := range 6 {
		name := fmt.Sprintf("permanent%d", i)
		uuid := s.w.boot(world.Admin, name, s.flavors[0], nil)
		s.model.add(&tracked{uuid: uuid, name: name, who: world.Admin, flavor: s.flavors[0], permanent: true})
	}
}

// lasts waits until the storm has lasted for a time, and a boot, a deletion, a stop and a
// migration have been accepted in it, for which a slow machine needs longer. It gives up waiting
// for these after some time.
func (s *storm) lasts(ctx context.Context, least time.Duration) {
	until := time.Now().Add(least)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		done := now.After(until) && s.model.has("boot 202", "delete 204", "stop 202", "migrate 202")
		if done || now.After(until.Add(patience)) {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func counted(m map[string]int) string {
	out := ""
	for _, what := range slices.Sorted(maps.Keys(m)) {
		out += fmt.Sprintf("%s: %d; ", what, m[what])
	}
	return out
}

// storm is what owners of servers do meanwhile.
type storm struct {
	w       *deployment
	model   *model
	flavors []string
}

// mostServers is how many may live at the same time.
const mostServers = 24

// own does one thing after the other.
func (s *storm) own(ctx context.Context, r *rand.Rand, index int) {
	for n := 0; ctx.Err() == nil; n++ {
		crowded := len(s.model.living(func(*tracked) bool { return true })) >= mostServers
		switch x := r.IntN(100); {
		case x < 30 && !crowded:
			s.boot(r, fmt.Sprintf("s%d-%d", index, n))
		case x < 50 || crowded && x < 60:
			s.delete(r, false)
		case x < 55:
			s.delete(r, true)
		case x < 64:
			s.restore(r)
		case x < 77:
			s.changePower(r)
		case x < 84:
			s.migrate(r)
		case x < 90:
			s.endMove(r)
		case x < 95:
			s.show(r)
		default:
			s.list(r)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.IntN(300)) * time.Millisecond):
		}
	}
}

// noAnswer is the status when no answer came, or too late.
const noAnswer = 0

// ask asks one of the processes of the compute API.
func (s *storm) ask(r *rand.Rand, what string, who world.Caller, method, path string, body any) *world.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	got, err := try(ctx, s.w.apis[r.IntN(len(s.w.apis))], who, method, path, body)
	if err != nil {
		s.model.count(what + " without an answer")
		return &world.Answer{Code: noAnswer}
	}
	s.model.count(fmt.Sprintf("%s %d", what, got.Code))
	return got
}

// act asks for an action of a server.
func (s *storm) act(r *rand.Rand, what string, who world.Caller, server *tracked, action record) *world.Answer {
	return s.ask(r, what, who, "POST", "/servers/"+server.uuid+"/action", action)
}

func (s *storm) boot(r *rand.Rand, name string) {
	who := []world.Caller{world.Of("one"), world.Of("two"), world.AdminOf("one")}[r.IntN(3)]
	flavor := s.flavors[r.IntN(len(s.flavors))]
	if r.IntN(20) == 0 {
		flavor = "huge"
	}
	extra, several := record{"flavorRef": flavor}, 1
	if r.IntN(12) == 0 && flavor != "huge" {
		several = 2 + r.IntN(2)
		extra["min_count"] = several
	}
	got := s.ask(r, "boot", who, "POST", "/servers", world.ServerBody(name, extra))
	switch {
	case got.Code == noAnswer, got.Code >= 500, got.Code == 403 && who != world.AdminOf(who.Project):
	case got.Code == 202:
		var made struct{ Server struct{ ID string } }
		if err := json.Unmarshal(got.Raw, &made); err != nil || made.Server.ID == "" {
			s.model.violated("a boot was answered with %s", got)
			return
		}
		if several > 1 {
			s.model.mu.Lock()
			s.model.several[name] = several
			s.model.mu.Unlock()
		}
		hasty := r.IntN(6) == 0
		server := &tracked{uuid: made.Server.ID, name: name, who: who, flavor: flavor, busy: hasty}
		s.model.add(server)
		if hasty { // it may be at any step of its build
			s.deleteIt(r, server, r.IntN(2) == 0)
		}
	default:
		s.model.violated("a boot of %+v was answered with %s", who, got)
	}
}

func (s *storm) delete(r *rand.Rand, force bool) {
	server := s.model.take(r, func(t *tracked) bool {
		return !t.permanent && (t.fate == lives || r.IntN(8) == 0 && (t.fate == deleted || force))
	})
	if server != nil {
		s.deleteIt(r, server, force)
	}
}

// deleteIt deletes a server that was taken.
func (s *storm) deleteIt(r *rand.Rand, server *tracked, force bool) {
	var got *world.Answer
	if force {
		got = s.act(r, "force delete", world.AdminOf(server.who.Project), server, record{"forceDelete": nil})
	} else {
		got = s.ask(r, "delete", server.who, "DELETE", "/servers/"+server.uuid, nil)
	}
	switch {
	case got.Code == 204, got.Code == 202:
		s.model.give(server, deleted, !force)
	case got.Code == 409 && !force && server.moved != never: // it is being moved
		s.model.give(server, server.fate, server.soft)
	case got.Code == 404 && server.fate != lives: // a soft deletion may have been reclaimed
		s.model.give(server, server.fate, server.soft)
	case got.Code == 404:
		s.model.violated("%s (%s) lives, and its deletion was answered with %s", server.uuid, server.name, got)
		s.model.give(server, unsure, false)
	default:
		s.model.give(server, unsure, false)
	}
}

func (s *storm) restore(r *rand.Rand) {
	server := s.model.take(r, func(t *tracked) bool { return t.fate == deleted && t.soft })
	if server == nil {
		return
	}
	got := s.act(r, "restore", world.AdminOf(server.who.Project), server, record{"restore": nil})
	switch got.Code {
	case 202:
		s.model.give(server, lives, false)
	case 409: // it is not deleted yet
		s.model.give(server, deleted, true)
	case 404: // it was deleted for good
		s.model.give(server, deleted, false)
	default:
		s.model.give(server, unsure, false)
	}
}

// powerActions are the actions on the power of a server, by the names under which they are counted.
var powerActions = map[string]struct {
	body record
	to   power
}{
	"start":       {record{"os-start": nil}, running},
	"stop":        {record{"os-stop": nil}, stopped},
	"reboot soft": {record{"reboot": record{"type": "SOFT"}}, running},
	"reboot hard": {record{"reboot": record{"type": "HARD"}}, running},
}

// changePower starts, stops or reboots a server, mostly one that can be.
func (s *storm) changePower(r *rand.Rand) {
	what := []string{"start", "stop", "reboot soft", "reboot hard"}[r.IntN(4)]
	anyway, others := r.IntN(6) == 0, r.IntN(3) == 0
	server := s.model.take(r, func(t *tracked) bool {
		return t.fate == lives && (t.permanent || others) && (anyway || (t.power == running) != (what == "start"))
	})
	if server == nil {
		return
	}
	action := powerActions[what]
	got := s.act(r, what, server.who, server, action.body)
	switch got.Code {
	case 202:
		s.model.givePower(server, action.to)
	case 409: // it is being built, or not in a state for it
		s.model.givePower(server, server.power)
	default:
		if got.Code != noAnswer && got.Code < 500 {
			s.model.violated("%s (%s) lives, and %s was answered with %s", server.uuid, server.name, what, got)
		}
		s.model.givePower(server, either)
	}
}

func (s *storm) show(r *rand.Rand) {
	all := s.model.living(func(*tracked) bool { return true })
	if len(all) == 0 {
		return
	}
	uuid := slices.Sorted(maps.Keys(all))[r.IntN(len(all))]
	got := s.ask(r, "show", world.Admin, "GET", "/servers/"+uuid, nil)
	if got.Code != noAnswer && got.Code != 200 && got.Code < 500 && s.model.unchanged(uuid, all[uuid]) {
		s.model.violated("%s lives, and is shown with %s", uuid, got)
	}
}

func (s *storm) list(r *rand.Rand) {
	who, query := []world.Caller{world.Of("one"), world.Of("two"), world.Admin}[r.IntN(3)], ""
	if who == world.Admin {
		query = "?all_tenants=1"
	}
	all := s.model.living(func(t *tracked) bool {
		return !t.restored && (who == world.Admin || who.Project == t.who.Project)
	})
	got := s.ask(r, "list", who, "GET", "/servers"+query, nil)
	switch {
	case got.Code == noAnswer, got.Code >= 500:
		return
	case got.Code != 200:
		s.model.violated("a list was answered with %s", got)
		return
	}
	var body struct{ Servers []shown }
	if err := json.Unmarshal(got.Raw, &body); err != nil {
		s.model.violated("a list was answered with %s: %v", got, err)
		return
	}
	listed := map[string]int{}
	for _, one := range body.Servers {
		listed[one.ID]++
	}
	for uuid, version := range all {
		if listed[uuid] != 1 && s.model.unchanged(uuid, version) {
			s.model.violated("%s lives, and is %d times in a list of %d", uuid, listed[uuid], len(body.Servers))
		}
	}
}
