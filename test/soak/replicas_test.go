// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// replicaCount is how many servers one Placement has, each on a host of its own.
const replicaCount = 3

// testEngine is the clustered database of a Placement.
type testEngine struct {
	// enter has a program run on a host, with a socket of the network of the tests if address is
	// not "".
	enter func(t testing.TB, host int, cmd *exec.Cmd, name, address string)
	// database is the DSN of the database for the programs on a host.
	database func(host int) string
	// faults are those that the database can have.
	faults []fault
	// separate cuts a host off from the database; join undoes it.
	separate func(host int) step
	join     step
	// whole waits until all its nodes have all that was written.
	whole step
}

type (
	step  = func(t testing.TB)
	steps []step
)

func (s steps) take(t testing.TB) {
	t.Helper()
	for _, one := range s {
		one(t)
	}
}

// fault is something that goes wrong, and is undone later.
type fault struct {
	name string
	// takes are what no two faults have at the same time.
	takes  []string
	strike steps
	heal   steps
}

// wires is what the faults of a database take: that, and the wires between networks.
const wires = "wires"

var (
	alone = []string{"database"}
	wired = []string{"database", wires}
)

// replica is one of the servers of a Placement, which is started again and again.
type replica struct {
	host    int
	address string
	state   string
	at      string // DSN of its database
	process *process
	// killed: its end is the work of a fault.
	killed bool
	client *client
}

// site is a Placement of several servers on a clustered database.
type site struct {
	engine  testEngine
	servers []*replica
	dice    *rand.Rand
	// patience is how long a client waits for an answer, before it goes to another server.
	patience time.Duration
	began    time.Time
	struck   map[string]int // how often each fault did
}

// log says what happens when.
func (s *site) log(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%7.1fs  "+format, append([]any{time.Since(s.began).Seconds()}, args...)...)
}

func newSite(t *testing.T, e testEngine, dice *rand.Rand) *site {
	t.Helper()
	s := &site{engine: e, dice: dice, patience: 3 * time.Second, began: time.Now(), struck: map[string]int{}}
	for host := range replicaCount {
		address := testproc.FreeAddress(t)
		r := &replica{host: host, address: address, state: place(t)}
		r.at, r.client = dbservers.WithPasswordFile(t, e.database(host)), newClient(t, "http://"+address)
		s.servers = append(s.servers, r)
		s.await(t, r)
	}
	return s
}

// launch starts the process of a server.
func (s *site) launch(t *testing.T, r *replica) {
	t.Helper()
	var sockets []*os.File
	r.process = start(t, func(cmd *exec.Cmd) {
		s.engine.enter(t, r.host, cmd, "placement", r.address)
		sockets = cmd.ExtraFiles
	}, "--state-dir", r.state, "--database", r.at)
	for _, f := range sockets {
		check(t, f.Close()) // the server has it
	}
	r.killed = false
}

// ended says whether the process of a server has ended.
func (r *replica) ended() bool {
	select {
	case <-r.process.Done():
		return true
	default:
		return false
	}
}

// stop stops the process of a server, if there is one: without a database it ends by itself,
// perhaps just now.
func (r *replica) stop(t testing.TB) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, fmt.Sprintf("server %d is stopped, or has ended", r.host), func() error {
		if p, there := processes.Lookup(r.process.Pid()); r.ended() || there && p.State == 'T' {
			return nil
		}
		return errors.Join(errors.New("it runs"), r.process.Signal(syscall.SIGSTOP))
	})
}

// goOn has the process of a server continue, if there is one.
func (r *replica) goOn(t testing.TB) {
	t.Helper()
	if !r.ended() {
		r.process.Thaw(t)
	}
}

// await starts a server that does not run, until it serves: without a database it ends.
func (s *site) await(t *testing.T, r *replica) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, fmt.Sprintf("server %d serves", r.host), func() error {
		if r.process == nil || r.ended() {
			s.launch(t, r)
		}
		if !r.process.Serves(t) {
			return fmt.Errorf("it ended with %d: %s", r.process.Code(), strings.Join(r.process.Lines(), "\n"))
		}
		return nil
	})
}

