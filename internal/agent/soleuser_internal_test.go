// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// userOf is this user with a socket that no agent of this machine, and no other test, has. It waits
// for others as long as they need.
func userOf(t *testing.T) soleUser {
	t.Helper()
	return soleUser{fmt.Sprintf("@compute-agent/test/%d/%s", os.Getpid(), t.Name()), os.Geteuid(), time.Hour}
}

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
		testproc.Equal(t, a.user, soleUser{userSocket(os.Geteuid()), os.Geteuid(), startPatience}, "its user is %+v")
		a.user = userOf(t)
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

// TestAgentsOfAUserStartAtOnce: of those that share all start, whatever others do, or, if one does
// not share, it alone or all others.
func TestAgentsOfAUserStartAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, sole := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("%d do not share", sole), func(t *testing.T) {
			user := userOf(t)
			const all = 20
			var started [all]func()
			var wg sync.WaitGroup
			for n := range all {
				wg.Go(func() {
					var log testproc.Buffer
					release, err := user.acquire(n >= sole, zerolog.New(&log))
					var refused *identity.Error
					if err != nil && !errors.As(err, &refused) || log.String() != "" {
						t.Errorf("%v, log %s", err, log.String())
					}
					started[n] = release
				})
			}
			wg.Wait()
			count := 0
			for n, release := range started {
				if release != nil {
					count++
					if n < sole {
						count += 1000
					}
					release()
				}
			}
			if count != all-sole && (sole == 0 || count != 1001) {
				t.Errorf("%d started; one that does not share counts a thousand more", count)
			}
		})
	}
}

// TestSocketOfAnotherUser: it keeps no agent from starting, also if nothing is accepted there.
func TestSocketOfAnotherUser(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, accepts := range []bool{true, false} {
		t.Run(fmt.Sprintf("accepts %v", accepts), func(t *testing.T) {
			var log bytes.Buffer
			user := userOf(t)
			other := testproc.Try(listenAbstract(user.socket)).Or(t)
			if accepts {
				defer answerProbes(other)()
			} else {
				defer func() { testproc.NoError(t, other.Close()) }()
			}
			user.uid++
			release, err := user.acquire(false, zerolog.New(&log))
			testproc.Check(t, err)
			release()
			if !strings.Contains(log.String(), "It cannot be found out whether another agent of this user runs") {
				t.Errorf("the log: %s", log.String())
			}
		})
	}
}

// TestAgentOfAUserThatStartsForLong: another one that has the socket and says nothing is not said
// to be one that does not share.
func TestAgentOfAUserThatStartsForLong(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	user := userOf(t)
	other := testproc.Try(listenAbstract(user.socket)).Or(t)
	defer func() { testproc.NoError(t, other.Close()) }()
	user.patience = 0
	_, err := user.acquire(true, zerolog.Nop())
	var refused *identity.Error
	if !errors.As(err, &refused) ||
		!strings.Contains(refused.Problem, fmt.Sprintf("process %d, which is starting, or stopped:", os.Getpid())) {
		t.Errorf("acquire beside an agent that is starting: got %v, want its process named", err)
	}
}
