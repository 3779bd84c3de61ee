// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Two more parts of the test binary: a host that is made with go-plugin as it is, and an agent with
// ours. Both say what they see, line by line, and are killed in the end, with everything that they
// started: it carries their mark in its environment.
const (
	partUpstream = "host of go-plugin"
	partOurs     = "our host"
	rowKey       = "HOST_TEST_ROW"
	oursKey      = "HOST_TEST_PLUGIN"
	markKey      = "HOST_TEST_MARK"
)

// blocked is how long something is waited for that should return at once, until it counts as
// blocked. go-plugin's own grace for a process is 2 s.
const blocked = 4 * time.Second

// plainPlugin is a driver without the SDK, built once.
var plainPlugin = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, launch.Prefix+"plain")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/plainplugin").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the plain plugin: %w: %s", err, out)
	}
	return path, os.Chmod(path, 0o755)
})

// run is one of those processes.
type run struct {
	t      *testing.T
	cmd    *exec.Cmd
	mark   string
	dir    string // its TMPDIR
	stderr syncBuffer

	mu       sync.Mutex
	said     map[string]string
	changed  chan struct{} // closed and replaced when said changes
	received chan struct{} // closed when it says no more, and all of it is in said
	ended    chan struct{} // closed when the process has ended
}

func newRun(t *testing.T, part, row string, env ...string) *run {
	t.Helper()
	plain := testproc.Try(plainPlugin()).Or(t)
	dir := testproc.Try(os.MkdirTemp("/tmp", "st")).Or(t)
	r := &run{t: t, mark: rand.Text(), dir: dir, said: map[string]string{}, changed: make(chan struct{}),
		received: make(chan struct{}), ended: make(chan struct{})}
	r.cmd = exec.Command(chaosPath)
	r.cmd.Env = append(os.Environ(), partKey+"="+part,
		rowKey+"="+row, markKey+"="+r.mark, "TMPDIR="+dir, "AGENT_BIN="+plain)
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.Stderr = &r.stderr
	r.cmd.WaitDelay = time.Second // plugins may hold its standard error
	return r
}

// start runs the process until the end of the test at most.
func (r *run) start() *run {
	r.t.Helper()
	outR, outW, err := os.Pipe()
	testproc.Check(r.t, err)
	r.cmd.Stdout = outW
	err = r.cmd.Start()
	_ = outW.Close()
	if err != nil {
		_ = outR.Close()
		r.t.Fatal(err)
	}
	go func() { defer close(r.received); r.listen(outR) }()
	go func() { _ = r.cmd.Wait(); close(r.ended) }()
	r.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		poll(func() bool {
			left := marked(r.mark)
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return len(left) == 0
		})
		_ = outR.SetReadDeadline(time.Now())
		<-r.received
		_ = outR.Close()
		_ = os.RemoveAll(r.dir)
	})
	return r
}

func (r *run) listen(out *os.File) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if text, err := strconv.Unquote(value); err == nil {
			r.mu.Lock()
			r.said[key] = text
			close(r.changed)
			r.changed = make(chan struct{})
			r.mu.Unlock()
		}
	}
}

// await returns what the process says about something.
func (r *run) await(key string) string {
	r.t.Helper()
	limit := time.After(patience)
	received := r.received
	for {
		r.mu.Lock()
		value, ok := r.said[key]
		failed, bad := r.said["failed"]
		changed := r.changed
		r.mu.Unlock()
		switch {
		case ok:
			return value
		case bad:
			r.t.Fatalf("it failed before it said %q: %s\n%s", key, failed, r.stderr.String())
		case received == nil:
			r.t.Fatalf("it ended before it said %q\n%s", key, r.stderr.String())
		}
		select {
		case <-changed:
		case <-received:
			received = nil // after one more look
		case <-limit:
			r.t.Fatalf("waited for %q\n%s", key, r.stderr.String())
		}
	}
}

