// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

//go:embed testdata/openstack.py
var openstackScript string

// python is Debian's own, which has Debian's packages.
const python = "/usr/bin/python3"

// openstackLife is the standard input of openstackServer, which ends with it.
var openstackLife io.Closer

// openstackServer is a process that runs commands of OpenStack's command line, for all tests: it is
// the socket on which it is asked.
var openstackServer = sync.OnceValues(func() (socket string, err error) {
	dir, err := os.MkdirTemp(binaries.Dir(), "osc")
	if err != nil {
		return "", err
	}
	socket = filepath.Join(dir, "s")
	cmd := exec.Command(python, "-W", "ignore", "-c", openstackScript, socket)
	cmd.Env, cmd.SysProcAttr, cmd.Stderr = withoutOpenstack(os.Environ()), &syscall.SysProcAttr{Setpgid: true}, nil
	if openstackLife, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ready := make([]byte, len("READY"))
	if _, err := out.Read(ready); err != nil || string(ready) != "READY" {
		return "", errors.Join(fmt.Errorf("the command line of OpenStack says %q", ready), err, cmd.Wait())
	}
	return socket, nil
})

// withoutOpenstack is an environment without the variables of the command line: that of the tests
// does not count.
func withoutOpenstack(environment []string) (env []string) {
	for _, variable := range environment {
		if !strings.HasPrefix(variable, "OS_") {
			env = append(env, variable)
		}
	}
	return env
}

// openstack is the command line of OpenStack, with arguments that say how it authenticates.
type openstack struct {
	t    *testing.T
	auth []string
}

// newOpenstack looks for the command, and that it knows Placement.
func newOpenstack(t *testing.T, auth ...string) *openstack {
	t.Helper()
	_, err := exec.LookPath("openstack")
	if err == nil {
		err = exec.Command(python, "-c", "import osc_placement").Run()
	}
	if err != nil {
		testproc.NotRun(t,
			"Debian's packages python3-openstackclient and python3-osc-placement are not installed "+
				"(tools/packages.sh real)")
	}
	return &openstack{t: t, auth: auth}
}

// said is what a command has written, and its exit code.
type said struct {
	Code     int
	Out, Err string
}

func (s said) all() string { return s.Out + s.Err }

// run runs a command to its end.
func (o *openstack) run(words ...string) (s said) {
	o.t.Helper()
	socket := testproc.Try(openstackServer()).Or(o.t)
	connection := testproc.Try((&net.Dialer{}).DialContext(o.t.Context(), "unix", socket)).Or(o.t)
	defer func() { _ = connection.Close() }()
	check(o.t, json.NewEncoder(connection).
		Encode(map[string]any{"argv": append(append([]string{}, o.auth...), words...), "cwd": o.t.TempDir()}))
	check(o.t, json.NewDecoder(connection).Decode(&s))
	return s
}

// do runs a command, and reads its JSON into out unless that is nil.
func (o *openstack) do(out any, words ...string) {
	o.t.Helper()
	if out != nil {
		words = append(words, "--format", "json")
	}
	s := o.run(words...)
	if s.Code != 0 {
		o.t.Fatalf("openstack %s: exit code %d\n%s", strings.Join(words, " "), s.Code, s.Err)
	}
	if out == nil {
		return
	}
	testproc.Checkf(o.t, json.Unmarshal([]byte(s.Out), out), "openstack %s printed %q", strings.Join(words, " "), s.Out)
}

// all runs commands in one process, as if they were typed, and returns what is printed. Whether
// they succeed is for the caller to find out.
func (o *openstack) all(commands ...string) string {
	o.t.Helper()
	// arguments would be commands, too: all else is in the environment
	cmd := exec.CommandContext(o.t.Context(), "openstack")
	cmd.Env, cmd.Dir = withoutOpenstack(os.Environ()), o.t.TempDir()
	for i := 0; i+1 < len(o.auth); i += 2 {
		name := strings.ReplaceAll(strings.TrimPrefix(o.auth[i], "--"), "-", "_")
		cmd.Env = append(cmd.Env, strings.ToUpper(name)+"="+o.auth[i+1])
	}
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	said, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Logf("openstack ended with %v", err) // so does it after a command that was refused
	}
	return string(said)
}

// refused runs a command that must fail, and returns what it says.
func (o *openstack) refused(words ...string) string {
	o.t.Helper()
	s := o.run(words...)
	if s.Code == 0 {
		o.t.Errorf("openstack %s was not refused", strings.Join(words, " "))
	}
	return s.all()
}
