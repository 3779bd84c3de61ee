// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunbooksNameExistingCommands: each command of compute-agent in the runbooks, which include
// the hints of the conditions, exists with its flags.
func TestRunbooksNameExistingCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatal(err, pages)
	}
	found := 0
	for _, page := range pages {
		content, err := os.ReadFile(page) //nolint:gosec // a file of the repository
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`compute-agent ([a-z][^`]*)`").FindAllStringSubmatch(string(content), -1) {
			found++
			args := strings.Fields(m[1])
			cmd, rest, err := newRoot().Find(args)
			if err != nil || !cmd.HasParent() {
				t.Errorf("%s: there is no command %q: %v", page, m[0], err)
				continue
			}
			for _, arg := range rest {
				name, isFlag := strings.CutPrefix(arg, "--")
				if isFlag && name != "help" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s: %q has no flag %s", page, m[0], arg)
				}
				if !isFlag && cmd.HasSubCommands() {
					t.Errorf("%s: %q: there is no such command", page, m[0])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands are found", found)
	}
}
