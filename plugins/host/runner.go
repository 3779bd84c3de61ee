// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// drainTime is how long we wait for the end of a dead process' output. Only something that left the process' group can keep
// its pipes open longer, and we do not wait for that; what is in them then is still read.
const drainTime = 250 * time.Millisecond

// runner is one plugin process: the part of go-plugin that starts, reads and ends it, done so that nothing that the
// process does can block or crash us.
//
//   - It is executed from an open descriptor, in a process group of its own, with /dev/null as standard input, and is sent
//     SIGKILL when the agent dies. A plugin of the SDK has that changed, and then kills its whole group by itself.
//   - When it exits, for whatever reason, its whole group is killed before it is reaped: the group's number cannot have
//     been given to anybody else yet.
//   - go-plugin sees one line of its standard output and nothing of its standard error.
type runner struct {
	exe   *executable
	args  []string // with argument 0
	env   []string // set before Start
	spawn *spawner
	out   *output
	log   zerolog.Logger

	handshakeR *io.PipeReader // what go-plugin reads as standard output
	handshakeW *io.PipeWriter
	quietR     *io.PipeReader // what it reads as standard error: nothing, until the end
	quietW     *io.PipeWriter

	mu      sync.Mutex
	process *os.Process
	reaped  bool
	killed  bool
	exit    error         // why it ended; valid after done
	done    chan struct{} // closed when the process is reaped and its output read
	pipes   []*pipe       // its standard output and standard error; valid after Start
}

func newRunner(exe *executable, args []string, spawn *spawner, log zerolog.Logger) *runner {
	r := &runner{exe: exe, args: args, spawn: spawn, log: log, out: newOutput(log), done: make(chan struct{})}
	r.handshakeR, r.handshakeW = io.Pipe()
	r.quietR, r.quietW = io.Pipe()
	return r
}

// Start executes the process. ctx is not used: exec does not block.
func (r *runner) Start(context.Context) error {
	var files closers
	defer files.close()
	devnull, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("opening %s: %w", os.DevNull, err)
	}
	files.add(devnull)
	var pipes [2]*pipe
	var ends [2]*os.File // the process'
	for i := range pipes {
		if pipes[i], ends[i], err = openPipe(); err != nil {
			closePipes(pipes[:i])
			return err
		}
		files.add(ends[i])
	}

	attr := &os.ProcAttr{
		Dir: "/", Env: r.env,
		Files: []*os.File{devnull, ends[0], ends[1], r.exe.file}, // the last one becomes descriptor 3
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	p, err := r.start(attr)
	if err != nil {
		closePipes(pipes[:])
		return execError(r.exe.path, err)
	}
	r.out.setPID(p.Pid)
	r.pipes = pipes[:]
	go r.attend(p)
	return nil
}

// execError is why a file was not executed, with a hint where the file is the reason and not a
// shortage of the machine.
func execError(path string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.ELIBBAD):
		hint = fmt.Sprintf("the file is no program for this machine (%s); install the driver's package for this architecture", runtime.GOARCH)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		hint = "the interpreter or the dynamic loader that the file names is not installed"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		hint = "the user of the agent must be allowed to execute the file, and its file system must not be mounted noexec"
	default:
		return fmt.Errorf("executing %s: %w", path, err)
	}
	return fmt.Errorf("executing %s: %w: %w: %s", path, ErrNotExecutable, err, hint)
}

func (r *runner) start(attr *os.ProcAttr) (*os.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return nil, errors.New("it was given up before it had started")
	}
	p, err := r.spawn.do(func() (*os.Process, error) { return os.StartProcess("/proc/self/fd/3", r.args, attr) })
	r.process = p
	return p, err
}

// attend reads the output of the process until it ends, and reaps it.
func (r *runner) attend(p *os.Process) {
	var pumps sync.WaitGroup
	stdout, stderr := r.pipes[0], r.pipes[1]
	pumps.Go(func() { defer stdout.end(); r.out.readHandshake(stdout, r.handshakeW) })
	pumps.Go(func() { defer stderr.end(); r.out.readLog(stderr) })

	waitForExit(p.Pid)
	r.mu.Lock()
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	state, err := p.Wait()
	r.reaped = true
	r.mu.Unlock()

	deadline := time.Now().Add(drainTime)
	stdout.stopAt(deadline)
	stderr.stopAt(deadline)
	pumps.Wait()
	closePipes(r.pipes)
	switch {
	case err != nil:
		r.exit = fmt.Errorf("waiting for the process: %w", err)
	default:
		r.exit = fmt.Errorf("the process ended (%s)", state)
	}
	_, _ = r.handshakeW.Close(), r.quietW.Close()
	close(r.done)
}

// waitForExit returns when the process has ended, and leaves it unreaped.
func waitForExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill ends the process and everything in its group. It does not wait; see done.
func (r *runner) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.process != nil && !r.reaped {
		_ = syscall.Kill(-r.process.Pid, syscall.SIGKILL)
		_ = syscall.Kill(r.process.Pid, syscall.SIGKILL) // it may have left its group itself
	}
}

// Kill is kill, for go-plugin.
func (r *runner) Kill(context.Context) error {
	r.kill()
	return nil
}

// Wait waits for the end of the process.
func (r *runner) Wait(context.Context) error {
	<-r.done
	return nil // how it ended is told by us, in better words
}

// wasKilled reports whether somebody here has ordered its end.
func (r *runner) wasKilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// started reports whether there ever was a process.
func (r *runner) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process != nil
}

// pid is the process' id, 0 before its start.
func (r *runner) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.Pid
}

// ID is the process' id for go-plugin; "" before its start.
func (r *runner) ID() string {
	if pid := r.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Name is for go-plugin's messages.
func (r *runner) Name() string { return r.exe.path }

// Stdout is the handshake, and nothing after it.
func (r *runner) Stdout() io.ReadCloser { return r.handshakeR }

// Stderr is empty and ends with the process.
func (r *runner) Stderr() io.ReadCloser { return r.quietR }

// Diagnose adds nothing: start errors carry the end of the output themselves.
func (r *runner) Diagnose(context.Context) string { return "" }

// PluginToHost translates nothing: plugin and agent see the same file system.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin is the same in the other direction.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// closers closes files that only the child needs.
type closers []io.Closer

func (c *closers) add(f io.Closer) { *c = append(*c, f) }

func (c *closers) close() {
	for _, f := range *c {
		_ = f.Close()
	}
}
