// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealWritingADriver types what docs/writing-a-driver.md tells to type, in its order, and
// compares what comes with what it shows. Numbers, uuids and versions may be others; a line with
// nothing but an ellipsis stands for any lines.
func TestRealWritingADriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newAuthor(t)
	sessions := golden.Commands(t, "../../docs/writing-a-driver.md", "$")
	if len(sessions) < 10 {
		t.Fatalf("only %d commands are in the document", len(sessions))
	}
	for _, c := range sessions {
		got := s.enter(c.Text)
		if why := golden.Differs(c.Output, got); why != "" {
			t.Errorf("docs/writing-a-driver.md:%d: $ %s\n%s\nwhat came:\n%s", c.Line, c.Text, why, got)
		}
	}
}

// author is a driver's author in an empty directory, on a machine where only compute-agent is
// installed. What would be written below / is written below root; the machine that the driver looks
// at is a directory too.
type author struct {
	*testing.T
	dir, root, machine string
	env                []string
	agent              *exec.Cmd
	lines              *bufio.Scanner
	url                string
}

const shownDevice = "sys/bus/pci/devices/0000:00:05.0/"

func newAuthor(t *testing.T) *author {
	t.Helper()
	home := testproc.SocketDir(t)
	s := &author{T: t, dir: filepath.Join(home, "empty"),
		root: filepath.Join(home, "root"), machine: filepath.Join(home, "machine")}
	repository, err := filepath.Abs("../..")
	if err == nil {
		err = os.Mkdir(s.dir, 0o755)
	}
	if err == nil {
		err = os.Symlink(repository, filepath.Join(home, "compute-agent"))
	}
	testproc.Check(t, err)
	for file, content := range map[string]string{
		filepath.Join(s.machine, "proc/cpuinfo"):                      "processor\t: 0\nprocessor\t: 1\n",
		filepath.Join(s.machine, "proc/meminfo"):                      "MemTotal:       24683520 kB\n",
		filepath.Join(s.machine, shownDevice, "vendor"):               "0x1af4\n",
		filepath.Join(s.machine, shownDevice, "device"):               "0x1044\n",
		filepath.Join(s.root, "etc/compute-agent/compute-agent.toml"): "[agent]\nhost = \"vm\"\n",
	} {
		s.write(file, content)
	}
	caches := testproc.Try(exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()).Or(t)
	cache := strings.Split(string(caches), "\n")
	s.env = append(os.Environ(), "HOME="+home, "GOCACHE="+cache[0], "GOMODCACHE="+cache[1], "GOFLAGS=-trimpath",
		"GOWORK=off", "GOPROXY=off", "DESTDIR="+s.root,
		// make test runs this one, and a make below another speaks of it
		testproc.ShareUser, "MAKEFLAGS=", "MFLAGS=", "MAKELEVEL=",
		"COMPUTE_AGENT_AGENT_RUNTIME_DIR="+filepath.Join(home, "run"), "COMPUTE_AGENT_AGENT_STATE_DIR="+
			filepath.Join(home, "state"), "COMPUTE_AGENT_PLUGINS_DIR="+
			filepath.Join(s.root, "usr/libexec/compute-agent/plugins"))
	return s
}

func (a *author) write(file, content string) {
	a.Helper()
	testproc.Check(a, os.MkdirAll(filepath.Dir(file), 0o755))
	testproc.Check(a, os.WriteFile(file, []byte(content), 0o644))
}

// enter types a command and returns what is seen.
func (a *author) enter(command string) string {
	a.Helper()
	command = strings.TrimPrefix(command, "sudo ")
	switch {
	case strings.HasPrefix(command, "compute-agent standalone"):
		return a.seen(a.start(command))
	case command == "systemctl restart compute-agent":
		a.stop()
		a.start("compute-agent standalone --state-dir state --runtime-dir run")
		return ""
	case strings.HasPrefix(command, "compute-agent plan --reshape"):
		a.stop()
		defer a.comeFromReleaseOne()()
		command = "COMPUTE_AGENT_PLACEMENT_CLIENT_URL=" + a.url + " " + command
	}
	cmd := a.shell(strings.ReplaceAll(command, "/etc/compute-agent/", a.root+"/etc/compute-agent/"))
	out, err := cmd.CombinedOutput()
	explains := command == "bin/compute-driver-acme" // that it does not run by itself, and ends with 2
	if (err != nil) != explains {
		a.Fatalf("$ %s\n%s%v", command, out, err)
	}
	where := testproc.Try(os.ReadFile(filepath.Join(a.root, "pwd"))).Or(a)
	a.dir = strings.TrimSpace(string(where))
	if strings.HasPrefix(command, "compute-agent plugin new") { // the machine is the one that the document has
		for _, file := range []string{"dev.toml", "examples/acme.toml"} {
			a.append(filepath.Join(a.dir, "compute-driver-acme", file), fmt.Sprintf("machine = %q\n", a.machine))
		}
	}
	return a.seen(string(out))
}

