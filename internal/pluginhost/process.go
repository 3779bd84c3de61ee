// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// instance is one running process, as the supervisor uses it.
type instance interface {
	Identity() identity
	// Configure may be called again.
	Configure(ctx context.Context, spec Spec) error
	// Health returns nil, an UnhealthyError, or why there was no response. Nil and an
	// UnhealthyError come with all current warnings.
	Health(ctx context.Context) ([]plugins.Warning, error)
	AvailableNodes(ctx context.Context) ([]plugins.Node, error)
	UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string,
		allocations providertree.Allocations) (driverclient.Answer, error)
	// The optional capabilities: plugins.ErrUnsupported without them.
	LayoutVersion() (int, error)
	ReshapeStep(ctx context.Context, tree *providertree.Tree, node string, from int,
		allocations providertree.Allocations) (driverclient.Answer, error)
	Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error)
	NodeDeleted(ctx context.Context, node plugins.Node) (bool, error)
	// Watch calls changed until ctx ends or the stream breaks.
	Watch(ctx context.Context, changed func(node string)) error
	// Instances: plugins.ErrUnsupported without the capability, driverclient.ErrBadRequest for an
	// invalid request.
	plugins.InstanceManager
	plugins.InstanceWatcher
	plugins.InstanceMover
	plugins.ConsoleLogger
	plugins.SpawnChecker
	plugins.InstanceRestorer
	plugins.ConsoleOpener
	// Done is closed when the process has ended; Exit then returns how.
	Done() <-chan struct{}
	Exit() error
	// Stop asks the process to end, and then kills it. Kill does not ask. The process is gone when
	// they return. Abort kills it without waiting, also while Stop waits. idle is closed when all
	// calls have been answered.
	Stop(grace time.Duration, idle <-chan struct{})
	Kill()
	Abort()
}

// identity describes a process.
type identity struct {
	PID          int
	Name         string
	Version      string
	SDK          string
	SHA256       string
	Sandbox      string
	SandboxLacks []string
	File         launch.ID
	Capabilities []string
}

// process implements instance with a real process.
type process struct {
	*driverclient.Client // nil before it is connected

	log       zerolog.Logger
	client    *goplugin.Client
	runner    *runner
	socketDir string
	sandbox   string // what it is, for people
	lacks     []string
	conn      *grpc.ClientConn
	info      driverclient.Info

	ending sync.Once
}

var _ instance = (*process)(nil)

// dial lets go-plugin start the process and connect.
func (p *process) dial(spec Spec) error {
	addr, err := p.client.Start()
	if err != nil {
		return err
	}
	dialled, err := p.client.Client()
	if err != nil {
		return err
	}
	connected, ok := dialled.(*goplugin.GRPCClient)
	if !ok {
		return fmt.Errorf("go-plugin made an unexpected connection: %T", dialled)
	}
	socket := ""
	if addr.Network() == "unix" {
		socket = addr.String()
	}
	p.conn = connected.Conn
	p.Client = driverclient.New(spec.Name, p.conn, socket, spec.Timeouts, p.runner.sandbox != nil)
	return nil
}

// Identity describes the process.
func (p *process) Identity() identity {
	return identity{
		PID: p.runner.pid(), Name: p.info.Name, Version: p.info.Version, SDK: p.info.SDK,
		SHA256: p.runner.exe.Digest, Sandbox: p.sandbox,
		SandboxLacks: p.lacks, File: p.runner.exe.ID, Capabilities: p.info.Capabilities,
	}
}

// requestInfo calls Info.
func (p *process) requestInfo(ctx context.Context) (err error) {
	p.info, err = p.Info(ctx)
	return err
}

// Configure passes the configuration to the driver.
func (p *process) Configure(ctx context.Context, spec Spec) error {
	return p.Client.Configure(ctx, spec.Config, spec.HostInfo, spec.Timeouts)
}

// Done is closed when the process has ended.
func (p *process) Done() <-chan struct{} { return p.runner.done }

// Exit returns how the process ended, with the reason if it crashed.
func (p *process) Exit() error {
	<-p.runner.done
	if tail := p.crashOutput(); tail != "" {
		return fmt.Errorf("%w; %s", p.runner.exit, tail)
	}
	return p.runner.exit
}

