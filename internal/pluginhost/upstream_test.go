// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// fault is something that go-plugin as it is does, or lets a plugin do, that an agent cannot live
// with.
type fault struct {
	name string
	// host is a host made with go-plugin as it is, in a process of its own. It says what it sees.
	host func(upstreamHost)
	// shows starts it and reports whether the fault is there, with what was seen.
	shows func(*testing.T, *run) (there bool, seen string)
	// ours is the same under the host of this package.
	ours func(*testing.T)
}

// faults are all that are known. They are why the host and the SDK do more than call go-plugin:
// look here for the purpose of a piece before you remove it.
var faults []fault

func init() {
	faults = []fault{ // not in the declaration: upstreamMain reads the table, and is reached from it
		// The runner reads standard error itself; go-plugin gets none of it.
		{"a line of log crashes the host", crashingLine, hostCrashed, logLineIsALogRecord},
		// Every call and every stop has a deadline of ours, after which the process group is
		// killed.
		{"a stopped process blocks Ping and Kill forever",
			stoppedProcess, pingAndKillBlocked, stoppedProcessIsReplaced},
		// Its own process group, and a deadline for what still holds its pipes.
		{"a child of the plugin blocks Kill, and survives it", childHoldsOutput, killBlockedByChild, childrenGoToo},
		// The kernel's parent-death signal from a thread that stays, and the SDK for what the
		// plugin started.
		{"a plugin outlives a killed host", justRun, pluginOutlivesHost, nothingOutlivesTheAgent},
		// The SDK's server takes 16 MiB, and so does the host.
		{"a request above 4 MiB is refused", largeRequest, requestRefused, largeRequestPasses},
		// The protocol has a Shutdown of its own, which drains.
		{"Kill cuts calls that are under way", killDuringCall, callCut, stopDrains},
		// An allow-list.
		{"the plugin gets the host's environment", justRun, environmentLeaks, environmentIsKept},
		// The SDK keeps the true standard output for the handshake.
		{"a print before the handshake makes the start fail", printBeforeHandshake,
			startFailedByPrint, printIsALogRecord},
		// A directory for each process below the runtime directory, removed with it, and wiped at
		// the start.
		{"a killed plugin leaves its socket behind", killedPlugin, socketLeft, socketsAreRemoved},
		// Never below /tmp, and health checks look whether it is still there.
		{"a removed socket goes unnoticed", removedSocket, removalUnnoticed, removalIsNoticed},
		// Checked before anything is started; and start errors carry what the plugin said.
		{"a long path of the socket is called a wrong architecture", longSocketPath, wrongReason, longPathIsReported},
		// There is no reattaching: processes are of this host's making or not its concern.
		{"reattaching ends whatever process has the number", reattachToUnrelated,
			unrelatedKilled, unrelatedAreLeftAlone},
		// Opened once, checked, and executed by the descriptor that was checked.
		{"an executable that is swapped after the check is run", swappedExecutable, swappedOneRan, checkedOneRuns},
		// Mutual TLS costs some 60 ms at a start and next to nothing in a call: it is always on.
		{"any client that reaches the socket may call the plugin", justRun,
			anyClientIsAnswered, otherClientsAreRefused},
		// A new configuration of go-plugin for every process.
		{"a plugin cannot be started twice with one configuration", startAgain, secondStartFails, restartsGoOn},
		// The runner gives /dev/null.
		{"the plugin gets the host's standard input", justRun, stdinIsShared, stdinIsNull},
	}
}

// TestFaultsOfGoPlugin shows each fault in go-plugin as it is, and that it is not in ours. Nothing
// here measures time: what should return at once and has not after some seconds is blocked.
func TestFaultsOfGoPlugin(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			t.Run("go-plugin", func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				there, seen := f.shows(t, newRun(t, partUpstream, f.name))
				if !there {
					t.Errorf(
						"go-plugin as it is no longer has this fault; see whether our fix is still needed. Seen: %s",
						seen)
				}
				t.Log(seen)
			})
			t.Run("ours", func(t *testing.T) {
				t.Parallel()
				f.ours(t)
			})
		})
	}
}

// newMarkedRig is a rig for plugins with a mark; when it has ended, no process with the mark may be
// left, whichever process started it.
func newMarkedRig(t *testing.T) (r *rig, mark string) {
	t.Helper()
	mark = rand.Text()
	t.Cleanup(func() { awaitNone(t, mark) })
	return newRig(t), mark
}

// plainSpec is the plain plugin with arguments, which select what it does.
func plainSpec(t *testing.T, mark string, args ...string) Spec {
	t.Helper()
	path := testproc.Try(plainPlugin()).Or(t)
	return Spec{
		Name: "plain", Path: path, Args: args, Env: map[string]string{markKey: mark},
		Timeouts: answersLate(),
		Restart: Restart{HealthInterval: 50 * time.Millisecond, Misses: 2, BackoffBase: time.Millisecond,
			BackoffMax: time.Millisecond, FailureLimit: 1000},
	}
}

// chaosOrders is the chaos driver with a mark, and with more time than it needs.
func chaosOrders(t *testing.T, mark, start string, config map[string]string) Spec {
	t.Helper()
	spec := orders(t, start, config)
	spec.Env = map[string]string{markKey: mark}
	spec.Timeouts = answersLate()
	return spec
}
