// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSecondAgentOfAUser: unless both share their user, it ends before it touches anything while
// the first one runs, and says which process that is, which of the two does not share, and what to
// do. It starts after the first one has ended.
func TestSecondAgentOfAUser(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	prepare := func(shares bool) (dir string, unlock func(), err error) {
		t.Helper()
		dir = t.TempDir()
		file := filepath.Join(dir, "agent.toml")
		text := fmt.Sprintf(
			"[agent]\nhost = \"cn1\"\nstate_dir = \"%s/state\"\nruntime_dir = \"%[1]s/run\"\nshare_user = %v\n", dir,
			shares)
		testproc.Check(t, os.WriteFile(file, []byte(text), 0o600))
		cfg := testproc.Try(config.Load(config.Options{File: file, Environ: []string{}})).Or(t)
		a := testproc.Try(New(Options{Config: cfg, Logger: zerolog.Nop()})).Or(t)
		testproc.Equal(t, a.user, statedir.SoleUser{
			Socket: fmt.Sprintf("@compute-agent/agent-of-user/%d", os.Geteuid()), UID: os.Geteuid(),
			Patience: 10 * time.Second}, "its user is %+v")
		// A socket that no agent of this machine, and no other test, has.
		a.user = statedir.SoleUser{Socket: fmt.Sprintf("@compute-agent/test/%d/%s", os.Getpid(), t.Name()),
			UID: os.Geteuid(), Patience: time.Hour}
		unlock, err = a.prepare()
		return dir, unlock, err
	}
	for _, c := range []struct {
		first, second bool // share
		says          string
	}{
		{false, false, "which does not share its user"},
		{false, true, "which does not share its user"},
		{true, false, "and this one does not share its user"},
		{true, true, ""},
	} {
		t.Run(fmt.Sprintf("%v and %v", c.first, c.second), func(t *testing.T) {
			_, first, err := prepare(c.first)
			testproc.Check(t, err)
			dir, second, err := prepare(c.second)
			if c.says == "" {
				testproc.Check(t, err)
				first()
				if _, _, err := prepare(false); err == nil {
					t.Error("one that does not share starts, although the second one runs")
				}
				second()
			} else {
				var fatal *resourcetracker.FatalError
				if !errors.As(err, &fatal) || !fatal.Protects {
					t.Fatalf("the second one: %v", err)
				}
				for _, part := range []string{"another agent of this user",
					fmt.Sprintf("process %d, %s", os.Getpid(), c.says), "agent.share_user = true for both"} {
					testproc.Contains(t, err.Error(), part, "%s")
				}
				if made := testproc.Try(filepath.Glob(filepath.Join(dir, "state", "*id*"))).Or(t); len(made) > 0 {
					t.Errorf("it has made %q", made)
				}
				first()
			}
			_, again, err := prepare(c.second)
			testproc.Check(t, err)
			again()
		})
	}
}