// crashOutput returns the line that says why a Go program crashed, or "".
func (p *process) crashOutput() string {
	for _, line := range p.runner.output.tail() {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return ""
}

func (p *process) handshake() string { return p.runner.output.firstLine() }

// exitedByItself returns how a process ended that has been killed, if it had ended before; nil if
// the kill ended it, or there is no process.
func (p *process) exitedByItself() error {
	if p.runner.pid() == 0 {
		return nil
	}
	<-p.runner.done
	if p.runner.signal() == syscall.SIGKILL {
		return nil
	}
	return p.runner.exit
}

// endsWithin waits for the end of a process whose connection broke: most often it is ending, and
// how says why. It returns nil if the process goes on for all that time.
func endsWithin(p interface {
	Done() <-chan struct{}
	Exit() error
}, limit time.Duration,
) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Done():
		return p.Exit()
	case <-timer.C:
		return nil
	}
}

func (p *process) startError(err error) error {
	return &StartError{Path: p.runner.exe.Path, Cause: err, Output: p.runner.output.tail()}
}

// Abort kills the process and does not wait.
func (p *process) Abort() { p.runner.kill() }

// Kill ends the process at once.
func (p *process) Kill() { p.kill() }

func (p *process) kill() {
	p.ending.Do(func() {
		p.runner.kill()
		p.cleanUp()
	})
}

// Stop asks the driver to finish its calls and to clean up within grace. Then go-plugin closes the
// connection, on which the process exits; if it does not, it is killed.
func (p *process) Stop(grace time.Duration, idle <-chan struct{}) {
	p.ending.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err := p.Shutdown(ctx, grace)
		if err != nil && !p.runner.wasKilled() { // otherwise the kill is the reason
			p.log.Warn().Err(err).Stringer("grace", grace).
				Msg("The plugin did not shut down when asked. It is stopped anyway.")
		}
		select { // the plugin has finished them, but a large response may still be in transit
		case <-idle:
		case <-ctx.Done():
		case <-p.runner.done:
		}
		p.disconnect()
	})
}

// disconnect lets go-plugin close the connection, on which a plugin exits. It reports whether the
// process had to be killed.
func (p *process) disconnect() (killed bool) {
	const exitTime = 2 * time.Second
	watch := time.AfterFunc(exitTime, p.runner.kill)
	p.client.Kill()
	watch.Stop()
	killed = p.runner.wasKilled()
	p.cleanUp()
	return killed
}

// cleanUp closes the connection and returns when the process, its goroutines in the agent and its
// sockets are gone.
func (p *process) cleanUp() {
	p.client.Kill()
	if p.runner.pid() != 0 {
		p.runner.kill()
		<-p.runner.done
	}
	_ = os.RemoveAll(p.socketDir) // go-plugin does not remove it if the process was not executed
}

// Usage is the resource usage of a plugin: its process, those of its group, and their descendants.
type Usage struct {
	Processes int `json:"processes"`
	Threads   int `json:"threads"`
	// MemoryBytes is resident memory. Pages that several of the processes share count for each.
	MemoryBytes int64 `json:"memory_bytes"`
	// OpenFiles counts descriptors, without those of processes that the agent must not inspect.
	OpenFiles int `json:"open_files"`
}

// Measure reads what plugins use, by the id of the plugin's process. Processes that have ended are
// left out.
//
// Errors: /proc cannot be listed. Cost: reads a small file for each process of the machine that can
// be seen.
func Measure(pids ...int) (map[int]Usage, error) {
	all, err := processes.All()
	if err != nil {
		return nil, err
	}
	out := map[int]Usage{}
	for _, pid := range pids {
		var u Usage
		for _, p := range processes.Family(all, pid) {
			u.Processes++
			u.Threads += p.Threads
			u.MemoryBytes += p.Memory
			u.OpenFiles += processes.OpenFiles(p.PID)
		}
		if u.Processes > 0 {
			out[pid] = u
		}
	}
	return out, nil
}