// shell is a command of the shell, after which its directory is noted.
func (a *author) shell(command string) *exec.Cmd {
	if strings.Contains(command, "compute-agent ") && !strings.HasPrefix(command, "compute-agent plugin") &&
		!strings.Contains(command, "/compute-agent/") {
		command += " --config " + a.root + "/etc/compute-agent/compute-agent.toml"
	}
	cmd := exec.CommandContext(a.Context(), "bash",
		"-c", command+"\ncode=$?; pwd >'"+filepath.Join(a.root, "pwd")+"'; exit $code")
	cmd.Dir, cmd.Env = a.dir, a.env
	return cmd
}

func (a *author) append(file, text string) {
	a.Helper()
	content := testproc.Try(os.ReadFile(file)).Or(a)
	a.write(file, string(content)+text)
}

// testOnly are lines about what only this test sets.
var testOnly = regexp.MustCompile(
	`(?m)^.*(acme\.config\.machine|agent\.host|agent\.share_user|plugins\.dir|agent\.runtime_dir|` +
		`agent\.state_dir) = .*\n`)

// seen is an output as if everything were below /.
func (a *author) seen(out string) string {
	out = strings.ReplaceAll(out, a.root, "")
	return strings.ReplaceAll(testOnly.ReplaceAllString(out, ""), "/etc/compute-agent/compute-agent.toml, ", "")
}

// start starts the agent, and returns what it said until it was there.
func (a *author) start(command string) string {
	a.Helper()
	words := append(strings.Fields(command)[1:], "--listen", "127.0.0.1:0", "--config", a.root+
		"/etc/compute-agent/compute-agent.toml")
	path := testproc.Try(exec.LookPath("compute-agent")).Or(a)
	a.agent = exec.Command(path, words...)
	a.agent.Dir, a.agent.Env = a.dir, a.env
	var stderr bytes.Buffer
	a.agent.Stderr = &stderr
	stdout, err := a.agent.StdoutPipe()
	if err == nil {
		err = a.agent.Start()
	}
	testproc.Check(a, err)
	a.Cleanup(a.stop)
	a.lines = bufio.NewScanner(stdout)
	var said strings.Builder
	for a.lines.Scan() {
		fmt.Fprintln(&said, a.lines.Text())
		if url, found := strings.CutPrefix(a.lines.Text(), "Placement listens at "); found {
			a.url = strings.TrimSuffix(strings.Fields(url)[0], ".")
		}
		if strings.HasPrefix(a.lines.Text(), "The agent keeps Placement up to date") {
			return said.String()
		}
	}
	a.Fatalf("$ %s\n%sand ended: %s", command, &said, &stderr)
	return ""
}

// stop is Ctrl-C.
func (a *author) stop() {
	if a.agent == nil {
		return
	}
	agent := a.agent
	a.agent = nil
	testproc.NoError(a, agent.Process.Signal(os.Interrupt))
	for a.lines.Scan() {
	}
	testproc.NoErrorf(a, agent.Wait(), "the agent ended")
}

// comeFromReleaseOne serves Placement without an agent, and makes of its tree one of the driver's
// first release: four slots on the root, three of them a guest's, and no provider for the device.
// It returns what ends the service.
func (a *author) comeFromReleaseOne() (end func()) {
	a.Helper()
	server := testproc.Try(placement.New(a.Context(), placement.Config{
		Database: "sqlite://" + filepath.Join(a.dir, "state/placement.db"),
		Auth:     placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop(),
	})).Or(a)
	listener := httptest.NewServer(server.Handler())
	a.url = listener.URL
	const root, child = "/resource_providers?name=vm", "/resource_providers?name=vm_pci_0000_00_05_0"
	uuid := func(path string) string {
		found := regexp.MustCompile(`"uuid":"([-0-9a-f]{36})"`).
			FindStringSubmatch(a.placement(http.MethodGet, path, ""))
		if found == nil {
			a.Fatalf("Placement has no %s", path)
		}
		return found[1]
	}
	a.placement(http.MethodDelete, "/resource_providers/"+uuid(child), "")
	node := uuid(root)
	generation := regexp.MustCompile(`"resource_provider_generation":(\d+)`).
		FindStringSubmatch(a.placement(http.MethodGet, "/resource_providers/"+node+"/inventories", ""))[1]
	a.placement(http.MethodPost, "/resource_providers/"+node+"/inventories",
		`{"resource_class":"CUSTOM_ACME_SLOT","total":4,"resource_provider_generation":`+generation+`}`)
	a.placement(http.MethodPut, "/allocations/6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a11",
		`{"allocations":{"`+node+
			`":{"resources":{"CUSTOM_ACME_SLOT":3}}},"project_id":"p","user_id":"u","consumer_generation":null,`+
			`"consumer_type":"INSTANCE"}`)
	return func() {
		listener.Close()
		testproc.NoError(a, server.Close())
	}
}

func (a *author) placement(method, path, body string) string {
	a.Helper()
	return string(testproc.Send(a, nil, method, a.url+path, "placement latest", body).Good(a).Body)
}
