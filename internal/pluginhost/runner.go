// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

// drainTime is how long the output of an ended process is still read. Only a process that left the
// group can hold its pipes open for longer.
const drainTime = time.Second

// runner is go-plugin's runner.Runner for one process. go-plugin reads the output and manages the
// connection; the runner does what go-plugin's own cannot (docs/decisions/0015):
//
//   - The process leads a process group, which is killed as a whole, also when the process ends by
//     itself, and before it is reaped: the number of the group cannot belong to another one yet.
//   - The kernel kills the process when the agent dies. That depends on the thread that started
//     it, so each process keeps a thread.
//   - The read of its output has a deadline once it is dead.
//   - The process enters its sandbox before it executes the plugin.
type runner struct {
	exe            *launch.Executable
	args           []string // with argument 0
	output         *output
	stdout, stderr *pipe
	sandbox        *launch.Confinement // nil for none
	exit           error               // how it ended; valid after done
	done           chan struct{}       // closed when it is reaped and its output was read

	mu     sync.Mutex // held while the process is started, killed or reaped
	cmd    *exec.Cmd  // nil before go-plugin is ready
	killed bool
	reaped chan struct{} // closed when it is reaped; nil before the start
}

func newRunner(exe *launch.Executable, args []string, out *output) *runner {
	return &runner{exe: exe, args: append([]string{exe.Path}, args...), output: out, done: make(chan struct{})}
}

// setCommand takes the command that go-plugin prepared. It executes the descriptor of the file that
// was checked.
func (r *runner) setCommand(cmd *exec.Cmd, env []string) {
	cmd.Path, cmd.Args, cmd.Env, cmd.Dir = "/proc/self/fd/3", r.args, env, "/"
	cmd.Stdin, cmd.ExtraFiles = nil, []*os.File{r.exe.File} // the first one becomes descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cmd = cmd
}

// Start executes the process. ctx is not used: exec does not block.
func (r *runner) Start(context.Context) (err error) {
	if r.stdout, err = openPipe(); err != nil {
		return err
	}
	if r.stderr, err = openPipe(); err != nil {
		r.stdout.close()
		return err
	}
	r.cmd.Stdout, r.cmd.Stderr = r.stdout.w, r.stderr.w
	started := make(chan error)
	go r.run(started)
	if err := <-started; err != nil {
		r.stdout.close()
		r.stderr.close()
		return err
	}
	return nil
}

// run starts the process and waits for its end, on its own thread.
func (r *runner) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := r.start()
	started <- err
	if err != nil {
		return
	}
	awaitExit(r.cmd.Process.Pid)
	r.mu.Lock()
	r.killGroup()
	if err = r.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		r.exit = fmt.Errorf("waiting for the process: %w", err)
	} else {
		r.exit = fmt.Errorf("the process ended (%s)", r.cmd.ProcessState)
	}
	close(r.reaped)
	r.mu.Unlock()
	r.stdout.finish()
	r.stderr.finish()
}

func (r *runner) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return errors.New("it was stopped before its start")
	}
	start := r.cmd.Start
	if r.sandbox != nil {
		start = func() error { return r.sandbox.Start(r.cmd) }
	}
	if err := start(); err != nil {
		return execError(r.exe.Path, err)
	}
	r.reaped = make(chan struct{})
	r.output.setPID(r.cmd.Process.Pid)
	return nil
}

// execError returns why a file was not executed, with a hint if the file is the reason.
func execError(path string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.ELIBBAD):
		hint = fmt.Sprintf(
			"the file is not a program for this machine (%s); install the driver's package for this architecture",
			runtime.GOARCH)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		hint = "the interpreter or the dynamic loader that the file names is not installed"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		hint = "the user of the agent must be allowed to execute the file, and its file system must not be " +
			"mounted noexec"
	default:
		return fmt.Errorf("executing %s: %w", path, err)
	}
	return fmt.Errorf("executing %s: %w: %w: %s", path, ErrNotExecutable, err, hint)
}

