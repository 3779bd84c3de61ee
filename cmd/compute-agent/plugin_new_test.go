// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealNewDriverFromEmptyDirectory is the way of a driver's author from an empty directory
// outside of this repository to a tree in Placement, as docs/writing-a-driver.md describes it.
func TestRealNewDriverFromEmptyDirectory(t *testing.T) {
	testproc.Drawn(t, 2)
	t.Parallel()
	repository := testproc.Try(filepath.Abs("../..")).Or(t)
	caches := testproc.Try(exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()).Or(t)
	cache := strings.Split(string(caches), "\n")
	sockets := testproc.SocketDir(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/newdriver",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "starts": starts, "get": get,
		},
		Setup: func(env *testscript.Env) error {
			for key, value := range map[string]string{
				"REPOSITORY": repository, "GOCACHE": cache[0], "GOMODCACHE": cache[1], "GOFLAGS": "-trimpath",
				"GOWORK": "off", "GOPROXY": "off",
				"COMPUTE_AGENT_AGENT_RUNTIME_DIR": sockets,
			} {
				env.Setenv(key, value)
			}
			return turn(env)
		},
	})
}

// starts is the command `starts UNTIL PROGRAM ARGS...`: the program runs until the end of the
// script, which goes on after the first line of its standard output that begins with UNTIL. The
// last word of that line is in $SAID.
func starts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: starts UNTIL PROGRAM ARGS...")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "COMPUTE_AGENT_AGENT_RUNTIME_DIR"} {
		cmd.Env = append(cmd.Env, key+"="+ts.Getenv(key))
	}
	cmd.Env = append(cmd.Env, testproc.ShareUser) // other tests run agents as well
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	rest := make(chan struct{})
	lines := bufio.NewReader(stdout)
	ts.Defer(func() {
		ts.Check(cmd.Process.Signal(os.Interrupt))
		<-rest
		if err := cmd.Wait(); err != nil {
			ts.Fatalf("%s: %v\n%s", args[1], err, &stderr)
		}
	})
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			close(rest)
			ts.Fatalf("%s ended before it said %q", args[1], args[0])
		}
		if said, found := strings.CutPrefix(line, args[0]); found {
			words := strings.Fields(said)
			ts.Setenv("SAID", strings.TrimSuffix(words[0], "."))
			break
		}
	}
	go func() {
		defer close(rest)
		_, _ = io.Copy(io.Discard, lines)
	}()
}

// get is the command `get URL FILE`: what Placement answers to an administrator.
func get(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: get URL FILE")
	}
	req, err := http.NewRequest(http.MethodGet, args[0], nil)
	ts.Check(err)
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", "placement latest")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	ts.Check(err)
	if resp.StatusCode != http.StatusOK {
		ts.Fatalf("GET %s: %s: %s", args[0], resp.Status, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o644))
}
