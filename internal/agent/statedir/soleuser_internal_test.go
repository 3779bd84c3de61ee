// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// userOf is this user with a socket that no agent of this machine, and no other test, has. It waits
// for others as long as they need.
func userOf(t *testing.T) SoleUser {
	t.Helper()
	return SoleUser{Socket: fmt.Sprintf("@compute-agent/test/%d/%s", os.Getpid(), t.Name()), UID: os.Geteuid(),
		Patience: time.Hour}
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
					release, err := user.Acquire(n >= sole, zerolog.New(&log))
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
			other := testproc.Try(listenAbstract(user.Socket)).Or(t)
			if accepts {
				defer answerProbes(other)()
			} else {
				defer func() { testproc.NoError(t, other.Close()) }()
			}
			user.UID++
			release, err := user.Acquire(false, zerolog.New(&log))
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
	other := testproc.Try(listenAbstract(user.Socket)).Or(t)
	defer func() { testproc.NoError(t, other.Close()) }()
	user.Patience = 0
	_, err := user.Acquire(true, zerolog.Nop())
	var refused *identity.Error
	if !errors.As(err, &refused) ||
		!strings.Contains(refused.Problem, fmt.Sprintf("process %d, which is starting, or stopped:", os.Getpid())) {
		t.Errorf("acquire beside an agent that is starting: got %v, want its process named", err)
	}
}
