// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The steps that the newer program has and this one does not: the first one adds what an older
// program can live with, the second one takes something away.
const (
	expandStep      = "CREATE TABLE rolled (n INTEGER NOT NULL PRIMARY KEY);\n"
	expandProviders = "ALTER TABLE resource_providers ADD COLUMN rolled INTEGER;\n"
	contractStep    = "-- contract\nDROP TABLE rolled;\n"
)

// newerProgram is this program with two more steps of each schema: that of Placement, the API
// database and the database of a cell.
func newerProgram(t *testing.T) string {
	t.Helper()
	return testproc.Try(builtNewer()).Or(t)
}

var builtNewer = sync.OnceValues(func() (program string, err error) {
	dir, err := os.MkdirTemp(binaries.Dir(), "newer")
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for in, schema := range map[string]struct {
		is    *sqldb.Schema
		steps []string
	}{
		"placement/store": {store.DatabaseOptions().Schema, []string{expandStep + expandProviders, contractStep}},
		"cells/apidb":     {apidb.DatabaseOptions().Schema, []string{expandStep, contractStep}},
		"cells/celldb":    {celldb.DatabaseOptions().Schema, []string{expandStep, contractStep}},
	} {
		for i, step := range schema.steps {
			number := fmt.Sprintf("%04d.sql", schema.is.Newest()+i+1)
			file := filepath.Join(dir, filepath.Base(in)+number)
			if err := os.WriteFile(file, []byte(step), 0o600); err != nil {
				return "", err
			}
			overlay.Replace[filepath.Join(root, in, "sql", number)] = file
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "compute-agent")
	build := exec.Command("go", "build", "-overlay", file,
		"-o", program, "./cmd/compute-agent")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the newer program: %w\n%s", err, out)
	}
	return program, nil
})

// fleetServer is one of the servers behind the load balancer.
type fleetServer struct {
	*process
	program, address string
	ready            atomic.Bool
	answered         atomic.Int64
}

// balancer sends each request to the next server that says that it is ready. It does not repeat
// any.
type balancer struct {
	servers   []*fleetServer
	transport *http.Transport
	next      atomic.Int64
}

// ServeHTTP implements [http.Handler].
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var s *fleetServer
	for range b.servers {
		if next := b.servers[int(b.next.Add(1))%len(b.servers)]; next.ready.Load() {
			s = next
			break
		}
	}
	if s == nil {
		http.Error(w, "no server is ready", http.StatusServiceUnavailable)
		return
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", s.address, ""
	resp, err := b.transport.RoundTrip(out)
	if errors.Is(err, syscall.ECONNREFUSED) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	s.answered.Add(1)
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the client notices
}

