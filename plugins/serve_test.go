// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestStartedByHandItExplainsItself(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partKey+"=driver")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 64 || !bytes.Contains(out, []byte("[drivers.test]")) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestInfoOption(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--info")
	cmd.Env = append(os.Environ(), partKey+"=driver")
	out := testproc.Try(cmd.Output()).Or(t)
	var got description
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Name != "test" || got.Version != "1.2.3" || len(got.ConfigSchema) == 0 ||
		!cmp.Equal(got.Protocols, []int{1}) || !cmp.Equal(got.Capabilities, []string{"shutdown"}) {
		t.Errorf("got %+v", got)
	}
}

func TestDriverLeavesWhenItsParentDies(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partKey+"=starter")
	out := testproc.Try(cmd.StdoutPipe()).Or(t)
	testproc.Check(t, cmd.Start())
	line := testproc.Try(bufio.NewReader(out).ReadString('\n')).Or(t)
	pid := testproc.Try(strconv.Atoi(strings.TrimSpace(line))).Or(t)
	fd := testproc.Try(unix.PidfdOpen(pid, 0)).Or(t)
	defer func() { _ = unix.Close(fd) }()
	testproc.Check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) { // by a signal of the runtime
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
	}
	if n != 1 {
		t.Errorf("the driver is still there: %v", err)
	}
}

func TestDecodeConfig(t *testing.T) {
	for _, c := range []struct {
		raw, key, problem string
	}{
		{raw: `{"a":{"b":3}}`},
		{raw: ``},
		{raw: `{"c":1}`, key: "c", problem: "not a key"},
		{raw: `{"a":{"d":1}}`, key: "a.d", problem: "not a key"},
		{raw: `{"a":{"l":[{"n":1},{"n":2,"m":3}]}}`, key: "a.l[1].m", problem: "not a key"},
		{raw: `{"a":{"t":{"x":{"n":1,"o":3}}}}`, key: "a.t.x.o", problem: "not a key"},
		{raw: `{"a":{"b":"x"}}`, key: "a.b", problem: "is a text, must be a whole number"},
		{raw: `{"a":{"b":1.5}}`, key: "a.b", problem: "is the number 1.5, must be a whole number"},
		{raw: `{"a":{"b":true}}`, key: "a.b", problem: "is true or false, must be a whole number"},
		{raw: `{"a":{"l":"x"}}`, key: "a.l", problem: "is a text, must be a list"},
		{raw: `{"a":{"l":["x"]}}`, key: "a.l", problem: "is a text, must be a table"},
		{raw: `{"a":[]}`, key: "a", problem: "is a list, must be a table"},
		{raw: `{`, problem: "not valid JSON"},
		{raw: `{]`, problem: "not valid JSON"},
		{raw: `{} {}`, problem: "more than one"},
	} {
		var into struct {
			A struct {
				B int `json:"b"`
				L []struct {
					N int `json:"n"`
				} `json:"l"`
				T map[string]*struct {
					N int `json:"n"`
				} `json:"t"`
			} `json:"a"`
		}
		into.A.B = 7
		err := DecodeConfig(json.RawMessage(c.raw), &into)
		if c.problem == "" {
			if err != nil || (c.raw == "" && into.A.B != 7) {
				t.Errorf("%s: %v, %+v", c.raw, err, into)
			}
			continue
		}
		var config *ConfigError
		if !errors.As(err, &config) || config.Key != c.key || !strings.Contains(config.Problem, c.problem) {
			t.Errorf("%s: %v", c.raw, err)
		}
	}
}

func TestErrorsInWords(t *testing.T) {
	many := &ReshapeFailed{Reason: "no capacity"}
	for i := range 7 {
		many.Violations = append(many.Violations, Violation{Consumer: fmt.Sprint("c", i)})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&ReshapeNeeded{}, "reshape needed"},
		{&NotReady{Reason: "libvirt is down"}, "driver not ready: libvirt is down"},
		{&ConfigError{Key: "nodes[0].name", Problem: "is missing"}, "configuration: nodes[0].name: is missing"},
		{&ReshapeFailed{Violations: []Violation{{Consumer: "c", Provider: "p", Class: "VGPU", Problem: "x"}}},
			"reshape failed; consumer c, resource provider p, resource class VGPU: x"},
		{many, "reshape failed: no capacity; consumer c0; consumer c1; consumer c2; consumer c3; consumer " +
			"c4; and 2 more"},
	} {
		testproc.Equal(t, c.err.Error(), c.want, "got %q")
	}
	if !errors.Is(&ReshapeNeeded{}, ErrReshapeNeeded) ||
		!errors.Is(&NotReady{}, ErrNotReady) || errors.Is(&NotReady{}, ErrReshapeNeeded) {
		t.Error("errors.Is")
	}
}
