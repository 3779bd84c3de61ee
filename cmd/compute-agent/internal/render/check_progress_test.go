// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProgressNamesSlowChecks: where there is no terminal, a check that takes long is named, and
// others are not; there are no carriage returns, and nothing comes after the end.
func TestProgressNamesSlowChecks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := NewPluginTest(&b, &b, []trial.Check{{ID: "a/quick"}, {ID: "a/slow"}, {ID: "a/last"}}, 0)
		time.Sleep(3 * time.Second)
		p.Result(trial.Result{Check: trial.Check{ID: "a/quick"}, Outcome: trial.Passed})
		time.Sleep(30 * time.Second)
		p.Result(trial.Result{Check: trial.Check{ID: "a/slow"}, Outcome: trial.Passed})
		time.Sleep(5 * time.Second)
		p.Close()
		p.Close()
		time.Sleep(time.Minute)
		const want = "\n  ok    a/quick\n2 of 3: a/slow has been running for at least 10s\n2 of 3: a/slow has been " +
			"running for at least 20s\n  ok    a/slow\n"
		testproc.Equal(t, b.String(), want, "%q")
	})
}
