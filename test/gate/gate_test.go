// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// project makes a module with a package for each of some test files, and enters it.
func project(t *testing.T, packages map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("CI", "")
	t.Setenv("TEST_REPORT", "") // that of the run which this test is part of
	testproc.Check(t, os.WriteFile("go.mod", []byte("module github.com/compute-agent/compute-agent\n"), 0o600))
	for name, body := range packages {
		testproc.Check(t, os.Mkdir(name, 0o700))
		text := "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Exit\n\n" + body
		testproc.Check(t, os.WriteFile(filepath.Join(name, "p_test.go"), []byte(text), 0o600))
	}
}

// show has gate run some packages, and returns its output without times.
func show(t *testing.T, flags ...string) (passed bool, output string) {
	t.Helper()
	var out bytes.Buffer
	passed, err := gate(&out, []string{"./..."}, flags)
	testproc.Check(t, err)
	var lines []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimRight(line, "\n")
		if fields := strings.Fields(line); len(fields) == 5 && fields[4] == "tests" {
			line = fields[0] + " " + fields[1] + " " + fields[3]
		}
		lines = append(lines, line)
	}
	return passed, strings.Join(lines, "\n")
}

const passing = "func TestA(t *testing.T) { t.Log(\"loud\") }\n\nfunc TestB(t *testing.T) {}\n"

func TestPassingPackagesAreOneLineEach(t *testing.T) {
	project(t, map[string]string{"a": passing})
	passed, out := show(t)
	if !passed || !strings.HasPrefix(out, "ok a 2\n2 tests of 1 packages passed (") {
		t.Errorf("passed: %v:\n%s", passed, out)
	}
}

