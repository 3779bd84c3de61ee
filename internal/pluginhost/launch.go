// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	goplugin_runner "github.com/hashicorp/go-plugin/runner"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// launch starts and configures a plugin. It reports the states on the way, and leaves nothing
// behind when it fails.
func (h *Host) launch(ctx context.Context, spec Spec, log zerolog.Logger, reached func(State)) (instance, error) {
	exe, err := h.open(spec)
	if err != nil {
		return nil, err
	}
	defer func() { _ = exe.File.Close() }()
	reached(Verified)
	p, err := h.connect(ctx, spec, exe, log, reached)
	if err != nil {
		return nil, err
	}
	if err := p.requestInfo(ctx); err != nil {
		p.kill()
		return nil, p.startError(err)
	}
	if err := p.Configure(ctx, spec); err != nil {
		p.kill()
		return nil, p.startError(err)
	}
	reached(Configured)
	return p, nil
}

// open opens the executable if it is trusted, and if the sandbox that it needs can be made.
func (h *Host) open(spec Spec) (*launch.Executable, error) {
	if err := h.confinable(spec); err != nil {
		return nil, err
	}
	return openSpec(spec, h.uid)
}

// confinable returns an [*UnconfinedError] if a sandbox is required that cannot be made.
func (h *Host) confinable(spec Spec) error {
	if spec.Sandbox != nil && spec.Sandbox.Required && (h.kernel.Landlock == 0 || !h.kernel.Seccomp) {
		return &UnconfinedError{Driver: spec.Name, Kernel: h.kernel}
	}
	return nil
}

// openSpec is [launch.Open], whose errors name the driver.
func openSpec(spec Spec, uid int) (*launch.Executable, error) {
	exe, err := launch.Open(spec.Path, spec.SHA256, uid)
	if absent := (*launch.NotInstalledError)(nil); errors.As(err, &absent) {
		absent.Driver, absent.Searched = spec.Name, spec.Searched
	}
	if untrusted := (*launch.UntrustedError)(nil); errors.As(err, &untrusted) {
		untrusted.Hint = strings.ReplaceAll(untrusted.Hint, "drivers.NAME", "drivers."+spec.Name)
	}
	return exe, err
}

// verify checks whether open would succeed.
func (h *Host) verify(spec Spec) error {
	exe, err := h.open(spec)
	if err == nil {
		_ = exe.File.Close()
	}
	return err
}

// connect starts the process and connects. Some waits of go-plugin have no deadline; killing the
// process ends them all.
func (h *Host) connect(
	ctx context.Context, spec Spec, exe *launch.Executable, log zerolog.Logger, reached func(State),
) (*process, error) {
	out := newOutput(log)
	p := &process{log: log, runner: newRunner(exe, spec.Args, out)}
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  protocol.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{protocol.ProtocolVersion: {}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		// otherwise it parses log lines, and panics at some
		Logger:              hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		Stderr:              &lineWriter{output: out},
		SyncStdout:          syncWriter{out},
		SyncStderr:          syncWriter{out},
		PluginLogBufferSize: maxLogLine,
		StartTimeout:        spec.Timeouts.Handshake + time.Second, // the host's own timeout comes first
		UnixSocketConfig:    &goplugin.UnixSocketConfig{TempDir: h.sockets},
		GRPCDialOptions:     append(driverclient.DialOptions(spec.Name, h.opts.Observe), h.opts.Dial...),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, socketDir string) (goplugin_runner.Runner, error) {
			p.socketDir = socketDir
			if err := h.confine(p, spec, exe); err != nil {
				return nil, err
			}
			p.runner.setCommand(cmd, environment(h.opts.Environ,
				spec.Env, append(cmd.Env, protocol.LogLevelKey+"="+log.GetLevel().String())...))
			return p.runner, nil
		},
	})
	reached(Starting)
	var late atomic.Bool
	watch := time.AfterFunc(spec.Timeouts.Handshake, func() { late.Store(true); p.runner.kill() })
	unhook := context.AfterFunc(ctx, p.runner.kill)
	err := p.dial(spec)
	watch.Stop()
	unhook()
	if err == nil && ctx.Err() == nil && !late.Load() {
		return p, nil
	}
	p.kill() // as go-plugin does where the handshake fails
	byItself := p.exitedByItself()
	switch incompatible := checkHandshake(p.handshake()); {
	case ctx.Err() != nil:
		err = ctx.Err()
	case incompatible != nil:
		err = incompatible
	case late.Load():
		err = fmt.Errorf("%w: the handshake was not complete within %v",
			driverclient.ErrNoAnswer, spec.Timeouts.Handshake)
	case byItself != nil:
		err = fmt.Errorf("%w before the handshake was complete", byItself)
	}
	return nil, p.startError(err)
}

// confine prepares the sandbox of a process.
func (h *Host) confine(p *process, spec Spec, exe *launch.Executable) error {
	p.sandbox = h.kernel.Describe(spec.Sandbox)
	if spec.Sandbox == nil {
		return nil
	}
	if p.lacks = h.kernel.Lacks(); p.lacks != nil {
		h.warnOnce.Do(func() {
			h.opts.Logger.Warn().Strs("lacks", p.lacks).
				Str("sandbox", h.kernel.String()).Msg("The sandbox of drivers is incomplete on this machine. " +
				"If the kernel has Landlock and seccomp, the agent must also be allowed to call them " +
				"(SystemCallFilter= of the unit).")
		})
	}
	made, err := spec.Sandbox.Confine(h.kernel, exe.File, p.socketDir, spec.HostInfo.StateDir)
	if err != nil {
		return fmt.Errorf("preparing the sandbox: %w", err)
	}
	for _, path := range made.Skipped() {
		p.log.Warn().
			Str("path", path).
			Msg("The sandbox does not open this path to the driver: it leads through a symbolic link that " +
				"others than root can make, or to the agent's secrets. " +
				"Configure the path that it leads to, without links.")
	}
	p.runner.sandbox = made
	return nil
}

// checkHandshake returns why a handshake line is invalid; incompatible versions come first.
func checkHandshake(line string) error {
	parts := strings.Split(line, "|")
	if len(parts) < 5 {
		if line == "" {
			return nil
		}
		return fmt.Errorf("it wrote %q instead of a plugin's handshake: is this a driver for compute-agent?",
			textutil.Clip(line, 200))
	}
	if core, err := strconv.Atoi(parts[0]); err != nil || core != goplugin.CoreProtocolVersion {
		return fmt.Errorf("%w: go-plugin core protocol %q, need %d",
			ErrIncompatible, textutil.Clip(parts[0], 20), goplugin.CoreProtocolVersion)
	}
	if version, err := strconv.Atoi(parts[1]); err != nil || version != protocol.ProtocolVersion {
		return fmt.Errorf("%w: it speaks version %q of the driver protocol, this agent version %d",
			ErrIncompatible, textutil.Clip(parts[1], 20), protocol.ProtocolVersion)
	}
	if parts[4] != string(goplugin.ProtocolGRPC) {
		return fmt.Errorf("%w: it speaks %q, need %s",
			ErrIncompatible, textutil.Clip(parts[4], 20), goplugin.ProtocolGRPC)
	}
	return nil
}
