// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// commandEnv has this program of tests be the command services.
const commandEnv = "SERVICES_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) == "" {
		os.Exit(m.Run())
	}
	_ = os.Unsetenv(commandEnv) // it is not for the command
	main()
}

// TestUser is a test of another package: it uses the services, says where they are, and waits.
func TestUser(t *testing.T) {
	if os.Getenv(testproc.ServicesEnv) == "" {
		t.Skip("TestRealServicesAreShared runs this")
	}
	hosts := []string{}
	for _, address := range []string{dbservers.MariaDB(t), dbservers.PostgreSQL(t), testproc.StartPlacement(t).URL} {
		u := testproc.Try(url.Parse(address)).Or(t)
		hosts = append(hosts, u.Host)
	}
	fmt.Println("USER", os.Getenv(testproc.ServicesEnv), strings.Join(hosts, " "))
	_, _ = io.ReadAll(os.Stdin)
}

// TestRealServicesAreShared: two processes of tests use the same database servers, and Placements
// of their own. When the command is killed, nothing is left.
func TestRealServicesAreShared(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	self := testproc.Try(os.Executable()).Or(t)
	cmd := exec.Command(self, "sh", "-c", `"$0" -test.run '^TestUser$' & exec "$0" -test.run '^TestUser$'`, self)
	cmd.Env = append(os.Environ(), commandEnv+"=1", testproc.ServicesEnv+"=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin := testproc.Try(cmd.StdinPipe()).Or(t)
	defer func() { _ = stdin.Close() }()
	services := testproc.Start(t, "services", cmd)
	defer func() { _ = syscall.Kill(-services.Pid(), syscall.SIGKILL) }()
	// A background process of a shell has no standard input: that test ends, and its servers stay.
	first := strings.Fields(services.Await(t, 0, "USER"))
	testproc.Eventually(t, testproc.Patience, "both use the services", func() error {
		if n := services.Count(0, "USER"); n != 2 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	for _, line := range services.Lines() {
		if words := strings.Fields(line); len(words) > 4 &&
			words[0] == "USER" && strings.Join(words[:4], " ") != strings.Join(first[:4], " ") {
			t.Errorf("%q and %q are not the same services", words, first)
		}
	}
	testproc.Check(t, services.Signal(syscall.SIGKILL))
	<-services.Done()
	testproc.Eventually(t, testproc.Patience, "nothing is left", func() error {
		if _, err := os.Stat(first[1]); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(errors.New("the directory is there"), err)
		}
		for _, address := range first[2:] {
			if c, err := net.Dial("tcp", address); err == nil {
				_ = c.Close()
				return fmt.Errorf("something listens at %s", address)
			}
		}
		return nil
	})
}

// TestExitCode: it is that of the command.
func TestExitCode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for want, words := range map[int][]string{0: {"true"}, 3: {"sh", "-c", "exit 3"}, 64: nil, 127: {"/nonexistent"}} {
		if got, _ := run(words); got != want {
			t.Errorf("%v: %d, want %d", words, got, want)
		}
	}
}
