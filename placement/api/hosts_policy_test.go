// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRulesForHosts: a policy file opens and closes what hosts may do. Rules for users say nothing
// of hosts, and rules for hosts nothing of users, whatever roles they name.
func TestRulesForHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		join = `{"resource_provider_generation":5,"aggregates":["` + agg1 + `","` + agg2 + `"]}`
		all  = "\"placement:hosts:own_tree\": \"role:host\"\n\"placement:resource_providers:list\": \"role:host or " +
			"role:admin\"\n"
	)
	heal := call{method: "PUT", path: "/allocations/" + onNone, body: holding(allocated(root1, "VCPU", 1), "null")}
	for name, c := range map[string]struct {
		file string
		call call
		as   string
		want int
	}{
		"aggregates": {"\"placement:hosts:aggregates\": \"role:host\"\n",
			call{method: "PUT", path: "/resource_providers/" + root1 + "/aggregates", body: join}, "h1", 200},
		"aggregates of another host": {"\"placement:hosts:aggregates\": \"user_id:h2\"\n",
			call{method: "PUT", path: "/resource_providers/" + root1 + "/aggregates", body: join}, "h1", 403},
		"aggregates of this host": {"\"placement:hosts:aggregates\": \"user_id:h1\"\n",
			call{method: "PUT", path: "/resource_providers/" + root1 + "/aggregates", body: join}, "h1", 200},
		"sharing": {"\"placement:hosts:sharing\": \"role:host\"\n",
			call{method: "PUT", path: "/resource_providers/" + root1 + "/traits",
				body: `{"resource_provider_generation":5,"traits":["MISC_SHARES_VIA_AGGREGATE"]}`}, "h1", 200},
		"healing":                 {mayHeal, heal, "h1", 204},
		"healing by another host": {"\"placement:hosts:heal\": \"user_id:h2\"\n", heal, "h1", 403},
		"no allocations": {"\"placement:hosts:allocations\": \"!\"\n",
			call{method: "GET", path: "/allocations/" + onHost1}, "h1", 403},
		"no names": {"\"placement:hosts:names\": \"!\"\n",
			call{method: "PUT", path: "/traits/CUSTOM_A"}, "h1", 403},
		"no hosts": {"\"placement:hosts:own_tree\": \"!\"\n",
			call{method: "GET", path: "/resource_providers/" + root1}, "h1", 403},
		"a rule for users": {all, call{method: "GET", path: "/resource_providers"}, "h1", 403},
		"a user with the role host": {all,
			call{method: "GET", path: "/resource_providers/" + root1, headers: []string{"X-Roles: host"}}, "user", 403},
		"such a user, by that rule": {all,
			call{method: "GET", path: "/resource_providers", headers: []string{"X-Roles: host"}}, "user", 200},
	} {
		t.Run(name, func(t *testing.T) {
			policy := policyOf(t, api.Secure, c.file)
			_, l := hostsWorld(t)
			h := newAPI(t,
				func(cfg *api.Config) { cfg.Authenticator, cfg.Ledger, cfg.Policy = knowsHosts{}, l, policy })
			c.call.status = c.want
			c.call.as(c.as).do(t, h)
		})
	}
}

// policyOf is a policy with a file of these rules.
func policyOf(t testing.TB, defaults api.Defaults, rules string) api.Policy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	testproc.Check(t, os.WriteFile(file, []byte(rules), 0o600))
	return testproc.Try(api.OpenPolicy(defaults, file, zerolog.Nop())).Or(t)
}

// mayHeal lets hosts give consumers without allocations some.
const mayHeal = "\"placement:hosts:heal\": \"role:host\"\n"
