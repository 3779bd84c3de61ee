// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/suite"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProgressNamesSlowChecks: where there is no terminal, a check that takes long is named, and
// others are not; there are no carriage returns, and nothing comes after the end.
func TestProgressNamesSlowChecks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&b, []suite.Check{{ID: "a/quick"}, {ID: "a/slow"}, {ID: "a/last"}}, false)
		time.Sleep(3 * time.Second)
		p.made(func() { b.WriteString("ok a/quick\n") })
		time.Sleep(30 * time.Second)
		p.made(func() { b.WriteString("ok a/slow\n") })
		time.Sleep(5 * time.Second)
		p.end()
		p.end()
		time.Sleep(time.Minute)
		const want = "ok a/quick\n2 of 3: a/slow has been running for at least 10s\n2 of 3: a/slow has been running for at least 20s\nok a/slow\n"
		testproc.Equal(t, b.String(), want, "%q")
	})
}
