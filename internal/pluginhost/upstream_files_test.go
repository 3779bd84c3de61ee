// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func killedPlugin(h upstreamHost) {
	client, _ := h.start(h.config())
	h.say("address", client.ReattachConfig().Addr)
	pid, err := strconv.Atoi(client.ID())
	h.fail(err)
	h.fail(syscall.Kill(pid, syscall.SIGKILL))
	client.Kill()
	h.say("killed", true)
}

func socketLeft(_ *testing.T, r *run) (bool, string) {
	r.start().await("killed")
	info, err := os.Lstat(r.await("address"))
	return err == nil && info.Mode().Type() == os.ModeSocket, fmt.Sprintf("%s: %v", r.await("address"), err)
}

func socketsAreRemoved(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(plainSpec(t, mark))
	_, n := r.await(0, "the start", is(Healthy))
	for range 2 {
		testproc.Check(t, syscall.Kill(p.Status().PID, syscall.SIGKILL))
		_, n = r.await(n, "the end", is(Backoff))
		_, n = r.await(n, "the restart", is(Healthy))
	}
	if dirs, _ := filepath.Glob(filepath.Join(r.runtime, socketDirName, "*")); len(dirs) != 1 {
		t.Errorf("want the directory of the one process that runs, got %v", dirs)
	}
	testproc.Check(t, p.Stop(context.Background()))
	if dirs, _ := filepath.Glob(filepath.Join(r.runtime, socketDirName, "*")); len(dirs) != 0 {
		t.Errorf("after the stop: %v", dirs)
	}
}

func removedSocket(h upstreamHost) {
	client, _ := h.start(h.config())
	protocol, err := client.Client()
	h.fail(err)
	address := client.ReattachConfig().Addr
	h.say("address", address)
	h.fail(os.Remove(address.String()))
	h.say("ping", protocol.Ping())
	_, err = net.Dial(address.Network(), address.String())
	h.say("dial", err)
}

func removalUnnoticed(_ *testing.T, r *run) (bool, string) {
	r.start()
	ping, dial, address := r.await("ping"), r.await("dial"), r.await("address")
	there := ping == fmt.Sprint(nil) && strings.Contains(dial, "no such file") && filepath.Dir(address) == r.dir
	return there, fmt.Sprintf(
		"the socket is %s, below the directory for temporary files; without it Ping says %s, a connection %s", address,
		ping, dial)
}

