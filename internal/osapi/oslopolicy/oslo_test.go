// SPDX-License-Identifier: Apache-2.0

package oslopolicy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// decide makes oslo.policy decide: each rule for each caller and target, as a list of lists of
// lists.
const decide = `
import json, sys
from oslo_policy import _checks, _parser
asked = json.load(sys.stdin)
class Enforcer: rules = {name: _parser.parse_rule(rule) for name, rule in asked["base"].items()}
print(json.dumps([[[bool(_checks._check(_parser.parse_rule(rule), dict(target), caller, Enforcer, "it"))
    for target in asked["targets"]] for caller in asked["callers"]] for rule in asked["rules"]]))
`

// TestRealOslo compares decisions with those of oslo.policy itself, on random rules.
func TestRealOslo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import oslo_policy").CombinedOutput(); err != nil {
		testproc.NotRun(t, "no oslo.policy (Debian package: python3-oslo.policy, which python3-placement brings): "+
			string(out))
	}
	base := map[string]string{"one": "role:a or role:b and not role:c", "two": "rule:one and project_id:%(project_id)s"}
	random := rand.New(rand.NewPCG(1, 2))
	checks := []string{"@", "!", "role:a", "role:B", "role:c", "rule:one", "rule:two", "project_id:%(project_id)s",
		"user_id:%(user_id)s", "user_id:u", "project_id:q", "system_scope:all"}
	var rule func(depth int) string
	rule = func(depth int) string {
		switch n := random.IntN(6); {
		case depth == 0 || n == 0:
			return checks[random.IntN(len(checks))]
		case n == 1:
			return "not " + checks[random.IntN(len(checks))]
		case n == 2:
			return "not (" + rule(depth-1) + ")"
		case n == 3:
			return "(" + rule(depth-1) + ")"
		default:
			return rule(depth-1) + []string{" and ", " or ", " AND ", "\n or "}[random.IntN(4)] + rule(depth-1)
		}
	}
	rules := []string{"", "role:a or role:b and role:c", "role:a and role:b or role:c", "not role:a and role:b",
		"(role:a or role:b) and not (role:c)"}
	for range 1000 {
		rules = append(rules, rule(3))
	}
	type attributes map[string]any
	callers := []attributes{
		{"user_id": "u", "project_id": "p", "roles": []string{"a", "c"}},
		{"user_id": "v", "project_id": "q", "roles": []string{"b"}},
		{"user_id": "u", "roles": []string{"A"}, "system_scope": "all"},
		{"user_id": "w", "project_id": "p", "roles": []string{}},
	}
	targets := []attributes{{"project_id": "p", "user_id": "u"}, {"project_id": "q"}, {}}
	asked, err := json.Marshal(map[string]any{"base": base, "rules": rules, "callers": callers, "targets": targets})
	testproc.Check(t, err)
	cmd := exec.Command(python, "-W", "ignore", "-c", decide)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running oslo.policy: %v: %s", err, stderr.String())
	}
	var want [][][]bool
	if err := json.Unmarshal(out, &want); err != nil || len(want) != len(rules) {
		t.Fatalf("%d decisions on %d rules: %v", len(want), len(rules), err)
	}
	word := func(a attributes, name string) string { s, _ := a[name].(string); return s }
	for i, text := range rules {
		compiled, err := Compile(map[string]string{"it": text, "one": base["one"], "two": base["two"]})
		if err != nil {
			t.Errorf("Compile(%q): %v", text, err)
			continue
		}
		for j, c := range callers {
			roles, _ := c["roles"].([]string)
			caller := osapi.Principal{User: word(c, "user_id"), Project: word(c, "project_id"),
				SystemScope: c["system_scope"] != nil, Roles: strings.Fields(strings.ToLower(strings.Join(roles, " ")))}
			for k, target := range targets {
				got := compiled.Pass("it", &caller,
					Target{Project: word(target, "project_id"), User: word(target, "user_id")})
				if got != want[i][j][k] {
					t.Errorf("%q, caller %v, target %v: %t, oslo.policy says %t",
						text, c, fmt.Sprint(target), got, want[i][j][k])
				}
			}
		}
	}
}