// faults are those that the servers can have.
func (s *site) faults(t *testing.T) (out []fault) {
	for _, r := range s.servers {
		me := fmt.Sprintf("server %d", r.host)
		kill := func(testing.TB) {
			r.killed = true
			r.process.Kill()
		}
		launch := func(testing.TB) { s.launch(t, r) }
		out = append(out,
			fault{"a server is killed", []string{me}, steps{kill}, steps{launch}},
			fault{"a server is stopped", []string{me}, steps{r.stop}, steps{r.goOn}},
			fault{"a server is cut off", []string{me, wires}, steps{s.engine.separate(r.host)}, steps{s.engine.join}},
		)
	}
	return out
}

// strike has a few faults come and go, and ends when all are healed.
func (s *site) strike(t *testing.T, st *storm, steps int) {
	t.Helper()
	servers, databases := s.faults(t), s.engine.faults
	var active []fault
	taken := map[string]bool{}
	heal := func(n int) {
		f := active[n]
		active = append(active[:n:n], active[n+1:]...)
		for _, what := range f.takes {
			taken[what] = false
		}
		f.heal.take(t)
		s.log(t, "healed: %s %v", f.name, f.takes)
		s.notice(t)
	}
	for range steps {
		all := servers
		if s.dice.IntN(3) > 0 {
			all = databases
		}
		f := all[s.dice.IntN(len(all))]
		if !slices.ContainsFunc(f.takes, func(what string) bool { return taken[what] }) {
			f.strike.take(t)
			s.log(t, "strikes: %s %v", f.name, f.takes)
			s.struck[f.name]++
			active = append(active, f)
			for _, what := range f.takes {
				taken[what] = true
			}
		}
		wait(t, time.Duration(200+s.dice.IntN(4000))*time.Millisecond)
		s.notice(t)
		for len(active) > 0 && s.dice.IntN(2) == 0 {
			heal(s.dice.IntN(len(active)))
		}
		if len(active) == 0 {
			s.settle(t, st)
		}
	}
	for len(active) > 0 {
		heal(s.dice.IntN(len(active)))
	}
	s.settle(t, st)
}

// settle waits until all is well, and makes a change through each server. All changes take the one
// version of the ledger, so that a write whose outcome is not known has happened then, or cannot
// any more.
func (s *site) settle(t *testing.T, st *storm) {
	t.Helper()
	s.engine.whole(t)
	for _, r := range s.servers {
		s.await(t, r)
		r.client.ready(t)
	}
	for _, r := range s.servers {
		testproc.Eventually(t, testproc.Patience, "a change is made", func() error {
			return r.client.change(t.Context(), rand.Uint64())
		})
	}
	st.settle(st.now())
	s.log(t, "all is well")
}

// wait is for some time of a storm.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// notice fails the test when a server that served has ended by itself.
func (s *site) notice(t *testing.T) {
	t.Helper()
	for _, r := range s.servers {
		if r.ended() && !r.killed && r.process.Count(0, "Serving the Placement API.") > 0 {
			t.Fatalf("server %d ended with %d by itself", r.host, r.process.Code())
		}
	}
}

// storm has clients of all servers make requests while faults strike, and returns when nothing of
// it is under way any more.
func (s *site) storm(t *testing.T, from map[int]*forest, steps int) *storm {
	t.Helper()
	st := newStorm()
	end := s.roamAll(t, st, from)
	s.strike(t, st, steps)
	end()
	s.settle(t, st)
	return st
}

// clientsPerTree is how many clients a storm has for each tree.
const clientsPerTree = 3