func removalIsNoticed(t *testing.T) {
	r, mark := newMarkedRig(t)
	p := r.mustStart(chaosOrders(t, mark, "", map[string]string{"update": "tidy-socket"}))
	_, n := r.await(0, "the start", is(Healthy))
	sockets, err := filepath.Glob(filepath.Join(r.runtime, socketDirName, "*", "*"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("want the socket below the runtime directory, got %v, %v", sockets, err)
	}
	testproc.Try(r.update(p, nil)).Or(t)
	down, n := r.await(n, "the removal to be noticed", is(Backoff))
	testproc.Contains(t, down.LastError, sockets[0]+" was removed", "reason: %q")
	r.await(n, "the recovery", is(Healthy))
	if _, err := p.AvailableNodes(context.Background()); err != nil {
		t.Error(err)
	}
}

// longDir makes a directory in which no socket can be.
func longDir(t *testing.T, below string) string {
	t.Helper()
	dir := filepath.Join(below, strings.Repeat("d", maxSocketPath))
	testproc.Check(t, os.Mkdir(dir, 0o700))
	return dir
}

func longSocketPath(h upstreamHost) {
	_, err := goplugin.NewClient(h.config()).Start()
	h.say("start", err)
}

func wrongReason(t *testing.T, r *run) (bool, string) {
	dir := longDir(t, r.dir)
	r.cmd.Env = append(r.cmd.Env, "TMPDIR="+dir)
	start := r.start().await("start")
	there := strings.Contains(start, "not compiled for this architecture") && !strings.Contains(start, dir) &&
		!strings.Contains(start, "bind")
	return there, "the start: " + textutil.Clip(start, 300)
}

func longPathIsReported(t *testing.T) {
	dir := longDir(t, t.TempDir())
	_, err := New(Options{RuntimeDir: dir, Logger: zerolog.Nop()})
	if !errors.Is(err, ErrRuntimeDir) {
		t.Fatalf("want ErrRuntimeDir, got %v", err)
	}
	for _, want := range []string{dir, "too long", strconv.Itoa(maxSocketPath)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}

	// What else goes wrong at a start comes with the plugin's own words.
	r, mark := newMarkedRig(t)
	_, err = r.start(chaosOrders(t, mark, "exit", nil))
	var start *StartError
	if !errors.As(err, &start) || !strings.Contains(strings.Join(start.Output, "\n"), "cannot find a library") {
		t.Errorf("a plugin that says why it ends: %v", err)
	}
}

// reattachToUnrelated has a socket and a process number that have nothing to do with each other, as
// after a reboot.
func reattachToUnrelated(h upstreamHost) {
	socket, err := net.Listen("unix", filepath.Join(os.TempDir(), "s"))
	h.fail(err)
	go func() {
		for conn, err := socket.Accept(); err == nil; conn, err = socket.Accept() {
			_ = conn.Close()
		}
	}()
	unrelated := exec.Command("sleep", "300")
	h.fail(unrelated.Start())
	ended := make(chan string, 1)
	go func() { _ = unrelated.Wait(); ended <- unrelated.ProcessState.String() }()
	cfg := h.config()
	cfg.Cmd, cfg.Reattach = nil,
		&goplugin.ReattachConfig{Protocol: goplugin.ProtocolGRPC, Addr: socket.Addr(), Pid: unrelated.Process.Pid}
	client := goplugin.NewClient(cfg)
	_, err = client.Start()
	h.fail(err)
	client.Kill()
	select {
	case how := <-ended:
		h.say("unrelated", how)
	default:
		h.say("unrelated", "lives")
	}
}

func unrelatedKilled(_ *testing.T, r *run) (bool, string) {
	unrelated := r.start().await("unrelated")
	return unrelated == "signal: killed", "the unrelated process: " + unrelated
}

// unrelatedAreLeftAlone: a plugin that this host did not start listens where a former agent may
// have left it, and a plugin of this host gives out that address as its own.
func unrelatedAreLeftAlone(t *testing.T) {
	r, mark := newMarkedRig(t)
	plain := testproc.Try(plainPlugin()).Or(t)
	other := testproc.SocketDir(t)
	left := filepath.Join(other, socketDirName, "plugin-dir1")
	testproc.Check(t, os.MkdirAll(left, 0o700))
	unrelated := exec.Command(plain)
	unrelated.Env = []string{protocol.CookieKey + "=" + protocol.CookieValue, goplugin.EnvUnixSocketDir + "=" + left,
		"PLUGIN_PROTOCOL_VERSIONS=1"}
	out := testproc.Try(unrelated.StdoutPipe()).Or(t)
	testproc.Check(t, unrelated.Start())
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = unrelated.Process.Kill()
		<-ended
	})
	handshake, err := bufio.NewReader(out).ReadString('\n')
	go func() { _ = unrelated.Wait(); close(ended) }()
	testproc.Check(t, err)
	lives := func(after string) {
		t.Helper()
		select {
		case <-ended:
			t.Fatalf("%s the unrelated process has ended: %s", after, unrelated.ProcessState)
		default:
		}
	}

	spec := chaosOrders(t, mark, "handshake="+strings.TrimSpace(handshake), nil)
	spec.Restart.FailureLimit = 1
	testproc.Try(r.start(spec)).ErrorIs(t, driverclient.ErrUnavailable, "a plugin with another's address: %v")
	lives("after a plugin gave its address as its own")

	h := testproc.Try(New(Options{RuntimeDir: other, Logger: zerolog.Nop()})).Or(t)
	testproc.Try(os.Lstat(left)).ErrorIs(t, os.ErrNotExist, "the socket of a former agent is still there: %v")
	if _, err := h.Plugin(
		Spec{Name: "x", Path: plain, Env: map[string]string{goplugin.EnvUnixSocketDir: left}}); err == nil {
		t.Error("a configuration may say where a plugin's socket is")
	}
	p := testproc.Try(h.Plugin(plainSpec(t, mark))).Or(t)
	testproc.Check(t, p.Start(context.Background()))
	if p.Status().PID == unrelated.Process.Pid {
		t.Error("the unrelated process is our plugin now")
	}
	testproc.NoError(t, h.Close())
	lives("after an agent came and went")
}

