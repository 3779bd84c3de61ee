// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Plugin says which plugin is tested, and with what. The fields are those of drivertest.Options,
// which say what they mean.
type Plugin struct {
	Path         string
	Args         []string
	Env          map[string]string
	Config       json.RawMessage
	FormerPath   string
	Former       json.RawMessage
	Instances    *InstanceTemplate
	Sandbox      *launch.Sandbox
	NoSandbox    bool
	Limits       driverclient.Timeouts
	CheckTimeout time.Duration
	Log          func(line []byte)
}

// Bench runs a plugin under test: it starts processes, keeps one that most checks share, and what
// the checks learn once. One goroutine uses it.
type Bench struct {
	plugin  Plugin
	limits  driverclient.Timeouts
	host    *pluginhost.Host
	scratch string // holds the sockets, and the driver's state directory
	log     *recorder

	info    *driverv1.InfoResponse
	sandbox string // what the processes are started in, for people
	lacks   []string
	common  *proc   // configured, or nil
	own     []*proc // of the check that runs

	instances []*made // of the check that runs

	former   *former // what Plugin.FormerPath reports, or nil
	baseline *baseline
	reshaped *reshaped
	baseErr  error
}

// NewBench returns a bench without a process.
//
// Errors: there is no such file; directories cannot be made.
func NewBench(plugin Plugin) (*Bench, error) {
	path, err := filepath.Abs(plugin.Path)
	if err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	plugin.Path = path
	if plugin.FormerPath != "" {
		if plugin.FormerPath, err = filepath.Abs(plugin.FormerPath); err != nil {
			return nil, fmt.Errorf("finding the former release: %w", err)
		}
	}
	if len(plugin.Config) == 0 {
		plugin.Config = []byte("{}")
	}
	if len(plugin.Former) == 0 {
		plugin.Former = nil
	}
	switch {
	case plugin.NoSandbox:
		plugin.Sandbox = nil
	case plugin.Sandbox == nil:
		plugin.Sandbox = launch.StandardSandbox(plugin.Config, plugin.Former)
	}
	b := &Bench{plugin: plugin, limits: plugin.Limits.WithDefaults(), log: &recorder{copy: plugin.Log}}
	if b.plugin.CheckTimeout <= 0 {
		b.plugin.CheckTimeout = 5 * time.Minute
	}
	if b.scratch, err = os.MkdirTemp("/tmp", "drivertest"); err != nil { // short, because a socket's path is limited
		return nil, fmt.Errorf("making a directory for the plugin's sockets: %w", err)
	}
	if err := os.Mkdir(b.stateDir(), 0o700); err != nil {
		return nil, fmt.Errorf("making a state directory for the plugin: %w", err)
	}
	b.host, err = pluginhost.New(
		pluginhost.Options{RuntimeDir: b.scratch, Logger: zerolog.New(b.log).Level(zerolog.TraceLevel)})
	if err != nil {
		_ = os.RemoveAll(b.scratch)
		return nil, err
	}
	return b, nil
}

func (b *Bench) stateDir() string { return filepath.Join(b.scratch, "state") }

// Close ends the processes.
func (b *Bench) Close() {
	b.endOwn()
	b.discard()
	_ = b.host.Close()
	_ = os.RemoveAll(b.scratch)
}

func (b *Bench) announces(capability string) bool {
	return b.info != nil && slices.Contains(protocol.CurrentCapabilities(b.info.GetCapabilities()), capability)
}

// start starts a process for the running check only, which ends with the check.
func (b *Bench) start(ctx context.Context) (*proc, error) {
	return b.startWith(ctx, b.host)
}

func (b *Bench) startWith(ctx context.Context, h *pluginhost.Host) (*proc, error) {
	s, err := h.Open(ctx, pluginhost.Spec{
		Name: "tested", Path: b.plugin.Path, Args: b.plugin.Args, Env: b.plugin.Env,
		Timeouts: b.limits, Sandbox: b.plugin.Sandbox,
	})
	if err != nil {
		return nil, failf("a start of the plugin, as the agent starts it", "%v", err)
	}
	b.sandbox, b.lacks = s.Sandbox()
	p := &proc{Session: s, limits: b.limits}
	b.own = append(b.own, p)
	return p, nil
}

// configured is start followed by Configure.
func (b *Bench) configured(ctx context.Context) (*proc, error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.configure(ctx, b.plugin.Config, b.stateDir()); err != nil {
		return nil, failf("Configure with the given configuration", "%s", describe(err))
	}
	return p, nil
}

// shared returns a configured process that other checks use too. If it cannot be started,
// start/handshake and config/accepted report it.
func (b *Bench) shared(ctx context.Context) (*proc, error) {
	if b.common != nil {
		select {
		case <-b.common.Done():
			b.discard()
		default:
			return b.common, nil
		}
	}
	p, err := b.start(ctx)
	if err != nil {
		return nil, notRun("the plugin does not start; see start/handshake")
	}
	b.own = slices.DeleteFunc(b.own, func(o *proc) bool { return o == p })
	b.common = p
	info, err := p.info(ctx)
	if err != nil {
		b.discard()
		return nil, notRun("the plugin does not answer Info; see start/info")
	}
	b.info = info
	if err := p.configure(ctx, b.plugin.Config, b.stateDir()); err != nil {
		b.discard()
		return nil, notRun("the plugin rejects its configuration; see config/accepted")
	}
	return p, nil
}

// discard ends the shared process; the next check gets a new one.
func (b *Bench) discard() {
	if b.common != nil {
		b.common.Kill()
		b.common = nil
	}
}

// catchUp waits until the log has all that the shared process has written, so that it is recorded
// for the check that ran.
func (b *Bench) catchUp(ctx context.Context) {
	if b.common != nil {
		_ = b.common.CatchUp(ctx) // it fails only when ctx ends, and the suite with it
	}
}

func (b *Bench) endOwn() {
	for _, p := range b.own {
		p.Kill()
	}
	b.own = nil
}

// alive checks that a process still runs and answers.
func (p *proc) alive(ctx context.Context, after string) error {
	select {
	case <-p.Done():
		return failf(after, "%v", p.Exit())
	default:
	}
	if _, err := p.info(ctx); err != nil {
		return failf(after+", then Info", "%s", describe(err))
	}
	return nil
}