// awaitExit returns when the process has ended, and does not reap it.
func awaitExit(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// kill kills the process and its group. It does not wait; see done.
func (r *runner) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	select {
	case <-r.reaped:
	default:
		if r.reaped != nil {
			r.killGroup()
		}
	}
}

// killGroup is called with r.mu held, for a process that is not reaped.
func (r *runner) killGroup() {
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	_ = r.cmd.Process.Kill() // it may have left its group
}

// wasKilled reports whether kill was called.
func (r *runner) wasKilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// signal is the one that ended the process; valid after done.
func (r *runner) signal() syscall.Signal {
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// pid is the process id, 0 before the start.
func (r *runner) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reaped == nil {
		return 0
	}
	return r.cmd.Process.Pid
}

// Kill implements the interface.
func (r *runner) Kill(context.Context) error {
	r.kill()
	return nil
}

// Wait implements the interface: go-plugin calls it once, when it has read all output.
func (r *runner) Wait(context.Context) error {
	<-r.reaped
	r.stdout.close()
	r.stderr.close()
	r.output.flushDropped()
	close(r.done)
	return nil // the supervisor reports how it ended
}

// ID implements the interface; it is "" before the start.
func (r *runner) ID() string {
	if pid := r.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

// Name implements the interface.
func (r *runner) Name() string { return r.exe.Path }

// Stdout implements the interface.
func (r *runner) Stdout() io.ReadCloser {
	return &handshakeReader{pipe: r.stdout, in: bufio.NewReaderSize(r.stdout, maxHandshake), output: r.output}
}

// Stderr implements the interface.
func (r *runner) Stderr() io.ReadCloser { return r.stderr }

// Diagnose implements the interface: a StartError has the last lines of the output.
func (r *runner) Diagnose(context.Context) string { return "" }

// PluginToHost implements the interface: both see the same files.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements the interface.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// catchUp waits until all that the process has written so far is logged. It writes a mark to each
// pipe and waits until it is read. After the end of the process it does not wait.
func (r *runner) catchUp(ctx context.Context) error {
	for _, p := range []*pipe{r.stdout, r.stderr} {
		mark, seen := r.output.expectMark()
		_, _ = p.w.WriteString("\n" + mark + "\n") // fails when the process has ended
		select {
		case <-seen:
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the output of the plugin: %w", context.Cause(ctx))
		}
	}
	return nil
}

// pipe carries the output of a process. The agent keeps its write end open for catchUp until the
// process has ended.
type pipe struct {
	*os.File // the end that is read
	w        *os.File
}

func openPipe() (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	return &pipe{r, w}, nil
}

// finish closes the write end and bounds the time to read the rest.
func (p *pipe) finish() {
	_ = p.SetReadDeadline(time.Now().Add(drainTime))
	_ = p.w.Close()
}

func (p *pipe) close() { _, _ = p.w.Close(), p.Close() }

// handshakeReader is the standard output of a process: its first line is for go-plugin, and all
// others are logged. go-plugin would drop them, and stop reading at a line of 64 KiB.
type handshakeReader struct {
	*pipe
	in     *bufio.Reader
	output *output
	begun  bool
	rest   []byte // of the first line
}

// Read implements io.Reader. It logs all lines after the first one before it returns.
func (h *handshakeReader) Read(p []byte) (int, error) {
	if !h.begun {
		h.begun = true
		line, err := h.in.ReadSlice('\n') // a longer one is truncated, and is not a handshake
		if len(line) == 0 {
			return 0, err
		}
		h.rest = append(bytes.TrimSpace(line), '\n')
		h.output.setHandshake(string(bytes.TrimSpace(line)))
	}
	if n := copy(p, h.rest); n > 0 {
		h.rest = h.rest[n:]
		return n, nil
	}
	lines := &lineWriter{output: h.output}
	_, err := io.Copy(lines, h.in)
	lines.flush()
	if err != nil {
		return 0, err
	}
	return 0, io.EOF
}