// pid is the process id that it says.
func (r *run) pid(key string) int {
	r.t.Helper()
	return testproc.Try(strconv.Atoi(r.await(key))).Or(r.t)
}

// kill ends the process as kill -9 does, and returns when it is reaped.
func (r *run) kill() {
	_ = r.cmd.Process.Kill()
	<-r.ended
}

// marked are the processes that carry a mark, and have not ended.
func marked(mark string) []int {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	var out []int
	for _, path := range environs {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(raw), "\x00"+markKey+"="+mark+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}

// awaitNone fails the test if processes of a mark stay.
func awaitNone(t *testing.T, mark string) {
	t.Helper()
	poll(func() bool { return len(marked(mark)) == 0 }) // they were sent SIGKILL; they need a moment to die
	for _, pid := range marked(mark) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		t.Errorf("process %d is left behind: %q", pid, line)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// upstreamHost is what happens in the host of go-plugin.
type upstreamHost struct{}

func upstreamMain(row string) {
	for _, f := range faults {
		if f.name == row {
			f.host(upstreamHost{})
			forever() // there may be more to look at
		}
	}
	upstreamHost{}.fail(errors.New("no such row: " + row))
}

func (upstreamHost) say(key string, value any) { fmt.Printf("%s=%q\n", key, fmt.Sprint(value)) }

func (h upstreamHost) fail(err error) {
	if err != nil {
		h.say("failed", err)
		os.Exit(1)
	}
}

// config is the simplest one that go-plugin takes.
func (upstreamHost) config(args ...string) *goplugin.ClientConfig {
	return &goplugin.ClientConfig{
		HandshakeConfig:  protocol.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{protocol.ProtocolVersion: {}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Cmd:              exec.Command(os.Getenv("AGENT_BIN"), args...),
	}
}

// start starts the plain plugin, and says its process id.
func (h upstreamHost) start(cfg *goplugin.ClientConfig) (*goplugin.Client, driverv1.DriverClient) {
	client := goplugin.NewClient(cfg)
	dialled, err := client.Client()
	h.fail(err)
	h.say("pid", client.ID())
	return client, driverv1.NewDriverClient(dialled.(*goplugin.GRPCClient).Conn)
}

// do does something and says whether it returned.
func (h upstreamHost) do(what string, do func()) {
	done := make(chan struct{})
	go func() { do(); close(done) }()
	select {
	case <-done:
		h.say(what, "returned")
	case <-time.After(blocked):
		h.say(what, "blocked")
	}
}

// oursMain is an agent with our host and one plugin, which waits to be killed.
func oursMain() {
	h := upstreamHost{}
	var spec Spec
	var plugin struct{ Path, Args, Config string }
	h.fail(json.Unmarshal([]byte(os.Getenv(oursKey)), &plugin))
	spec.Name, spec.Path, spec.Config = "plugin", plugin.Path, []byte(plugin.Config)
	spec.Args = strings.Fields(plugin.Args)
	spec.HostInfo = plugins.HostInfo{Name: "cn1"}
	spec.Env = map[string]string{markKey: os.Getenv(markKey)}
	host, err := New(Options{RuntimeDir: os.Getenv("TMPDIR"), Logger: zerolog.New(os.Stderr)})
	h.fail(err)
	p, err := host.Plugin(spec)
	h.fail(err)
	h.fail(p.Start(context.Background()))
	_, err = p.AvailableNodes(context.Background())
	h.fail(err)
	h.say("pid", p.Status().PID)
	forever()
}

// newOurs starts an agent with our host and a plugin, with the whole environment of these tests.
func newOurs(t *testing.T, path, args string, env ...string) *run {
	t.Helper()
	raw := testproc.Try(json.Marshal(map[string]string{"Path": path, "Args": args, "Config": "{}"})).Or(t)
	return newRun(t, partOurs, "", append(env, oursKey+"="+string(raw))...)
}