// swap is an executable that is good until it is checked.
type swap struct{ path, good, evil, ran string }

func newSwap(dir, plain string) (s swap, err error) {
	s = swap{path: filepath.Join(dir, "driver"), evil: filepath.Join(dir, "evil"), ran: filepath.Join(dir, "ran")}
	if err := copyFile(plain, s.path); err != nil {
		return s, err
	}
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256(raw)
	s.good = hex.EncodeToString(sum[:])
	return s, testproc.WriteExecutable(s.evil, []byte("#!/bin/sh\n>"+s.ran+"\n"))
}

func (s swap) do() error { return os.Rename(s.evil, s.path) }

func (s swap) evilRan() bool {
	_, err := os.Stat(s.ran)
	return err == nil
}

// swappingHash swaps the file at the very moment when its digest is known.
type swappingHash struct {
	hash.Hash
	swap func() error
	err  *error
}

func (s swappingHash) Sum(b []byte) []byte {
	*s.err = s.swap()
	return s.Hash.Sum(b)
}

func swappedExecutable(h upstreamHost) {
	s, err := newSwap(os.TempDir(), os.Getenv("AGENT_BIN"))
	h.fail(err)
	sum, err := hex.DecodeString(s.good)
	h.fail(err)
	var swapErr error
	cfg := h.config()
	cfg.Cmd = exec.Command(s.path)
	cfg.SecureConfig = &goplugin.SecureConfig{Checksum: sum, Hash: swappingHash{sha256.New(), s.do, &swapErr}}
	_, err = goplugin.NewClient(cfg).Start()
	h.fail(swapErr)
	h.say("start", err)
	h.say("ran", s.evilRan())

	// The hash is not reset either, so that the second check of the same file fails.
	twice := &goplugin.SecureConfig{Checksum: sum, Hash: sha256.New()}
	first, err := twice.Check(os.Getenv("AGENT_BIN"))
	h.fail(err)
	second, err := twice.Check(os.Getenv("AGENT_BIN"))
	h.fail(err)
	h.say("checks", fmt.Sprint(first, " ", second))
}

func swappedOneRan(_ *testing.T, r *run) (bool, string) {
	r.start()
	ran, checks := r.await("ran"), r.await("checks")
	return ran == "true" && checks == "true false",
		fmt.Sprintf("the swapped executable ran: %s (%s); two checks of one file: %s",
			ran, textutil.Clip(r.await("start"), 60), checks)
}

func checkedOneRuns(t *testing.T) {
	plain := testproc.Try(plainPlugin()).Or(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		testproc.Check(t, os.Chmod(d, 0o755))
	}
	s := testproc.Try(newSwap(dir, plain)).Or(t)
	good := testproc.Try(launch.Identify(s.path)).Or(t)
	runtime := testproc.SocketDir(t)
	states, swapped := make(chan Status, 100), false
	h, err := New(Options{
		RuntimeDir: runtime, Logger: zerolog.Nop(),
		OnTransition: func(st Status) { // in the supervisor, which waits
			if st.State == Verified && !swapped {
				swapped = true
				testproc.NoError(t, s.do())
			}
			select {
			case states <- st:
			default: // there is no reader any more
			}
		},
	})
	testproc.Check(t, err)
	t.Cleanup(func() { _ = h.Close() })
	spec := plainSpec(t, "")
	spec.Path, spec.SHA256 = s.path, s.good
	p := testproc.Try(h.Plugin(spec)).Or(t)
	testproc.Check(t, p.Start(context.Background()))
	pid := p.Status().PID
	var running syscall.Stat_t
	testproc.Check(t, syscall.Stat(fmt.Sprintf("/proc/%d/exe", pid), &running))
	if running.Ino != good.Ino || running.Dev != good.Dev {
		t.Error("what runs is not the file that was checked")
	}

	// The next start looks again, and finds the swapped one out.
	testproc.Check(t, syscall.Kill(pid, syscall.SIGKILL))
	for st := range states {
		if strings.Contains(st.LastError, "the configuration demands "+s.good) {
			break
		}
	}
	testproc.Try(p.AvailableNodes(context.Background())).ErrorIs(t, launch.ErrUntrusted,
		"want ErrUntrusted, got %v")
	if s.evilRan() {
		t.Error("the swapped executable was run")
	}
}
