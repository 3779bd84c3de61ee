// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHelpFiles: each file in help/ is the text of a command, each paragraph that they share is in
// one, and each command that does something has a text, or a line in the list of commands that says
// everything.
func TestHelpFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	short := strings.Fields("ca-show cells-manage-enable cells-manage-list config-defaults plugin-info plugin-list " +
		"reshape-history reshape-show version")
	files := map[string]bool{}
	entries, err := helpFiles.ReadDir("help")
	check(t, err)
	for _, e := range entries {
		files[e.Name()] = true
	}
	var used strings.Builder
	for _, c := range cli.AllCommands(newRoot()) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		says := files[name+".txt"]
		delete(files, name+".txt")
		if says != (c.Long != "") {
			t.Errorf("%s has the text %q", name, c.Long)
		}
		if !says {
			if !c.HasSubCommands() && !slices.Contains(short, strings.TrimPrefix(name, "compute-agent-")) {
				t.Errorf("there is no file help/%s.txt", name)
			}
			continue
		}
		text, err := helpFiles.ReadFile("help/" + name + ".txt")
		check(t, err)
		used.Write(text)
	}
	delete(files, "shared.tmpl")
	for name := range files {
		t.Errorf("help/%s belongs to no command", name)
	}
	for _, paragraph := range helpTexts().Templates() {
		name := paragraph.Name()
		if !strings.Contains(name, ".") && !strings.Contains(used.String(), `{{template "`+name+`"`) {
			t.Errorf("help/shared.tmpl: no command has the paragraph %q", name)
		}
	}
}
