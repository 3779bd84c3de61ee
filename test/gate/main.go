// SPDX-License-Identifier: Apache-2.0

// Command gate runs go test for the Makefile and says what came of it.
//
//	gate PACKAGE... -- FLAG... [-args ARG...]   run go test with the flags on the packages
//	gate -summary                               print the slowest packages of all runs of a
//	                                            report, and what the tests that failed said
//
// It prints a line for each package, the output of tests that failed, a table of the tests that
// this machine could not run ([testproc.NotRun]), and those that are left to other commits
// ([testproc.Drawn]). A test that is marked as flaky
// ([testproc.Flaky]) runs once more if it fails. With TEST_REPORT, the results are also appended to
// that file, for -summary. The exit code is 0 if all tests passed, 1 if not and 64 for wrong usage.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	args := os.Args[1:]
	if slices.Equal(args, []string{"-summary"}) {
		all, err := readReport(os.Getenv("TEST_REPORT"))
		if err != nil {
			fmt.Fprintf(os.Stderr, "gate: %v\n", err)
			os.Exit(1)
		}
		all.writeSlowest(os.Stdout)
		all.writeLeft(os.Stdout)
		all.writeNotRun(os.Stdout)
		all.writeFailed(os.Stdout)
		return
	}
	at := slices.Index(args, "--")
	if at < 1 {
		fmt.Fprintln(os.Stderr, "usage: gate PACKAGE... -- FLAG... [-args ARG...]\n       gate -summary")
		os.Exit(64)
	}
	passed, err := gate(os.Stdout, args[:at], args[at+1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "gate: %v\n", err)
		os.Exit(1)
	}
	if !passed {
		os.Exit(1)
	}
}

// gate runs go test on packages, repeats flaky tests, prints and reports the results, and returns
// whether all tests passed.
func gate(out io.Writer, packages, flags []string) (passed bool, err error) {
	begin := time.Now()
	r, err := run(out, packages, flags)
	if err != nil {
		return false, err
	}
	for _, p := range r.Packages {
		again := p.onlyFlaky()
		if len(again) == 0 {
			continue
		}
		fmt.Fprintf(out, "Once more, because they are marked as flaky: %s of %s\n",
			strings.Join(again, ", "), p.short())
		second, err := run(out, []string{p.Name}, withRun(flags, again))
		if err != nil {
			return false, err
		}
		p.repeat(second)
	}
	r.writeLeft(out)
	r.writeNotRun(out)
	r.writeFailed(out)
	fmt.Fprintf(out, "%s (%s)\n", r.verdict(), time.Since(begin).Round(time.Second))
	return r.passed(), r.append(os.Getenv("TEST_REPORT"))
}

// withRun has go test flags select some tests alone.
func withRun(flags, tests []string) []string {
	selected := "-run=^(" + strings.Join(tests, "|") + ")$"
	at := slices.Index(flags, "-args")
	if at < 0 {
		at = len(flags)
	}
	return slices.Insert(slices.Clone(flags), at, selected)
}

// run runs go test once.
func run(out io.Writer, packages, flags []string) (*results, error) {
	at := slices.Index(flags, "-args")
	if at < 0 {
		at = len(flags)
	}
	args := slices.Concat([]string{"test", "-json"}, flags[:at], packages, flags[at:])
	cmd := exec.Command("go", args...) //nolint:noctx // it runs what the caller asks for, to its end
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &results{}
	err = r.read(out, stdout)
	ended := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err != nil:
		return nil, err
	case ended != nil && !errors.As(ended, &exit):
		return nil, ended
	case ended != nil && r.passed():
		return nil, fmt.Errorf("go test ended with %w, and no test failed", ended)
	}
	return r, nil
}

// silent is how long nothing is printed before a line says what goes on.
const silent = 30 * time.Second

// read reads the events of go test -json, and prints what becomes of packages.
func (r *results) read(out io.Writer, events io.Reader) error {
	lines := make(chan []byte)
	var failed error
	go func() {
		defer close(lines)
		for events := bufio.NewReader(events); ; {
			line, err := events.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failed = err
				}
				return
			}
		}
	}()
	progress := time.NewTicker(silent)
	defer progress.Stop()
	for {
		select {
		case <-progress.C:
			r.writeProgress(out)
		case line, more := <-lines:
			if !more {
				return failed
			}
			var text bytes.Buffer
			var e event
			if json.Unmarshal(line, &e) != nil { // go test itself writes some lines as text
				text.Write(line)
			} else {
				r.add(&text, e)
			}
			if text.Len() > 0 {
				_, _ = out.Write(text.Bytes()) // at once: others may write between
				progress.Reset(silent)
			}
		}
	}
}
