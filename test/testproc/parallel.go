// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Weights of tests for [Parallel], in quarters of a processor.
const (
	// Light is the weight of a test that mostly waits: for a process, a server or a disk.
	Light = 1
	// Heavy is the weight of a test that keeps a processor busy, or processes that do.
	Heavy = 4
)

// Turn waits for units as [Parallel] does, for a subtest that runs in parallel already, and returns
// what gives them back.
func Turn(weight int) (end func(), err error) { return machine().acquire(weight) }

// Parallel has a test run beside others, those of its package and of other packages: on the whole
// machine, as many tests run at once as their weights fit its processors, four to each. It is
// called first in a test. A test with parallel subtests uses t.Parallel, and its subtests this, or
// [Turn]: what waits for its subtests must not keep from others what they wait for, and these wait
// for tests of their process, of which go test runs few at once. For the same reason a process that
// a test starts does not call it.
func Parallel(t *testing.T, weight int) {
	t.Helper()
	t.Parallel()
	for name := t.Name(); ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			break
		}
		if name = name[:i]; running(name) {
			t.Fatalf("%s has called testproc.Parallel, too: one of the two uses t.Parallel", name)
		}
	}
	release, err := machine().acquire(weight)
	Check(t, err)
	holders.Store(t.Name(), true)
	t.Cleanup(func() {
		holders.Delete(t.Name())
		release()
	})
}

// holders are the names of the tests of this process that have units.
var holders sync.Map

func running(name string) bool {
	_, is := holders.Load(name)
	return is
}

// semaphore is a counting semaphore that all processes of a user on a machine share. Each unit is a
// file, which its holder has locked: what a process holds is free again when it ends, however it
// does.
type semaphore struct {
	dir  string
	size int
}

// waiting has one test of this process at a time wait for those of others, which takes a thread.
var waiting sync.Mutex

func machine() semaphore {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("compute-agent-tests-%d", os.Getuid()))
	return semaphore{dir: dir, size: 4 * runtime.NumCPU()}
}

// acquire waits for units and returns what releases them. One process waits for units at a time,
// and the others wait for that one: a heavy test is not overtaken forever by light ones, and no
// two of them hold what the other one needs.
func (s semaphore) acquire(units int) (release func(), err error) {
	var held []io.Closer
	release = func() {
		for _, unit := range held {
			_ = unit.Close() // this unlocks it
		}
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	waiting.Lock()
	defer waiting.Unlock()
	queue, err := s.lock("queue", unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = queue.Close() }()
	for units = min(max(units, 1), s.size); ; time.Sleep(20 * time.Millisecond) {
		for i := range s.size {
			unit, err := s.lock(fmt.Sprint("unit-", i), unix.LOCK_EX|unix.LOCK_NB)
			switch {
			case errors.Is(err, unix.EWOULDBLOCK): // another test has it, or this one
				continue
			case err != nil:
				release()
				return nil, err
			}
			if held = append(held, unit); len(held) == units {
				return release, nil
			}
		}
	}
}

func (s semaphore) lock(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
	}
}