// probe asks a server whether it is ready, as often as it can. One that answers late holds up the
// probes of no other: they must notice within the shutdown_delay that it stops.
func (s *fleetServer) probe(ctx context.Context) {
	client := &http.Client{Timeout: time.Second}
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/readyz", nil)
		if err != nil {
			panic(err) // the address is the test's own
		}
		resp, err := client.Do(req)
		s.ready.Store(err == nil && resp.StatusCode == http.StatusOK)
		if err == nil {
			_ = resp.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// writer is a client that makes hosts, claims on them and reads back what it wrote. It repeats what
// is answered with 503, and nothing else.
type writer struct {
	number  int
	handler http.Handler
	rounds  atomic.Int64
	retried atomic.Int64
}

func (w *writer) ask(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	for {
		req, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(string(text)))
		if err != nil {
			return err
		}
		req.Header.Set("X-Auth-Token", "admin")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("OpenStack-API-Version", "placement 1.37")
		answer := newAnswer()
		w.handler.ServeHTTP(answer, req)
		switch {
		case answer.status == http.StatusServiceUnavailable && ctx.Err() == nil:
			w.retried.Add(1)
			time.Sleep(10 * time.Millisecond) // as Retry-After would have it
			continue
		case answer.status >= 300:
			return fmt.Errorf("%s %s: %d %s", method, path, answer.status, answer.body.String())
		case into != nil:
			return json.Unmarshal([]byte(answer.body.String()), into)
		}
		return nil
	}
}

// balanced is what a client gets from the balancer.
type balanced struct {
	header http.Header
	status int
	body   strings.Builder
}

func newAnswer() *balanced { return &balanced{header: http.Header{}, status: http.StatusOK} }

func (bl *balanced) Header() http.Header         { return bl.header }
func (bl *balanced) WriteHeader(status int)      { bl.status = status }
func (bl *balanced) Write(b []byte) (int, error) { return bl.body.Write(b) }

// round makes a host with a claim on it, and compares what other requests show.
func (w *writer) round(ctx context.Context) error {
	type object = map[string]any
	n := w.rounds.Load()
	host := fmt.Sprintf("a0000000-0000-4000-8000-%04x%08x", w.number, n)
	consumer := fmt.Sprintf("c0000000-0000-4000-8000-%04x%08x", w.number, n)
	if err := w.ask(ctx, http.MethodPost, "/resource_providers", object{"uuid": host, "name": host}, nil); err != nil {
		return err
	}
	inventory := object{"resource_provider_generation": 0, "inventories": object{"VCPU": object{"total": 8 + w.number}}}
	if err := w.ask(ctx, http.MethodPut, "/resource_providers/"+host+"/inventories", inventory, nil); err != nil {
		return err
	}
	claim := object{"consumer_generation": nil, "project_id": "p", "user_id": "u",
		"allocations": object{host: object{"resources": object{"VCPU": 1 + w.number}}}}
	if err := w.ask(ctx, http.MethodPut, "/allocations/"+consumer, claim, nil); err != nil {
		return err
	}
	var used struct{ Usages map[string]int }
	if err := w.ask(ctx, http.MethodGet, "/resource_providers/"+host+"/usages", nil, &used); err != nil {
		return err
	}
	if used.Usages["VCPU"] != 1+w.number {
		return fmt.Errorf("host %s: %v is used, want %d", host, used.Usages, 1+w.number)
	}
	w.rounds.Add(1)
	return nil
}

// load is four writers that go on until it is finished, on the servers behind a balancer.
type load struct {
	t       *testing.T
	b       *balancer
	writers []*writer
	ended   chan error // of each writer
	stop    chan struct{}
}

// load begins. It ends with the test, if not before.
func (b *balancer) load(t *testing.T) *load {
	t.Helper()
	l := &load{t: t, b: b, writers: make([]*writer, 4), ended: make(chan error, 4), stop: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	t.Cleanup(func() { cancel(); working.Wait() })
	for _, s := range b.servers {
		working.Go(func() { s.probe(ctx) })
	}
	for i := range l.writers {
		w := &writer{number: i, handler: b}
		l.writers[i] = w
		working.Go(func() {
			for {
				select {
				case <-l.stop:
					l.ended <- nil
					return
				default:
				}
				if err := w.round(ctx); err != nil {
					l.ended <- fmt.Errorf("client %d, round %d: %w", w.number, w.rounds.Load(), err)
					return
				}
			}
		})
	}
	return l
}

// progress waits until each client has made more rounds, and each server has answered.
func (l *load) progress(when string) {
	l.t.Helper()
	var rounds, answers []int64
	for _, w := range l.writers {
		rounds = append(rounds, w.rounds.Load())
	}
	for _, s := range l.b.servers {
		answers = append(answers, s.answered.Load())
	}
	testproc.Eventually(l.t, 2*patience, when+": clients go on, on all servers", func() error {
		for i, w := range l.writers {
			if w.rounds.Load() < rounds[i]+5 {
				select {
				case err := <-l.ended:
					l.t.Fatalf("%s: %v", when, err)
				default:
				}
				return fmt.Errorf("client %d made %d rounds, from %d", i, w.rounds.Load(), rounds[i])
			}
		}
		for i, s := range l.b.servers {
			if s.answered.Load() == answers[i] {
				return fmt.Errorf("server %d answered nothing", i)
			}
		}
		return nil
	})
}

// finish ends the load: no request failed that a client which repeats what is answered with 503
// notices.
func (l *load) finish() {
	l.t.Helper()
	close(l.stop)
	var rounds, retried int64
	for _, w := range l.writers {
		testproc.NoError(l.t, <-l.ended)
		rounds, retried = rounds+w.rounds.Load(), retried+w.retried.Load()
	}
	l.t.Logf("%d rounds, %d requests repeated after 503", rounds, retried)
}

// TestDatabasesRollingUpgrade: three servers on one database, behind a load balancer, are replaced
// by newer ones under load, one after the other. No request fails that a client which repeats what
// is answered with 503 would notice; old and new servers show what the others wrote. What older
// servers could not live with is refused while one of them lives, with its name, then done while
// the newer ones serve; and then no older one starts.
func TestDatabasesRollingUpgrade(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	engines := serverEngines(t, dbservers.Long(t))
	newer := newerProgram(t)
	check(t, binaries.Build())
	older := filepath.Join(binaries.Dir(), "compute-agent")
	for engine, fresh := range engines {
		t.Run(engine, func(t *testing.T) { roll(t, older, newer, dbservers.WithPasswordFile(t, fresh(t))) })
	}
}

func roll(t *testing.T, older, newer, database string) {
	config := filepath.Join(t.TempDir(), "placement.toml")
	check(t, os.WriteFile(config, []byte("[server]\nshutdown_delay = \"3s\"\nmax_connections_per_address = 10000\n"),
		0o600))
	args := func(words ...string) []string { return append(words, "--config", config, "--database", database) }
	serve := func(program, address string) *process {
		t.Helper()
		run := filepath.Join(testproc.SocketDir(t), "run")
		cmd := binaries.Command(
			"compute-agent", args("placement", "serve", "--listen", address, "--runtime-dir", run)...)
		cmd.Path = program
		p := &process{Process: testproc.Start(t, "placement", cmd, `"message":"request"`), t: t}
		p.KilledBy(t)
		return p
	}
	// manage runs a command on the database.
	manage := func(program string, words ...string) (string, int) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args(words...)...).CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		} else if err != nil {
			return string(out), exit.ExitCode()
		}
		return string(out), 0
	}

	b := &balancer{transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer b.transport.CloseIdleConnections()
	for range 3 {
		s := &fleetServer{program: older, address: testproc.FreeAddress(t)}
		s.process = serve(older, s.address)
		s.await(0, "Serving the Placement API.")
		b.servers = append(b.servers, s)
	}
	l := b.load(t)
	progress := l.progress
	progress("before")
	for i, s := range b.servers {
		mark := s.Mark()
		s.signal(syscall.SIGTERM)
		s.await(mark, "Stopping: /readyz answers 503 now")
		testproc.Equal(t, s.exit(), 0, "server %d ended with %d", i)
		s.process, s.program = serve(newer, s.address), newer
		s.await(0, "Serving the Placement API.")
		progress(fmt.Sprintf("server %d is new", i))
		if out, code := manage(newer, "placement", "db", "version"); code != 0 ||
			!strings.Contains(out, "migration 4\n") || !strings.Contains(out, "this program  migration 5\n") {
			t.Errorf("the schema: %d\n%s", code, out)
		}
		out, code := manage(newer, "placement", "db", "upgrade")
		t.Logf("placement db upgrade, %d: %s", code, out)
		if i == len(b.servers)-1 {
			if code != 0 || !strings.Contains(out, "upgraded from migration 4 to migration 5") {
				t.Errorf("the end of the upgrade: %d\n%s", code, out)
			}
			continue
		}
		named := 0
		for _, other := range b.servers {
			pid := fmt.Sprintf("process %d", other.Pid())
			if strings.Contains(out, pid) != (other.program == older) {
				t.Errorf("server %s of %s: is it named?\n%s", pid, other.program, out)
			}
			named += strings.Count(out, pid)
		}
		if code != 3 || named != len(b.servers)-1-i {
			t.Errorf("the end of the upgrade beside older servers: %d\n%s", code, out)
		}
		if i == 0 { // an older one may still be started, such as to go back
			back := serve(older, testproc.FreeAddress(t))
			back.await(0, "Serving the Placement API.")
			back.stop()
		}
	}
	progress("the old schema has ended")
	out, code := manage(older, "placement", "serve", "--listen", "127.0.0.1:0")
	t.Logf("an older server, %d: %s", code, out)
	if code != 3 || !strings.Contains(out, "a newer program was here") {
		t.Errorf("an older server: %d\n%s", code, out)
	}
	l.finish()
	for _, s := range b.servers {
		s.stop()
	}
}
