// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

const (
	// askTimeout limits a request. One that has to wait for a pass also has the pass's deadline.
	askTimeout = time.Minute
	// auditTimeout limits an audit: it costs a request for each provider and each consumer, and a
	// question to the drivers for each write.
	auditTimeout = 10 * time.Minute
	// startTries limits the retries while an agent holds the state directory and does not answer
	// yet.
	startTries = 20
)

// Host is the host of an agent, which may run. Its methods return [control.ErrRefused] for what is
// refused to protect data.
type Host struct {
	Config *config.Config
	// Logger returns the logger for what is done without an agent.
	Logger func() zerolog.Logger
}

func (h Host) passTimeout() time.Duration { return askTimeout + h.Config.Tracker.PassDeadline }

// request sends a request to the running agent. If none runs, offline does what it would.
func (h Host) request(ctx context.Context, timeout time.Duration,
	online func(context.Context, *control.Client) error, offline func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := online(ctx, control.NewClient(h.Config.Agent.ControlSocket()))
	if errors.Is(err, control.ErrNotRunning) {
		return offline(ctx)
	}
	return err
}

// lockState creates and locks a state directory for a command. Errors: [control.ErrRefused]
// while an agent runs.
func lockState(dir string) (unlock func(), err error) {
	if err := statedir.Make(dir); err != nil {
		return nil, err
	}
	unlock, err = statedir.Lock(dir)
	if errors.Is(err, statedir.ErrInUse) {
		return nil, fmt.Errorf("%w: the agent runs on %s; stop it first (systemctl stop compute-agent)",
			control.ErrRefused, dir)
	}
	return unlock, err
}

// requestWith is request for what has an argument and an answer. offline is called with a locked
// state directory.
func requestWith[R, T any](ctx context.Context, h Host, timeout time.Duration, r R,
	online func(*control.Client, context.Context, R) (T, error),
	offline func(context.Context, *config.Config, zerolog.Logger, R) (T, error),
) (T, error) {
	var out T
	err := h.request(ctx, timeout,
		func(ctx context.Context, c *control.Client) (err error) { out, err = online(c, ctx, r); return err },
		func(ctx context.Context) (err error) {
			log := h.Logger()
			unlock, err := lockState(h.Config.Agent.StateDir)
			if err != nil {
				return err
			}
			defer unlock()
			out, err = offline(ctx, h.Config, log, r)
			return err
		})
	return out, err
}

// Nodes lists the nodes; without an agent, those that are recorded, without their states.
func (h Host) Nodes(ctx context.Context) (nodes statedir.Nodes, err error) {
	err = h.request(ctx, askTimeout,
		func(ctx context.Context, c *control.Client) (err error) { nodes, err = c.Nodes(ctx); return err },
		func(context.Context) (err error) { nodes, err = agent.NodesOffline(h.Config); return err })
	return nodes, err
}

// GiveNode assigns a node to another driver.
func (h Host) GiveNode(ctx context.Context, r control.GiveRequest) (control.Assignment, error) {
	return requestWith(ctx, h, h.passTimeout(), r, (*control.Client).GiveNode, agent.GiveNodeOffline)
}

// RemoveNode deletes a node that no longer exists from Placement.
func (h Host) RemoveNode(ctx context.Context, r control.RemoveRequest) (control.Removal, error) {
	return requestWith(ctx, h, h.passTimeout(), r, (*control.Client).RemoveNode, agent.RemoveNodeOffline)
}

// Audit compares the allocations on the host with its guests.
func (h Host) Audit(ctx context.Context, r audit.Request) (audit.Report, error) {
	return requestWith(ctx, h, auditTimeout, r, (*control.Client).Audit, agent.AuditOffline)
}

// HealAllocations creates missing allocations of guests.
func (h Host) HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error) {
	return requestWith(ctx, h, auditTimeout, r, (*control.Client).HealAllocations, agent.HealAllocationsOffline)
}

// UndoReshape undoes the reshape of a number.
func (h Host) UndoReshape(ctx context.Context, id int64) error {
	return h.request(ctx, h.passTimeout(),
		func(ctx context.Context, c *control.Client) error { return c.UndoReshape(ctx, id) },
		func(ctx context.Context) error { return agent.UndoReshape(ctx, h.Config, h.Logger(), id) })
}

// Disable disables nodes, or enables them; without an agent, the next start of one updates
// Placement.
func (h Host) Disable(ctx context.Context, r control.DisableRequest, enable bool) (control.Disabling, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := control.NewClient(h.Config.Agent.ControlSocket())
	request := client.Disable
	if enable {
		request = client.Enable
	}
	for try := 1; ; try++ {
		out, err := request(ctx, r)
		if !errors.Is(err, control.ErrNotRunning) {
			return out, err
		}
		out, err = disableOffline(h.Config, r, enable)
		if !errors.Is(err, control.ErrRefused) || try == startTries {
			return out, err
		}
		if !wait.For(ctx, 250*time.Millisecond) {
			return out, ctx.Err()
		}
	}
}

// disableOffline records a request to disable nodes, or to enable them, if no agent runs. The next
// start of one updates Placement.
func disableOffline(cfg *config.Config, r control.DisableRequest, enable bool) (control.Disabling, error) {
	out := control.Disabling{Nodes: []control.DisabledNode{}, Offline: true}
	unlock, err := lockState(cfg.Agent.StateDir)
	if err != nil {
		return out, err
	}
	defer unlock()
	s, err := statedir.OpenDisabled(cfg.Agent.StateDir)
	if err != nil {
		return out, err
	}
	if enable {
		out.Left, err = s.Enable(statedir.Operator, r.Node)
		return out, err
	}
	return out, s.Disable(statedir.Reason{Source: statedir.Operator, Node: r.Node, Reason: r.Reason, By: r.By})
}

// Requester names the user who runs this process, as a DisableRequest has it.
func Requester() string {
	uid := os.Getuid()
	name := "uid " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username + " (" + name + ")"
	}
	if real := os.Getenv("SUDO_USER"); real != "" && statedir.CheckReason(real) == nil {
		name += " for " + real
	}
	return name
}

// Plan starts the drivers to plan what the next start would write, a reshape included, and returns
// the JSON of a [control.Plan]. beside is for a host whose agent runs: the drivers get sockets of
// their own.
func (h Host) Plan(ctx context.Context, beside bool) (raw json.RawMessage, err error) {
	if beside {
		dir, scratchErr := scratchDir()
		if scratchErr != nil {
			return nil, scratchErr
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		h.Config.Agent.RuntimeDir = dir
	}
	plan, err := agent.DryRun(ctx, h.Config, h.Logger(), resourcetracker.PlanOptions{Reshape: true})
	if err != nil {
		return nil, err
	}
	return json.Marshal(plan)
}

// OtherFiles describes how configuration files differ from what a running agent has read, "" if
// they do not.
func OtherFiles(files []string, running health.Status) string {
	if !slices.Equal(files, running.ConfigFiles) {
		was := strings.Join(running.ConfigFiles, ", ")
		if was == "" {
			was = "no file"
		}
		return fmt.Sprintf("The running agent has read %s, not %s", was, strings.Join(files, ", "))
	}
	read := running.Started
	if running.Reloaded.After(read) {
		read = running.Reloaded
	}
	for _, file := range files {
		if st, err := os.Stat(file); err == nil && st.ModTime().After(read) {
			return fmt.Sprintf("%s has changed since the running agent read it", file)
		}
	}
	return ""
}
