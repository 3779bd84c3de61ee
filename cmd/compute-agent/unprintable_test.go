// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestUnprintableNames: names of resource providers that another client wrote neither control the
// terminal nor forge lines, in any command; JSON has them as they are.
func TestUnprintableNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	root := s.identity()
	const evil = "evil\x1b[2J\r\u202egnp\u009b31m\n  1. nothing"
	body := testproc.Try(json.Marshal(map[string]string{"name": evil, "parent_provider_uuid": root})).Or(t)
	s.request("POST", "/resource_providers", string(body), nil)
	stop := s.agent()
	look := func(args ...string) {
		t.Helper()
		_, stdout, stderr := s.run(args...)
		for _, r := range stdout + stderr {
			if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
				t.Errorf("%q prints %q:\n%q", args, r, stdout+stderr)
				break
			}
		}
		if strings.Contains(stdout+stderr, "\n  1. nothing") {
			t.Errorf("%q prints a line that is a name's:\n%s", args, stdout+stderr)
		}
	}
	shown := s.says(0, []string{"tree"})
	testproc.Contains(t, shown, textutil.Printable(evil), "the tree does not have the name, escaped:\n%s")
	var tree any
	if text := s.says(0, []string{"tree", "--output", "json"}); json.Unmarshal([]byte(text), &tree) != nil ||
		!strings.Contains(text, `evil\u001b[2J\r\u202egnp\u009b31m\n`) {
		t.Errorf("as JSON: %s", text)
	}
	for _, args := range [][]string{{"tree"}, {"tree", "--traits"}, {"status"}, {"plan"},
		{"node", "list"}, {"allocations", "audit"}} {
		look(args...)
	}
	stop()
	for _, args := range [][]string{{"tree"}, {"plan"}, {"plan", "--reshape"}, {"node", "list"},
		{"node", "remove", "cn1", "--dry-run"}, {"adopt", "--uuid", root, "--dry-run"}} {
		look(args...)
	}
	if text := s.says(0, []string{"adopt", "--uuid", root, "--dry-run"}); !strings.Contains(
		text, textutil.Printable(evil)) {
		t.Errorf("adopt does not show the name, escaped:\n%s", text)
	}
}
