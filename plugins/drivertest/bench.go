// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// bench runs a plugin under test: it starts processes, keeps one that most checks share, and what
// the checks learn once.
type bench struct {
	opts    Options
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

	former   *former // what Options.FormerPath reports, or nil
	baseline *baseline
	reshaped *reshaped
	baseErr  error
}

func newBench(opts Options) (*bench, error) {
	path, err := filepath.Abs(opts.Path)
	if err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("finding the plugin executable: %w", err)
	}
	opts.Path = path
	if opts.FormerPath != "" {
		if opts.FormerPath, err = filepath.Abs(opts.FormerPath); err != nil {
			return nil, fmt.Errorf("finding the former release: %w", err)
		}
	}
	if len(opts.Config) == 0 {
		opts.Config = []byte("{}")
	}
	if len(opts.Former) == 0 {
		opts.Former = nil
	}
	switch {
	case opts.NoSandbox:
		opts.Sandbox = nil
	case opts.Sandbox == nil:
		opts.Sandbox = (*Sandbox)(launch.StandardSandbox(opts.Config, opts.Former))
	}
	b := &bench{opts: opts, limits: driverclient.Timeouts(opts.Limits).WithDefaults(), log: &recorder{copy: opts.Log}}
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

func (b *bench) stateDir() string { return filepath.Join(b.scratch, "state") }

func (b *bench) close() {
	b.endOwn()
	b.discard()
	_ = b.host.Close()
	_ = os.RemoveAll(b.scratch)
}

func (b *bench) announces(capability string) bool {
	return b.info != nil && slices.Contains(protocol.CurrentCapabilities(b.info.GetCapabilities()), capability)
}

// start starts a process for the running check only, which ends with the check.
func (b *bench) start(ctx context.Context) (*proc, error) {
	return b.startWith(ctx, b.host)
}

func (b *bench) startWith(ctx context.Context, h *pluginhost.Host) (*proc, error) {
	s, err := h.Open(ctx, pluginhost.Spec{
		Name: "tested", Path: b.opts.Path, Args: b.opts.Args, Env: b.opts.Env,
		Timeouts: b.limits, Sandbox: (*launch.Sandbox)(b.opts.Sandbox),
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
func (b *bench) configured(ctx context.Context) (*proc, error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.configure(ctx, b.opts.Config, b.stateDir()); err != nil {
		return nil, failf("Configure with the given configuration", "%s", describe(err))
	}
	return p, nil
}

// shared returns a configured process that other checks use too. If it cannot be started,
// start/handshake and config/accepted report it.
func (b *bench) shared(ctx context.Context) (*proc, error) {
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
	if err := p.configure(ctx, b.opts.Config, b.stateDir()); err != nil {
		b.discard()
		return nil, notRun("the plugin rejects its configuration; see config/accepted")
	}
	return p, nil
}

// discard ends the shared process; the next check gets a new one.
func (b *bench) discard() {
	if b.common != nil {
		b.common.Kill()
		b.common = nil
	}
}

// catchUp waits until the log has all that the shared process has written, so that it is recorded
// for the check that ran.
func (b *bench) catchUp(ctx context.Context) {
	if b.common != nil {
		_ = b.common.CatchUp(ctx) // it fails only when ctx ends, and the suite with it
	}
}

func (b *bench) endOwn() {
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