func TestOnlyFailuresAreShown(t *testing.T) {
	project(t, map[string]string{
		"a": passing,
		"b": "func TestC(t *testing.T) { t.Log(\"quiet\") }\n\nfunc TestD(t *testing.T) {\n\tt.Run(\"x\", func(t " +
			"*testing.T) { t.Error(\"wrong value\") })\n}\n",
		"c": "func TestE(t *testing.T) { panic(\"out of order\") }\n",
		"d": "func TestF(t *testing.T) { undefined() }\n",
	})
	passed, out := show(t)
	if passed {
		t.Error("it passed")
	}
	for _, want := range []string{"ok a 2", "FAIL b 2", "wrong value", "FAIL c", "out of order", "FAIL d",
		"undefined: undefined", "FAILED: 3 of "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	for _, noise := range []string{"loud", "quiet", "=== "} {
		if strings.Contains(out, noise) {
			t.Errorf("%q in:\n%s", noise, out)
		}
	}
}

func TestWhatATestSaidIsAtTheEnd(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	project(t, map[string]string{"a": `func TestA(t *testing.T) {
	t.Cleanup(func() { t.Log("output of agent ([agent run]):\nthe agent starts") })
	t.Error("the tree has 3 providers,\nnot 4")
}

func TestB(t *testing.T) {
	t.Run("x", func(t *testing.T) { t.Error("wrong") })
}
`})
	t.Setenv("TEST_REPORT", report)
	_, out := show(t)
	want := "FAILED: TestA of a:\n    p_test.go:12: the tree has 3 providers,\n    not 4\nFAILED: TestB/x of a:\n " +
		"   p_test.go:16: wrong\n"
	if !strings.Contains(out, want+"FAILED: 1 of 1 packages: a (") || !strings.Contains(out, "the agent starts") {
		t.Errorf("no %q in:\n%s", want, out)
	}
	all, err := readReport(report)
	testproc.Check(t, err)
	var summary bytes.Buffer
	all.writeFailed(&summary)
	if diff := cmp.Diff(want, summary.String()); diff != "" {
		t.Error(diff)
	}
}

func TestNotRunIsATable(t *testing.T) {
	project(t, map[string]string{"a": passing +
		"\nfunc TestC(t *testing.T) { t.Skip(\"NOT TESTED: no libvirt: apt-get install libvirt-daemon-system\") }\n"})
	passed, out := show(t)
	if want := "\nNot run on this machine:\n  a  TestC  no libvirt: apt-get install libvirt-daemon-system\n\n" +
		"2 tests of 1"; !passed || !strings.Contains(out, want) {
		t.Errorf("passed: %v, want %q in:\n%s", passed, want, out)
	}
}

// flakyTest fails at its first run, and at all with "always".
const flakyTest = `func TestFlaky(t *testing.T) {
	t.Log("FLAKY: a port")
	if _, err := os.Stat("ran"); err != nil || %always% {
		_ = os.WriteFile("ran", nil, 0o600)
		t.Error("by chance")
	}
}
`

func TestFlakyTestsAreRepeatedOnce(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	project(t, map[string]string{"a": strings.ReplaceAll(flakyTest, "%always%", "false") + passing})
	t.Setenv("TEST_REPORT", report)
	passed, out := show(t, "-count=1")
	if want := "3 tests of 1 packages passed; 1 only when repeated: TestFlaky ("; !passed ||
		!strings.Contains(out, want) {
		t.Errorf("passed: %v, want %q in:\n%s", passed, want, out)
	}
	all, err := readReport(report)
	testproc.Check(t, err)
	var summary bytes.Buffer
	all.writeSlowest(&summary)
	if diff := cmp.Diff([]string{"TestFlaky"}, all.Packages[0].Flaky); diff != "" ||
		!strings.Contains(summary.String(), "repeated: 1\n") {
		t.Errorf("%s\n%s", diff, summary.String())
	}
}

func TestWhatIsLeftToOtherCommitsIsNamed(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	project(t, map[string]string{"a": "func TestLong(t *testing.T) { t.Skip(\"not drawn: by chance\") }\n\nfunc " +
		"TestNone(t *testing.T) { t.Skip(\"no matter\") }\n"})
	t.Setenv("TEST_REPORT", report)
	const want = "Left to other commits: TestLong\n"
	passed, out := show(t)
	if !passed || !strings.Contains(out, want) {
		t.Errorf("passed: %v:\n%s", passed, out)
	}
	all, err := readReport(report)
	testproc.Check(t, err)
	var summary bytes.Buffer
	all.writeLeft(&summary)
	testproc.Equal(t, summary.String(), want, "the summary is %q")
}

func TestFlakyTestsThatFailAgainFail(t *testing.T) {
	project(t, map[string]string{"a": strings.ReplaceAll(flakyTest, "%always%", "true")})
	if passed, out := show(t); passed {
		t.Errorf("it passed:\n%s", out)
	}
}

func TestOtherFailuresAreNotRepeated(t *testing.T) {
	project(t, map[string]string{"a": strings.ReplaceAll(flakyTest, "%always%", "false") +
		"\nfunc TestWrong(t *testing.T) { t.Error(\"wrong\") }\n"})
	if passed, out := show(t); passed || strings.Contains(out, "Once more") {
		t.Errorf("passed: %v:\n%s", passed, out)
	}
}

func TestSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, write := io.Pipe()
		var out bytes.Buffer
		var r results
		ended := make(chan error)
		go func() { ended <- r.read(&out, events) }()
		send := func(after time.Duration, action, name string, test ...string) {
			time.Sleep(after)
			testproc.Try(fmt.Fprintf(write, `{"Action": %q, "Package": %q, "Test": %q}`+"\n", action, module+name,
				strings.Join(test, "/"))).Or(t)
		}
		send(silent+time.Second, "start", "b")
		send(0, "start", "a")
		send(silent, "pass", "b")
		for _, test := range []string{"A", "B", "C", "D"} {
			send(0, "run", "a", test)
		}
		send(0, "pause", "a", "B")
		send(0, "run", "a", "C", "sub")
		send(silent, "pass", "a", "A")
		send(0, "cont", "a", "B")
		send(0, "run", "a", "E")
		send(silent, "pass", "a", "C")
		send(silent-2*time.Second, "fail", "a")
		send(silent-time.Second, "start", "c")
		send(0, "skip", "c")
		testproc.Check(t, write.Close())
		testproc.Check(t, <-ended)
		want := `...   compiling; 0 packages have ended
...   running a, b; 0 packages have ended
...   running a (A, C, D); 1 packages have ended
...   running a; 1 packages have ended
FAIL  a                                              0.0s     2 tests
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	})
}
