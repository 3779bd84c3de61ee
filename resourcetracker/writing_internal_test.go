// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWritingIsLoggedWhileItTakesLong: a first write of a large tree is in the log before it ends.
func TestWritingIsLoggedWhileItTakesLong(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tracker := &Tracker{config: Config{Name: "fake", Logger: zerolog.New(&log)}}
		n := &nodeState{NodeStatus: NodeStatus{Name: "cn1"}}
		tracker.noteWriting(n, 0, 1000)
		for done := range 30 {
			time.Sleep(time.Second)
			tracker.noteWriting(n, done+1, 1000)
		}
		tracker.noteWriting(n, 0, 0)
		for i, want := range []string{`"done":10,"operations":1000,"since":"10s"`, `"done":20,`, `"done":30,`} {
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != 3 || !strings.Contains(lines[i], want) ||
				!strings.Contains(lines[i], "Still writing to Placement.") {
				t.Errorf("%s is not line %d of\n%s", want, i, log.String())
			}
		}
	})
}
