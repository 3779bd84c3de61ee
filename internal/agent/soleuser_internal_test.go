// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// socketOf is a socket that no agent of this machine, and no other test, has.
func socketOf(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("@compute-agent/test/%d/%s", os.Getpid(), t.Name())
}

// TestSecondAgentOfAUser: it ends before it touches anything while the first one runs, and says
// which process that is and what to do. One that may share its user starts, and so does one after
// the first one has ended.
func TestSecondAgentOfAUser(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	prepare := func(more string) (dir string, unlock func(), err error) {
		t.Helper()
		dir = t.TempDir()
		file := filepath.Join(dir, "agent.toml")
		text := fmt.Sprintf("[agent]\nhost = \"cn1\"\nstate_dir = \"%s/state\"\nruntime_dir = \"%[1]s/run\"\n%s", dir, more)
		testproc.Check(t, os.WriteFile(file, []byte(text), 0o600))
		cfg := testproc.Try(config.Load(config.Options{File: file, Environ: []string{}})).Or(t)
		a := testproc.Try(New(Options{Config: cfg, Logger: zerolog.Nop()})).Or(t)
		testproc.Equal(t, a.userSocket, userSocket(os.Geteuid()), "the socket is %s")
		a.userSocket = socketOf(t)
		unlock, err = a.prepare()
		return dir, unlock, err
	}
	_, first, err := prepare("")
	testproc.Check(t, err)
	dir, _, err := prepare("")
	var fatal *resourcetracker.FatalError
	if !errors.As(err, &fatal) || !fatal.Protects {
		t.Fatalf("the second one: %v", err)
	}
	for _, part := range []string{"another agent of this user", fmt.Sprintf("process %d", os.Getpid()), "agent.share_user = true"} {
		testproc.Contains(t, err.Error(), part, "%s")
	}
	if made := testproc.Try(filepath.Glob(filepath.Join(dir, "state", "*id*"))).Or(t); len(made) > 0 {
		t.Errorf("it has made %q", made)
	}
	_, shares, err := prepare("share_user = true\n")
	testproc.Check(t, err)
	shares()
	first()
	_, again, err := prepare("")
	testproc.Check(t, err)
	again()
}

// TestSocketOfAnotherUser: it keeps no agent from starting.
func TestSocketOfAnotherUser(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log bytes.Buffer
	first := testproc.Try(soleOfUser(socketOf(t), os.Geteuid(), zerolog.New(&log))).Or(t)
	defer first()
	second, err := soleOfUser(socketOf(t), os.Geteuid()+1, zerolog.New(&log))
	testproc.Check(t, err)
	second()
	if !strings.Contains(log.String(), "It cannot be found out whether another agent of this user runs") {
		t.Errorf("the log: %s", log.String())
	}
}
