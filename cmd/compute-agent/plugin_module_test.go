// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPluginScripts runs the commands for driver authors on the fake driver's plugin, a real
// process.
func TestPluginScripts(t *testing.T) {
	t.Parallel()
	driver := fakeDriver(t, t.TempDir())
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/plugin",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(env *testscript.Env) error {
			env.Setenv("DRIVER", driver)
			return turn(env)
		},
	})
}

// TestJUnitIsWhatCIReads: well-formed XML whatever a plugin says, with counts that agree with the
// cases, and seconds with a point.
func TestJUnitIsWhatCIReads(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const hostile = "\x00\x1b[31m \xff \uFFFE <![CDATA[ ]]> & \"'\nline two"
	report := trial.Report{Description: trial.Description{Name: hostile}, Results: []trial.Result{
		{Check: trial.Check{ID: "start/handshake", Title: "starts"}, Outcome: trial.Passed,
			Took: 1500 * time.Millisecond},
		{Check: trial.Check{ID: "tree/root", Rule: hostile}, Outcome: trial.Failed, Sent: hostile,
			Came: hostile, Output: []string{hostile}},
		{Check: trial.Check{ID: "watch/lasts"}, Outcome: trial.NotRun, Why: hostile},
	}}
	var b bytes.Buffer
	testproc.Check(t, report.WriteJUnit(&b))
	type testcase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Time    string    `xml:"time,attr"`
		Failure []string  `xml:"failure"`
		Skipped *struct{} `xml:"skipped"`
	}
	var suite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Errors   *int       `xml:"errors,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     string     `xml:"time,attr"`
		Cases    []testcase `xml:"testcase"`
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	if err := d.Decode(&suite); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	if _, err := d.Token(); err == nil {
		_, err = d.Token() // the newline, then the end
		testproc.ErrorIs(t, err, io.EOF, "behind the suite: %v")
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || suite.Errors == nil ||
		*suite.Errors != 0 || suite.Time != "1.500" {
		t.Errorf("%+v", suite)
	}
	for i := range suite.Cases {
		if f := suite.Cases[i].Failure; len(f) == 1 &&
			strings.Contains(f[0], "line two") && !strings.ContainsAny(f[0], "\x00\x1b") {
			suite.Cases[i].Failure = []string{"told"}
		}
	}
	want := []testcase{
		{Class: "drivertest.start", Name: "handshake", Time: "1.500"},
		{Class: "drivertest.tree", Name: "root", Time: "0.000", Failure: []string{"told"}},
		{Class: "drivertest.watch", Name: "lasts", Time: "0.000", Skipped: &struct{}{}},
	}
	testproc.Same(t, cmp.Diff(want, suite.Cases))
}
