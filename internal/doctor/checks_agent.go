// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// agentState is how an agent responded on its control socket.
type agentState int

const (
	broken  agentState = iota // timed out, or an invalid answer
	absent                    // no process listens
	closed                    // permission denied
	answers                   // a valid answer
)

func checkAgent(ctx context.Context, e *Env) []Result {
	socket := e.Config.Agent.ControlSocket()
	how, status, err := e.askAgent(ctx, socket)
	switch how {
	case answers:
		if worst := health.Worst(status.Conditions); worst.Worse(health.Info) {
			return warn("it runs; its status is "+status.Summary,
				"The agent's conditions include what its drivers and Placement report, which this command "+
					"does not check.", "compute-agent status --config "+e.Config.File())
		}
		return pass("it runs and answers on %s", socket)
	case closed:
		return skip("permission denied on %s; run this command as %s or root", socket, e.Agent.Name)
	case absent:
		start := e.command("systemctl start compute-agent")
		if !e.systemd() {
			start = "compute-agent run --config " + e.Config.File()
		}
		return warn("it does not run: no process listens on "+socket,
			"This machine's inventory is not kept up to date.", start)
	}
	return fail(fmt.Sprintf("it does not answer on %s: %v", socket, err),
		"An agent that hangs reports nothing; systemd's watchdog should have restarted it.",
		e.command("systemctl restart compute-agent"))
}

// maxStatus limits the size of an agent's status in bytes.
const maxStatus = 64 << 20

// askAgent requests the agent's status.
func (e *Env) askAgent(ctx context.Context, socket string) (agentState, health.Status, error) {
	var status health.Status
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return e.DialUnix(ctx, e.path(socket))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", nil)
	if err != nil {
		return broken, status, err
	}
	var resp *http.Response
	if err = files.SetKey(req.Header, e.path(socket)); err == nil {
		resp, err = client.Do(req)
	}
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return absent, status, err
	case errors.Is(err, os.ErrPermission):
		return closed, status, err
	case err != nil:
		return broken, status, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return broken, status, fmt.Errorf("status %d", resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(&status); err != nil {
		return broken, status, fmt.Errorf("decoding its status: %w", err)
	}
	return answers, status, nil
}

// checkOneAgent finds the processes that have the state directory's lock open. It does not try the
// lock, because that could prevent an agent from starting.
func checkOneAgent(ctx context.Context, e *Env) []Result {
	dir := e.Config.Agent.StateDir
	lock := filepath.Join(dir, statedir.LockFile)
	if real, err := e.resolveLinks(lock); err == nil {
		lock = real
	}
	holders, unreadable, err := e.holders(lock)
	how, _, _ := e.askAgent(ctx, e.Config.Agent.ControlSocket())
	switch {
	case err != nil:
		return skip("the processes cannot be listed: %v", err)
	case len(holders) > 1:
		return fail(fmt.Sprintf("processes %s all use %s", strings.Join(holders, ", "), dir),
			"Two agents with one identity undo each other's writes.",
			e.command("kill %s", strings.Join(holders[1:], " ")))
	case unreadable > 0:
		return skip("%s of another user; run this command as root", textutil.Count(unreadable, "agent"))
	case len(holders) == 1 && how == absent:
		return fail(fmt.Sprintf("process %s uses %s, but not the control socket %s: it has a different configuration",
			holders[0], dir, e.Config.Agent.ControlSocket()),
			"No other agent can start here, and the commands do not find the running one.",
			e.command("kill %s && systemctl restart compute-agent", holders[0]))
	case len(holders) == 0 && how == answers:
		return warn(
			fmt.Sprintf("the running agent does not use %s: the configuration has changed since it started", dir),
			"The results here are not about the configuration that it uses.",
			e.command("systemctl restart compute-agent"))
	case len(holders) == 0:
		return pass("no process uses %s", dir)
	}
	return pass("only process %s uses %s", holders[0], dir)
}

// programName is an agent's name in /proc/PID/comm.
const programName = "compute-agent"

// holders returns the agents that have a file open, and the number of agents that cannot be
// inspected.
func (e *Env) holders(path string) (pids []string, hidden int, err error) {
	entries, err := os.ReadDir(e.path("/proc"))
	if err != nil {
		return nil, 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		comm, err := readShort(e.path("/proc/" + entry.Name() + "/comm"))
		if err != nil || strings.TrimSpace(comm) != programName {
			continue
		}
		fds, err := os.ReadDir(e.path("/proc/" + entry.Name() + "/fd"))
		if os.IsPermission(err) {
			hidden++
		}
		holds := slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			target, err := os.Readlink(e.path("/proc/" + entry.Name() + "/fd/" + fd.Name()))
			return err == nil && target == path
		})
		if holds {
			pids = append(pids, entry.Name())
		}
	}
	return pids, hidden, nil
}
