// SPDX-License-Identifier: Apache-2.0

package driverpython_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fixture is a driver that does on request what it should not, with the same SDK.
func fixture(t *testing.T) string {
	t.Helper()
	need(t)
	return testproc.Try(builtFixture()).Or(t)
}

// builtFixture builds it at the first call.
var builtFixture = sync.OnceValues(func() (string, error) {
	dir := filepath.Dir(builtDriver)
	stage, out := filepath.Join(dir, "stage"), filepath.Join(dir, launch.Prefix+"fixture")
	main, err := os.ReadFile("tests/fixture.py")
	if err != nil {
		return "", err
	}
	if text, err := exec.Command(python, "build.py", "--stage", stage).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build.py: %w: %s", err, text)
	}
	if err := os.WriteFile(filepath.Join(stage, "__main__.py"), main, 0o600); err != nil {
		return "", err
	}
	text, err := exec.Command(python, "-m", "zipapp", stage, "-p", "/usr/bin/python3 -IB", "-o", out).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("zipapp: %w: %s", err, text)
	}
	return out, nil
})

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

// does starts the fixture, whose AvailableNodes does something. change may be nil.
func does(t *testing.T, config string, change func(*pluginhost.Spec)) *rig {
	t.Helper()
	path := fixture(t)
	return startSpec(t, func(s *pluginhost.Spec) {
		s.Path, s.Config = path, []byte(config)
		if change != nil {
			change(s)
		}
	})
}

func (r *rig) does(config string) {
	r.t.Helper()
	s := r.spec
	s.Config = []byte(config)
	testproc.Check(r.t, r.Reconfigure(r.ctx(), s))
}

// records are the lines of the agent's log with a message.
func (r *rig) records(message string) []map[string]any {
	var out []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var record map[string]any
		testproc.Check(r.t, json.Unmarshal([]byte(line), &record))
		if record["message"] == message {
			out = append(out, record)
		}
	}
	return out
}

func (r *rig) awaitRecord(message string) map[string]any {
	r.t.Helper()
	r.await("the log line "+message, func() bool { return len(r.records(message)) > 0 })
	return r.records(message)[0]
}

func TestStrayOutputReachesTheLogAndSpoilsNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := does(t, `{"do":"print"}`, nil)
	for _, line := range []string{"stray line before the handshake", "stray bytes before the handshake"} {
		if record := r.awaitRecord(line); record["output"] != "raw" || record["level"] != "warn" {
			t.Errorf("%s: %v", line, record)
		}
	}
	if _, err := r.AvailableNodes(r.ctx()); err != nil {
		t.Error(err)
	}
	r.awaitRecord("stray line in a call") // now, not when the process ends
	lost := r.awaitRecord("An uncaught exception. It is a defect of the driver: report it with this stack.")
	if lost["level"] != "error" || lost["where"] != "thread poller" ||
		!strings.Contains(fmt.Sprint(lost["stack"]), "KeyError") {
		t.Errorf("an exception in a thread of the driver's own: %v", lost)
	}
}

func TestAnExceptionFailsItsCallAlone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for do, kind := range map[string]string{"raise": "RuntimeError", "exit": "SystemExit"} {
		t.Run(do, func(t *testing.T) {
			r := does(t, `{"do":"`+do+`"}`, nil)
			pid := r.Status().PID
			_, err := r.AvailableNodes(r.ctx())
			if err == nil || !strings.Contains(err.Error(), kind+" in AvailableNodes") || len(err.Error()) > 20_000 {
				t.Fatalf("%.300v", err)
			}
			record := r.awaitRecord(
				"The driver raised an exception. This call fails, and the plugin keeps running. It is a defect of " +
					"the driver: report it with this stack.")
			if record["level"] != "error" || record["call"] != "AvailableNodes" ||
				record["error_type"] != kind || record["stack"] == "" {
				t.Errorf("%.1000v", record)
			}
			r.does(`{}`)
			if nodes, err := r.AvailableNodes(r.ctx()); err != nil || len(nodes) != 1 || r.Status().PID != pid {
				t.Error("afterwards:", nodes, err, r.Status().PID, pid)
			}
		})
	}
}

func TestHugeErrorsAreCut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := does(t, `{"do":"huge"}`, nil)
	if _, err := r.AvailableNodes(r.ctx()); !errors.Is(err, plugins.ErrNotReady) || len(err.Error()) > 40_000 {
		t.Errorf("10 million characters: %.300v", err)
	}
	_, _, err := r.update(node(t), nil)
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) || len(failed.Violations) != 501 || len(failed.Reason) > 20_000 ||
		len(failed.Violations[0].Consumer) > 600 {
		t.Errorf("10,000 violations: %.300v", err)
	}
}

func TestASlowCallEndsWithItsDeadlineAndFreesTheTurn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := does(t, `{"do":"wait"}`,
		func(s *pluginhost.Spec) { s.Timeouts.Nodes, s.Restart.Misses = 300*time.Millisecond, 1000 })
	pid := r.Status().PID
	for len(r.records("waiting")) == 0 { // a call may end before a busy machine has begun it
		if _, err := r.AvailableNodes(r.ctx()); !errors.Is(err, driverclient.ErrNoAnswer) {
			t.Fatal("deadline:", err)
		}
	}
	r.awaitRecord("given up") // the driver learns of it
	r.spec.Timeouts.Nodes = patience
	r.does(`{}`)
	if _, err := r.AvailableNodes(r.ctx()); err != nil || r.Status().PID != pid {
		t.Error("the next call:", err)
	}
}