// roamAll starts the clients of trees; end ends them.
func (s *site) roamAll(t *testing.T, st *storm, from map[int]*forest) (end func()) {
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for i, tree := range slices.Sorted(maps.Keys(from)) {
		for n := range clientsPerTree {
			g := &guess{from[tree], newDice(s.dice.Uint64(), 0), tree}
			clients.Go(func() { s.roam(t, st, stop, 1+i*clientsPerTree+n, g) })
		}
	}
	return sync.OnceFunc(func() {
		close(stop)
		clients.Wait()
	})
}

// roam is one client, which sends each request to any of the servers, but for a while not to one
// that gave no answer.
func (s *site) roam(t *testing.T, st *storm, stop <-chan struct{}, number int, g *guess) {
	avoid := make([]time.Time, len(s.servers))
	for {
		n := g.rand.IntN(len(s.servers))
		if time.Now().Before(avoid[n]) {
			n = g.rand.IntN(len(s.servers)) // now and then it is tried
		}
		o, pause := g.next(), time.Duration(0)
		if st.crowded(g.tree) {
			for !o.reads() {
				o = g.next()
			}
			pause = 10 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), s.patience)
		a := st.step(ctx, number, s.servers[n].client, g, o)
		cancel()
		if a.later || a.unknown {
			avoid[n] = time.Now().Add(s.patience)
			pause = time.Duration(20+g.rand.IntN(200)) * time.Millisecond
		}
		select {
		case <-stop:
			return
		case <-t.Context().Done(): // the test has failed
			return
		case <-time.After(pause):
		}
	}
}

// agree reads all trees from all servers, as a part of the history, and returns them.
func (s *site) agree(t *testing.T, st *storm, trees map[int]*forest) map[int]*forest {
	t.Helper()
	out := map[int]*forest{}
	for tree := range trees {
		for _, r := range s.servers {
			read := st.readTree(t, tree, func(o op) (a answer) {
				testproc.Eventually(t, testproc.Patience, "a read", func() error {
					if a = st.do(t.Context(), 0, r.client, o); a.later || a.unknown {
						return fmt.Errorf("%+v", a)
					}
					return nil
				})
				return a
			})
			if had, there := out[tree]; there && !had.equal(read) {
				t.Errorf("server %d has %+v of tree %d, server 0 %+v", r.host, read, tree, had)
			}
			out[tree] = read
		}
	}
	return out
}

// examine checks the database from each host, and returns the digests of what is in it.
func (s *site) examine(t *testing.T) (digests []string) {
	t.Helper()
	for _, r := range s.servers {
		cmd := binaries.Command("compute-agent", "placement", "db", "check", "--state-dir", r.state, "--database", r.at)
		s.engine.enter(t, r.host, cmd, "", "")
		p := testproc.Start(t, "the check of the database", cmd)
		code := p.Exit(t)
		text := strings.Join(p.Lines(), "\n")
		if code != 0 {
			t.Errorf("the check of the database from host %d ended with %d: %s", r.host, code, text)
		}
		_, digest, _ := strings.Cut(text, "digest ")
		digests = append(digests, digest)
	}
	return digests
}

// histories runs storms until the time is over, and checks each.
func (s *site) histories(t *testing.T) {
	t.Helper()
	short := 1
	if dbservers.Long(t) {
		short = 4
	}
	from := plantAll(t, s.servers[0].client, 1, 2, 3, 4)
	counts := map[string]int{}
	for n := range rounds(t, short) {
		st := s.storm(t, from, 4+s.dice.IntN(5))
		next := s.agree(t, st, from)
		st.tally(counts)
		began := time.Now()
		st.linearizable(t, from)
		s.log(t, "round %d: %v, checked in %v", n, counts, time.Since(began))
		for tree := range from {
			next[tree].follows(t, from[tree])
		}
		from = next
	}
	digests := s.examine(t)
	if slices.ContainsFunc(digests, func(d string) bool { return d == "" || d != digests[0] }) {
		t.Errorf("the digests of the database, from each host, are %q", digests)
	}
	t.Logf("faults: %v", s.struck)
	t.Logf("answers: %v", counts)
}
