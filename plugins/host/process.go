// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// instance is one running process as the supervisor sees it.
type instance interface {
	Identity() identity
	// Configure may be called again.
	Configure(ctx context.Context, spec Spec) error
	// Health returns nil, an *unhealthyError, or why there was no answer. Nil and an
	// *unhealthyError come with all warnings that hold.
	Health(ctx context.Context) ([]plugins.Warning, error)
	AvailableNodes(ctx context.Context) ([]plugins.Node, error)
	UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations) (answer, error)
	// The optional abilities: plugins.ErrUnsupported without them.
	ShapeVersion() (int, error)
	ReshapeStep(ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations) (answer, error)
	Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error)
	NodeDeleted(ctx context.Context, node plugins.Node) (bool, error)
	// Watch calls changed until ctx ends or the stream breaks.
	Watch(ctx context.Context, changed func(node string)) error
	// Instances: plugins.ErrUnsupported without the ability, ErrBadRequest for what cannot be
	// asked.
	plugins.InstanceManager
	plugins.InstanceWatcher
	// Done is closed when the process has ended; Exit then says how.
	Done() <-chan struct{}
	Exit() error
	// Stop asks the process to end, then makes it. Kill does not ask. Nothing of the process is
	// left when they return. Abort kills it without waiting, also while Stop is waiting. idle is
	// closed when the answers of all calls have arrived.
	Stop(grace time.Duration, idle <-chan struct{})
	Kill()
	Abort()
}

// answer is what came of UpdateProviderTree or ReshapeStep.
type answer struct {
	tree         *providertree.Tree
	allocations  providertree.Allocations
	renames      plugins.ClassRenames
	capabilities map[string]bool // nil: the plugin does not tell
}

// identity is what is known of a process.
type identity struct {
	PID          int
	Name         string
	Version      string
	SDK          string
	SHA256       string
	File         fileID
	Capabilities []string
}

// process is an instance: a real one.
type process struct {
	name      string
	timeouts  atomic.Pointer[Timeouts]
	shape     atomic.Int32 // version of the driver's shape, 0: none
	log       zerolog.Logger
	client    *goplugin.Client
	runner    *runner
	socketDir string
	socket    string // "" if it has none in the file system

	info      *driverv1.InfoResponse
	plugin    driverv1.PluginClient
	driver    driverv1.DriverClient
	instances driverv1.InstancesClient

	ending sync.Once
}

var _ instance = (*process)(nil)

// dial has go-plugin start the process and make the connection.
func (p *process) dial() error {
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
		return fmt.Errorf("go-plugin made a connection of another kind: %T", dialled)
	}
	conn := connected.Conn
	p.plugin, p.driver, p.instances = driverv1.NewPluginClient(conn), driverv1.NewDriverClient(conn), driverv1.NewInstancesClient(conn)
	if addr.Network() == "unix" {
		p.socket = addr.String()
	}
	return nil
}

// Identity is who the process is.
func (p *process) Identity() identity {
	return identity{
		PID: p.runner.pid(), Name: p.info.GetName(), Version: words(p.info.GetVersion(), 100), SDK: words(p.info.GetSdk(), 100),
		SHA256: p.runner.exe.digest, File: p.runner.exe.id, Capabilities: p.info.GetCapabilities(),
	}
}

// Done is closed when the process has ended.
func (p *process) Done() <-chan struct{} { return p.runner.done }

// Exit says how the process ended, with the end of its output.
func (p *process) Exit() error {
	<-p.runner.done
	if tail := p.crashOutput(); tail != "" {
		return fmt.Errorf("%w; %s", p.runner.exit, tail)
	}
	return p.runner.exit
}

// crashOutput is the line that says why a Go program crashed, if that is how it ended.
func (p *process) crashOutput() string {
	for _, line := range p.runner.output.tail() {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return ""
}

func (p *process) handshake() string { return p.runner.output.firstLine() }

// exitedByItself returns how the process ended if it did so before anybody killed it.
func (p *process) exitedByItself() error {
	if p.runner.pid() == 0 {
		return nil
	}
	select {
	case <-p.runner.done:
		return p.runner.exit
	case <-time.After(50 * time.Millisecond): // its pipe may be closed a moment before it is reaped
		return nil
	}
}

func (p *process) startError(err error) error {
	return &StartError{Path: p.runner.exe.path, Cause: err, Output: p.runner.output.tail()}
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

// Stop asks the driver to finish what it is doing and to tidy up, for as long as grace; then
// go-plugin ends the connection, on which the process exits; what is still there soon after is
// killed.
func (p *process) Stop(grace time.Duration, idle <-chan struct{}) {
	p.ending.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_, err := p.plugin.Shutdown(ctx, &driverv1.ShutdownRequest{GraceMs: max(1, (grace - grace/10).Milliseconds())})
		if err != nil && !p.runner.wasKilled() { // else that was why
			p.log.Warn().Err(err).Stringer("grace", grace).Msg("The plugin did not shut down when asked. It is ended anyway.")
		}
		select { // the plugin is done with them, but a large answer may still be on its way
		case <-idle:
		case <-ctx.Done():
		case <-p.runner.done:
		}
		p.disconnect()
	})
}

// disconnect has go-plugin end the connection, on which a plugin exits by itself. It reports
// whether the process had to be killed.
func (p *process) disconnect() (killed bool) {
	const exitTime = 2 * time.Second
	watch := time.AfterFunc(exitTime, p.runner.kill)
	p.client.Kill()
	watch.Stop()
	killed = p.runner.wasKilled()
	p.cleanUp()
	return killed
}

// cleanUp ends the connection and returns when the process, its goroutines here and its sockets are
// gone.
func (p *process) cleanUp() {
	p.client.Kill()
	if p.runner.pid() != 0 {
		p.runner.kill()
		<-p.runner.done
	}
	_ = os.RemoveAll(p.socketDir) // go-plugin leaves it behind when the process was not executed
}

// checkSocket reports a socket that was removed: the connection works, but could not be made again.
func (p *process) checkSocket() error {
	if p.socket == "" {
		return nil
	}
	if _, err := os.Lstat(p.socket); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("its socket %s was removed", p.socket)
	}
	return nil
}
