// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTreeShowsProductNames: the names of the driver are beside the providers, escaped, and bounded
// before they reach the agent's clients. No other command shows them.
func TestTreeShowsProductNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	path := filepath.Join(s.dir, "agent.toml")
	content := testproc.Try(os.ReadFile(path)).Or(t)
	names := `product_names = {"" = "Acme\u001b[2J\nServer", gpu0 = "` + strings.Repeat("x", 300) +
		`", gpu1 = "of no provider"}` + "\n"
	check(t, os.WriteFile(path, append(content, names...), 0o600))
	defer s.agent()()

	const server = `Acme\u001b[2J; Server`
	gpu := strings.Repeat("x", 197) + "..."
	shown := s.says(0, []string{"tree"})
	for name, product := range map[string]string{"cn1": server, "└─ cn1_gpu0": gpu} {
		if !regexp.MustCompile(`(?m)^` + name + `  \S+  generation \d+  ` + regexp.QuoteMeta(product) + `$`).
			MatchString(shown) {
			t.Errorf("%s is not shown as %q:\n%s", name, product, shown)
		}
	}
	var tree control.Tree
	check(t, json.Unmarshal([]byte(s.says(0, []string{"tree", "--output", "json"})), &tree))
	got := map[string]string{}
	for _, p := range tree.Nodes[0].Providers {
		got[p.Name] = p.ProductName
	}
	if len(got) != 2 || got["cn1"] != server || got["cn1_gpu0"] != gpu {
		t.Errorf("as JSON: %q", got)
	}
	for _, command := range []string{"status", "plan"} {
		if text := s.says(0, []string{command}); strings.Contains(text, "Acme") {
			t.Errorf("%s shows the names:\n%s", command, text)
		}
	}
}