func TestShutdownWaitsForCalls(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	until := filepath.Join(t.TempDir(), "go")
	r := does(t, `{"do":"linger","until":"`+until+`"}`,
		func(s *pluginhost.Spec) { s.Timeouts.Stop = patience })
	answered, stopped := make(chan error, 1), make(chan error, 1)
	ctx := r.ctx()
	go func() { _, err := r.AvailableNodes(ctx); answered <- err }()
	r.awaitRecord("lingering")
	r.awaitRecord("watching")
	go func() { stopped <- r.Stop(ctx) }()
	r.awaitRecord("watched to the end") // it is shutting down
	testproc.Check(t, os.WriteFile(until, nil, 0o600))
	testproc.NoError(t, errors.Join(<-answered, <-stopped))
	if strings.Contains(r.log.String(), "did not shut down when asked") {
		t.Error("it did not shut down when asked")
	}
	if before, _, found := strings.Cut(r.log.String(), `"tidying up"`); !found ||
		!strings.Contains(before, `"lingered"`) {
		t.Error("the driver tidies up when all calls have returned, not before")
	}
}

func TestItEndsOnSIGTERM(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := does(t, `{"do":"child"}`, nil)
	testproc.Try(r.AvailableNodes(r.ctx())).Or(t)
	child := int(r.awaitRecord("child")["child"].(float64))
	first := r.Status().PID
	testproc.Check(t, syscall.Kill(first, syscall.SIGTERM))
	r.awaitRestart(first)
	r.await("the end of what it had started", func() bool { return !alive(child) })
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// TestLimitIsThatOfTheProtocol: 16 MiB in both directions, not gRPC's 4 and not more.
func TestLimitIsThatOfTheProtocol(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := fixture(t)
	for mebibytes, want := range map[int]codes.Code{10: codes.OK, 17: codes.ResourceExhausted} {
		runtime := testproc.SocketDir(t)
		h, err := pluginhost.New(pluginhost.Options{RuntimeDir: runtime, Logger: zerolog.Nop(),
			Environ: []string{"PATH=" + os.Getenv("PATH")}})
		testproc.Check(t, err)
		t.Cleanup(func() { _ = h.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s, err := h.Open(ctx, pluginhost.Spec{Name: "fixture", Path: path,
			Env: map[string]string{"FIXTURE_SCHEMA": fmt.Sprint(mebibytes << 20)}})
		testproc.Check(t, err)
		unlimited := []grpc.CallOption{grpc.MaxCallSendMsgSize(1 << 30), grpc.MaxCallRecvMsgSize(1 << 30)}
		config := append(bytes.Repeat([]byte(" "), mebibytes<<20), "{}"...)
		if _, err := s.Plugin().Configure(ctx, &driverv1.ConfigureRequest{ConfigJson: config},
			unlimited...); status.Code(err) != want {
			t.Errorf("a request of %d MiB: %v", mebibytes, err)
		}
		if _, err := s.Plugin().ConfigSchema(ctx, &driverv1.ConfigSchemaRequest{},
			unlimited...); status.Code(err) != want {
			t.Errorf("an answer of %d MiB: %v", mebibytes, err)
		}
		if _, err := s.Plugin().Info(ctx, &driverv1.InfoRequest{}); err != nil {
			t.Error("afterwards:", err)
		}
		s.Kill()
	}
}

func TestItExplainsItself(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t)
	const cookie = "COMPUTE_DRIVER_COOKIE=d0a5e4c2-6f0e-4c53-9a8e-compute-agent"
	sockets := "PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir()
	for name, tc := range map[string]struct {
		args, env []string
		code      int
		stderr    string
	}{
		"by hand": {nil, nil, 64,
			`virt driver "python" (version 2.0.0), a plugin of compute-agent. It does not run by itself`},
		"--info": {[]string{"--info"}, nil, 0, ""},
		"without AutoMTLS": {nil, []string{cookie, sockets}, 1,
			"PLUGIN_CLIENT_CERT holds no certificate: this plugin serves over mutual TLS only"},
		"no directory of sockets": {nil, []string{cookie}, 1, "PLUGIN_UNIX_SOCKET_DIR is not set"},
		"another protocol": {nil, []string{cookie, "PLUGIN_PROTOCOL_VERSIONS=7"}, 1,
			"the agent speaks version 7 of the driver protocol, this plugin version 1"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, builtDriver, tc.args...)
			var out, errs bytes.Buffer
			cmd.Env, cmd.Stdout, cmd.Stderr = append([]string{"PATH=" + os.Getenv("PATH")}, tc.env...), &out, &errs
			_ = cmd.Run()
			if cmd.ProcessState.ExitCode() != tc.code || !strings.Contains(errs.String(), tc.stderr) {
				t.Errorf("exit code %d, wrote %s%s", cmd.ProcessState.ExitCode(), &out, &errs)
			}
			if tc.code != 0 {
				return
			}
			var info struct {
				Name         string
				Protocols    []int
				Capabilities []string
				Schema       map[string]any `json:"config_schema"`
			}
			if err := json.Unmarshal(out.Bytes(), &info); err != nil || info.Name != "python" ||
				len(info.Capabilities) != 10 || info.Schema["type"] != "object" {
				t.Errorf("%v: %s", err, &out)
			}
		})
	}
}
