// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// childEnv makes the test binary a server process that writes as fast as it
// can and says each acknowledged write on its output.
const childEnv = "LEDGER_TEST_WRITER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		name, database, _ := strings.Cut(spec, "|")
		if err := storm(open(plainFatal{}, database), name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// clients is how many clients write at the same time in a storm.
const clients = 8

// storm claims one VCPU of the shared provider with consumer after consumer,
// until it is killed or its input ends.
func storm(l *transactor.Ledger, name string) error {
	var mu sync.Mutex
	var writers sync.WaitGroup
	stop := make(chan struct{})
	errs := make(chan error, clients)
	for client := range clients {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				consumer := fmt.Sprintf("%s-%d-%d", name, client, i)
				var used int64
				_, err := l.Update(ctx, func(tx *ledger.Tx) error {
					if err := tx.ReplaceAllocations(
						[]ledger.ConsumerAllocations{{Consumer: consumer, Project: "q",
							User: "u", CheckGeneration: true,
							Resources: providertree.ProviderResources{"shared": {"VCPU": 1}}}}); err != nil {
						return err
					}
					p, _ := tx.Provider("shared")
					used = tx.Used(p, "VCPU")
					return nil
				})
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				fmt.Println(consumer, used)
				mu.Unlock()
			}
		})
	}
	go func() {
		// The input ends when the parent says so, or is gone.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(stop)
	}()
	writers.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(append(all, l.Close())...)
}

// plainFatal lets helpers of tests run where there is no test.
type plainFatal struct{}

func (plainFatal) Helper()                           {}
func (plainFatal) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (plainFatal) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// server is a child process in a storm.
type server struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	lines chan string
	acked []string
}

func startServer(t *testing.T, name, database string) *server {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+name+"|"+database)
	cmd.Stderr = os.Stderr
	stdin := testproc.Try(cmd.StdinPipe()).Or(t)
	stdout := testproc.Try(cmd.StdoutPipe()).Or(t)
	testproc.Check(t, cmd.Start())
	s := &server{cmd: cmd, stdin: stdin, lines: make(chan string, 1<<16)}
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	return s
}

// await waits until the server acknowledged n more writes.
func (s *server) await(t *testing.T, n int) {
	t.Helper()
	for range n {
		line, ok := <-s.lines
		if !ok {
			t.Fatalf("the server ended after %d writes: %v", len(s.acked), s.cmd.Wait())
		}
		s.acked = append(s.acked, line)
	}
}

// drain collects what else was acknowledged before the server ended. A line
// cut short by a kill counts as never said.
func (s *server) drain() {
	for line := range s.lines {
		s.acked = append(s.acked, line)
	}
}

func prepare(t *testing.T, name string) {
	t.Helper()
	l := open(t, name)
	defer closeLedger(t, l)
	testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.CreateProvider(ledger.NewProvider{UUID: "shared", Name: "shared"}); err != nil {
			return err
		}
		_, err := tx.AddInventory("shared", ledger.Inventory{Class: "VCPU", Total: 1 << 30, MinUnit: 1, MaxUnit: 1,
			StepSize: 1, AllocationRatio: 1})
		return err
	})).Or(t)
}

// checkStorm loads the database and checks that every acknowledged write is there
// and that generation and usage count exactly the claims that are there.
func checkStorm(t *testing.T, name string, acked []string) {
	t.Helper()
	l := open(t, name)
	defer closeLedger(t, l)
	s := l.Current()
	testproc.Try(placementtest.DumpOf(s)).Or(t)
	for _, line := range acked {
		consumer, _, whole := strings.Cut(line, " ")
		if c, ok := s.Consumer(consumer); whole && (!ok || len(c.Allocations) != 1) {
			t.Errorf("the acknowledged write of %s is lost: %+v", consumer, c)
		}
	}
	p, _ := s.Provider("shared")
	claims := int64(len(s.ConsumersOn("shared")))
	if p.Generation != 1+claims || s.Used(p, "VCPU") != claims {
		t.Errorf("%d claims, but generation %d and %d used", claims, p.Generation, s.Used(p, "VCPU"))
	}
}

// TestKill: a server is killed in a storm of writes, again and again, each
// time with a successor on the same file.
func TestKill(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "placement.db")
	prepare(t, path)
	var acked []string
	for round := range 5 {
		s := startServer(t, fmt.Sprint("round", round), path)
		s.await(t, 50+30*round)
		testproc.Check(t, s.cmd.Process.Kill())
		s.drain()
		_ = s.cmd.Wait() // it was killed
		acked = append(acked, s.acked...)
		checkStorm(t, path, acked)
	}
}

// TestTwoProcesses: two servers write to one shared database at the same time. Each
// claim sees all that was acknowledged before it: no two of them ever see the
// same sum.
func TestTwoProcesses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		prepare(t, name)
		servers := []*server{startServer(t, "left", name), startServer(t, "right", name)}
		for _, s := range servers {
			s.await(t, 150)
		}
		var acked []string
		for _, s := range servers {
			testproc.Check(t, s.stdin.Close())
		}
		for _, s := range servers {
			s.drain()
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("a server ended with %v", err)
			}
			acked = append(acked, s.acked...)
		}
		seen := map[string]string{}
		for _, line := range acked {
			consumer, used, _ := strings.Cut(line, " ")
			if before, ok := seen[used]; ok {
				t.Errorf("%s and %s both saw %s used", before, consumer, used)
			}
			seen[used] = consumer
		}
		checkStorm(t, name, acked)
	})
}
