// SPDX-License-Identifier: Apache-2.0

// Package golden compares what a test got with a file of the repository. With the flag -update,
// which it registers for every test that imports it, it writes the files instead.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Text fails the test where got is not the content of a file; with -update it writes the file. The
// path is relative to the directory of the test.
func Text(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	testproc.Check(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs; if that is meant, run: go test %s -run '^%s$' -update (-want +got):\n%s",
			file, here(), t.Name(), diff)
	}
}

// here is the directory of the test, from the top of the module.
func here() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for top := dir; top != filepath.Dir(top); top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "go.mod")); err == nil {
			return "." + strings.TrimPrefix(dir, top)
		}
	}
	return "."
}

// Section compares got with the part of a file between two lines, and replaces that part with
// -update.
func Section(t testing.TB, file, begin, end, got string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testproc.Check(t, err)
	before, rest, found := strings.Cut(string(text), begin+"\n")
	_, after, ended := strings.Cut(rest, end+"\n")
	if !found || !ended {
		t.Fatalf("%s has no section between %q and %q", file, begin, end)
	}
	Text(t, file, before+begin+"\n"+got+end+"\n"+after)
}

var versions = regexp.MustCompile(`(go|version)="[^"]*"`)

// Metrics compares a page of metrics with a file, without the metrics of the Go runtime and of the
// process, which must be there, and without versions. The page must pass Prometheus's lint.
func Metrics(t testing.TB, file, page string) {
	t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(page) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			kept.WriteString(versions.ReplaceAllString(line, `$1="…"`))
		}
	}
	Text(t, file, kept.String())
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%s: %v, %v", file, problems, err)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if strings.Count(page, "\n"+name+" ") != 1 {
			t.Errorf("%s: %s is missing", file, name)
		}
	}
}
