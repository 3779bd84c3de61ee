// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"runtime"
)

// spawner starts processes from one operating system thread that lives as long as itself. The kernel sends a process its
// parent-death signal when the thread that started it ends, and Go ends threads as it likes.
type spawner struct {
	jobs chan spawnJob
	stop chan struct{}
	done chan struct{}
}

type spawnJob struct {
	start func() (*os.Process, error)
	reply chan spawned
}

type spawned struct {
	process *os.Process
	err     error
}

var (
	errHostClosed = errors.New("the plugin host is closed")
	errRemoved    = errors.New("it was removed")
)

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan spawnJob), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	runtime.LockOSThread() // never unlocked: the thread ends with this function, and what it started dies
	defer close(s.done)
	for {
		select {
		case job := <-s.jobs:
			p, err := job.start()
			job.reply <- spawned{p, err}
		case <-s.stop:
			return
		}
	}
}

// do runs start on the thread.
func (s *spawner) do(start func() (*os.Process, error)) (*os.Process, error) {
	job := spawnJob{start: start, reply: make(chan spawned, 1)}
	select {
	case s.jobs <- job:
		r := <-job.reply
		return r.process, r.err
	case <-s.stop:
		return nil, errHostClosed
	}
}

// close ends the thread, and with it every process that is still running, unless it minds the death of the agent itself, as one of the SDK
// does: such a process must have been killed before.
func (s *spawner) close() {
	close(s.stop)
	<-s.done
}
