// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Variables of a process that sends requests on the control socket as a driver: the socket, where
// the answers go, the key that it has stolen, and a process of which it is to be no descendant.
const (
	attacked, reportTo, stolenKey, orphanOf = "ATTACKED_SOCKET", "ATTACK_REPORT", "ATTACK_KEY", "ATTACK_ORPHAN"
)

// init makes this program also what the driver of TestDriversSendNoRequests starts.
func init() {
	if socket := os.Getenv(attacked); socket != "" {
		ancestor, _ := strconv.Atoi(os.Getenv(orphanOf))
		for ancestor > 0 && processes.InFamily(os.Getpid(), ancestor) { // until the processes between have ended
			runtime.Gosched()
		}
		report := attack(socket, os.Getenv(stolenKey))
		file := os.Getenv(reportTo)
		if os.WriteFile(file+".new", []byte(report), 0o600) != nil || os.Rename(file+".new", file) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// attack sends requests with a key, or else with the one beside the socket if it can be read, and
// returns what was answered.
func attack(socket, key string) string {
	var report strings.Builder
	if key == "" {
		content, err := os.ReadFile(files.KeyPath(socket))
		fmt.Fprintf(&report, "read the key: %v\n", err)
		key = string(bytes.TrimSpace(content))
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (
		net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	for _, request := range []struct{ method, path, body string }{
		{http.MethodPost, "disable", `{"reason": "attack"}`},
		{http.MethodPost, "allocations/heal", `{}`},
		{http.MethodPost, "nodes/cn1/remove", ""},
		{http.MethodPost, "nodes/cn1/give?to=other", ""},
		{http.MethodPost, "refresh", ""},
		{http.MethodGet, "configuration", ""},
		{http.MethodGet, "status", ""},
	} {
		req, err := http.NewRequest(request.method, "http://agent/v1/"+request.path, strings.NewReader(request.body))
		if err == nil {
			if key != "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			var resp *http.Response
			if resp, err = client.Do(req); err == nil {
				var answer []byte
				answer, err = io.ReadAll(resp.Body)
				fmt.Fprintf(&report, "%s %s: %d %s\n", request.method, request.path,
					resp.StatusCode, bytes.TrimSpace(answer))
				_ = resp.Body.Close()
			}
		}
		if err != nil {
			fmt.Fprintf(&report, "%s %s: %v\n", request.method, request.path, err)
		}
	}
	return report.String()
}

// TestDriversSendNoRequests: a driver that connects to the control socket is refused everything: at
// its start, from a process that left its group and whose parent has ended, and from a child that
// has the key. It cannot read the key.
func TestDriversSendNoRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	real, reports := filepath.Join(h.dir, "compute-driver-real"), filepath.Join(h.dir, "reports")
	check(t, os.Rename(h.driver, real))
	check(t, os.Mkdir(reports, 0o700))
	fifo := filepath.Join(reports, "key")
	check(t, syscall.Mkfifo(fifo, 0o600))
	self := testproc.Try(os.Executable()).Or(t)
	socket := filepath.Join(h.dir, "run", "agent.sock")
	check(t, testproc.WriteExecutable(h.driver, fmt.Appendf(nil, `#!/bin/sh
export %[1]s=%[4]s
%[2]s=%[5]s/starting %[7]s </dev/null >/dev/null 2>&1
(%[9]s=$$ %[2]s=%[5]s/orphan setsid %[7]s </dev/null >/dev/null 2>&1 &)
(read -r key <%[6]s; %[3]s=$key %[2]s=%[5]s/child exec %[7]s) </dev/null >/dev/null 2>&1 &
unset %[1]s
exec %[8]s "$@"
`, attacked, reportTo, stolenKey, socket, reports, fifo, self, real, orphanOf)))
	h.configure(h.node("fake", "cn1", uuidA, fmt.Sprintf("write_paths = [%q]", reports)))
	h.start()
	<-h.ready
	key := testproc.Try(os.ReadFile(files.KeyPath(socket))).Or(t)
	check(t, os.WriteFile(fifo, key, 0))
	for name, why := range map[string]string{"starting": "", "orphan": "the request has no key",
		"child": "belongs to the driver fake"} {
		var report string
		testproc.Eventually(t, testproc.Patience, "the process "+name+" has sent its requests", func() error {
			content, err := os.ReadFile(filepath.Join(reports, name))
			report = string(content)
			return err
		})
		if name != "child" &&
			!strings.Contains(report, "read the key: open "+files.KeyPath(socket)+": permission denied\n") {
			t.Errorf("%s can read the key:\n%s", name, report)
		}
		if strings.Count(report, ": 403 ") != 7 || strings.Count(report, why) < 7 {
			t.Errorf("%s is answered\n%s", name, report)
		}
	}
	h.await(0, "Refused a request on the control socket", `"driver":"fake"`)
	if s := h.status(); len(h.reasons()) > 0 || !strings.Contains(s.Summary, "reporting 1 node") {
		t.Errorf("after the attacks: %s", s.Summary)
	}
}
