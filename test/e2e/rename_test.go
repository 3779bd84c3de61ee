// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
	deployment "github.com/compute-agent/compute-agent/test/world"
)

// TestEnrolledHostIsRenamed: a host whose certificate names it gets another name with the server
// that it has, and a certificate for that. The former certificate is refused.
func TestEnrolledHostIsRenamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := newEnrolled(t, "24h")
	s := e.host("h416")
	nodes := func(name string) {
		t.Helper()
		text := testproc.Try(os.ReadFile(s.config)).Or(t)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "nodes = ") {
				lines[i] = fmt.Sprintf(
					"nodes = [{name = %q, inventories = {VCPU = {total = 8}, MEMORY_MB = {total = 16000}, DISK_GB = "+
						"{total = 100}}, children = [{name = \"gpu0\", inventories = {VGPU = {total = 4}}}]}]", name)
			}
		}
		check(t, os.WriteFile(s.config, []byte(strings.Join(lines, "\n")), 0o600))
	}
	nodes("h416")
	if out, code := e.join(s, "h416"); code != 0 {
		t.Fatalf("join: exit code %d\n%s", code, out)
	}
	agent := s.run()
	reporting := func(host string) health.Status {
		t.Helper()
		return s.eventually("the host reports as "+host, func(h health.Status) bool {
			return h.State == resourcetracker.Reporting && h.Host == host && h.Cell != nil && h.Cell.Up &&
				h.Identity != nil && h.Identity.Host == host && len(h.Identity.Nodes) == 1 && len(h.Conditions) == 0
		})
	}
	node := reporting("h416").Identity.Nodes[0]
	ask := func(method, path string, body any) *deployment.Answer {
		t.Helper()
		return testproc.Try(deployment.Exchange(t.Context(), http.DefaultClient, method, "http://"+e.api+"/v2.1"+path,
			deployment.Admin.Header("2.69"), body)).Or(t)
	}
	ask("POST", "/flavors", deployment.Record{"flavor": deployment.Record{"id": "1", "name": "tiny", "vcpus": 1,
		"ram": 512, "disk": 1}}).Is(t, 200)
	var made struct{ Server struct{ ID string } }
	testproc.Eventually(t, patience, "the server is accepted", func() error {
		a := ask("POST", "/servers", deployment.ServerBody("web1", nil))
		if a.Code != http.StatusAccepted {
			return fmt.Errorf("%s", a)
		}
		a.Into(t, &made)
		return nil
	})
	is := func(status, host string) {
		t.Helper()
		testproc.Eventually(t, patience, "the server is "+status+" on "+host, func() error {
			got := ask("GET", "/servers/"+made.Server.ID, nil).Server(t)
			if got["status"] != status || got["OS-EXT-SRV-ATTR:host"] != host {
				return fmt.Errorf("it is %v on %v", got["status"], got["OS-EXT-SRV-ATTR:host"])
			}
			return nil
		})
	}
	is("ACTIVE", "h416")
	agent.Stop(t)

	var renamed struct {
		Token, URL string
		Servers    int
	}
	check(t, json.Unmarshal([]byte(e.manage("rename-host", "h416", "r9", "--with-servers", "1", "--output", "json")),
		&renamed))
	testproc.Equal(t, renamed.Servers, 1, "servers")
	token := filepath.Join(s.dir, "join.token")
	check(t, os.WriteFile(token, []byte(renamed.Token+"\n"), 0o600))
	nodes("r9")
	for _, args := range [][]string{
		{"join", "--again", "--api", renamed.URL, "--token-file", token, "--config-dir", s.dir, "--user", "root"},
		{"adopt", "--rename", "--yes", "--config", s.config},
	} {
		if out, code := command(t, args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, out)
		}
	}
	s.run()
	testproc.Equal(t, reporting("r9").Identity.Nodes[0], node, "the node of the certificate")
	is("ACTIVE", "r9")
	ask("POST", "/servers/"+made.Server.ID+"/action", deployment.Record{"os-stop": nil}).Is(t, 202)
	is("SHUTOFF", "r9")
	testproc.Contains(t, e.manage("audit"), "Nothing was found that does not fit together.", "the audit: %s")
	// The new name has a line of its own, and is not only in the reason of the former one.
	var names []string
	for line := range strings.Lines(e.manage("list-hosts")) {
		if words := strings.Fields(line); len(words) > 0 {
			names = append(names, words[0])
			if words[0] == "h416" {
				testproc.Contains(t, line, "renamed to r9", "list-hosts: %s")
			}
		}
	}
	for _, name := range []string{"h416", "r9"} {
		testproc.Equal(t, slices.Contains(names, name), true, "%s is the name of a line of list-hosts: %t", name)
	}
}
