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
	"github.com/compute-agent/compute-agent/internal/health"
)

// answer is how an agent behaved at its control socket.
type answer int

const (
	silent  answer = iota // There is a socket, and it hangs or talks nonsense.
	absent                // Nobody is there.
	closed                // The socket is closed to whoever asks.
	answers               // An agent answers.
)

func checkAgent(ctx context.Context, e *Env) []Result {
	socket := e.Config.Agent.ControlSocket()
	how, said, err := e.askAgent(ctx, socket)
	switch how {
	case answers:
		if worst := health.Worst(said.Conditions); worst.Worse(health.Info) {
			return warn("it runs, and says: "+said.Summary, "What is checked here may be well all the same: the agent knows what its drivers and Placement do, and this command does not.",
				"compute-agent status --config "+e.Config.File())
		}
		return fine("it runs and answers on %s", socket)
	case closed:
		return skip("%s is closed to you; ask again as %s or root", socket, e.Agent.Name)
	case absent:
		start := e.command("systemctl start compute-agent")
		if !e.systemd() {
			start = "compute-agent run --config " + e.Config.File()
		}
		return warn("it does not run: nobody listens on "+socket, "This machine's inventory is not kept up to date.", start)
	}
	return bad(fmt.Sprintf("it is there, but does not answer on %s: %v", socket, err), "An agent that hangs reports nothing; systemd's watchdog should have ended it.",
		e.command("systemctl restart compute-agent"))
}

// mostStatus bounds what an agent may say of itself, in bytes.
const mostStatus = 64 << 20

// askAgent asks for the agent's status.
func (e *Env) askAgent(ctx context.Context, socket string) (answer, health.Status, error) {
	var said health.Status
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return e.DialUnix(ctx, e.path(socket)) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", nil)
	if err != nil {
		return silent, said, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return absent, said, err
	case errors.Is(err, os.ErrPermission):
		return closed, said, err
	case err != nil:
		return silent, said, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return silent, said, fmt.Errorf("status %d", resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, mostStatus)).Decode(&said); err != nil {
		return silent, said, fmt.Errorf("its status cannot be read: %w", err)
	}
	return answers, said, nil
}

// checkOneAgent finds the processes that have the state directory's lock open.
// It does not try the lock: for that moment it would keep an agent from starting.
func checkOneAgent(ctx context.Context, e *Env) []Result {
	dir := e.Config.Agent.StateDir
	lock := filepath.Join(dir, statedir.LockFile)
	if real, err := e.real(lock); err == nil {
		lock = real
	}
	holders, hidden, err := e.holders(lock)
	how, _, _ := e.askAgent(ctx, e.Config.Agent.ControlSocket())
	switch {
	case err != nil:
		return skip("the processes cannot be listed: %v", err)
	case len(holders) > 1:
		return bad(fmt.Sprintf("processes %s all use %s", strings.Join(holders, ", "), dir), "Two agents with one identity undo each other's writes.",
			e.command("kill %s", strings.Join(holders[1:], " ")))
	case hidden > 0:
		return skip("%s of another user; ask again as root", plural(hidden, "agent"))
	case len(holders) == 1 && how == absent:
		return bad(fmt.Sprintf("process %s uses %s, but not the control socket %s: it has another configuration", holders[0], dir, e.Config.Agent.ControlSocket()),
			"Another agent cannot start here, and the commands do not find the one that runs.", e.command("kill %s && systemctl restart compute-agent", holders[0]))
	case len(holders) == 0 && how == answers:
		return warn(fmt.Sprintf("the agent that runs does not use %s: the configuration was changed since it started", dir), "What you see here is not what it works with.",
			e.command("systemctl restart compute-agent"))
	case len(holders) == 0:
		return fine("nobody uses %s", dir)
	}
	return fine("only process %s uses %s", holders[0], dir)
}

// programName is what an agent's process is called in /proc/PID/comm.
const programName = "compute-agent"

// holders are the agents' processes that have a file open, and how many agents
// may not be looked at.
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
