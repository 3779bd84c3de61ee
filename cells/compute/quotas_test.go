// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLimitsAndQuotasAsInNova shows and sets limits as the recordings do.
func TestLimitsAndQuotasAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	_, quotas := c.withCalls()
	quotas.usage["p1"] = cellwire.Usage{Instances: 10, Cores: 10, RAM: 8192}
	quotas.usage["p2"] = cellwire.Usage{Instances: 2, Cores: 2, RAM: 1024}
	testproc.Check(t, c.store.SetQuotas(context.Background(), "p1", apidb.QuotaSet{"instances": 20, "cores": 100}))
	calls := recordedCalls(t, "nova_quotas.json")
	noUsers := "badRequest: user_id: this service has no quotas of single users; set those of the project."
	c.replay(calls, map[string]ours{
		"show-unknown-project":   {why: "Keystone is not asked which projects there are", status: 200},
		"put-unknown-project":    {why: "Keystone is not asked which projects there are", status: 200},
		"put-user":               {why: "there are no quotas of users", status: 400, says: noUsers},
		"put-user-above-project": {why: "there are no quotas of users", status: 400, says: noUsers},
		"collection": {why: "errors have one form", status: 404,
			says: "itemNotFound: The resource could not be found."},
	}, asIs)
}

// TestDetailOfAUser: the limits of one user are those of the project; the usage is the user's, as
// in Nova.
func TestDetailOfAUser(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	_, quotas := c.withCalls()
	quotas.usage["p9"] = cellwire.Usage{Instances: 2, Cores: 8, RAM: 4096}
	quotas.usage["p9 u1"] = cellwire.Usage{Instances: 1, Cores: 3, RAM: 1024}
	for _, user := range []string{"u1", "u2", "u2"} {
		testproc.Try(c.store.CreateServerGroup(t.Context(),
			apidb.ServerGroup{Name: "g", ProjectID: "p9", UserID: user, Policy: apidb.PolicyAffinity}, nil)).Or(t)
	}
	for query, want := range map[string][2]string{
		"": {`"cores":{"limit":20,"in_use":8,"reserved":0}`,
			`"server_groups":{"limit":10,"in_use":3,"reserved":0}`},
		"?user_id=u1": {`"cores":{"limit":20,"in_use":3,"reserved":0}`,
			`"server_groups":{"limit":10,"in_use":1,"reserved":0}`},
		"?user_id=": {`"cores":{"limit":20,"in_use":8,"reserved":0}`,
			`"server_groups":{"limit":10,"in_use":3,"reserved":0}`},
	} {
		got := c.ask(administrator, "2.69", "/v2.1/os-quota-sets/p9/detail"+query)
		for _, part := range want {
			testproc.Contains(t, got.text, part, "detail%s: %s", query, got.text)
		}
	}
}

// TestQuotasAreSetTogether: when one limit cannot be set, none is; and what is in use is not asked
// for when it does not matter.
func TestQuotasAreSetTogether(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	_, quotas := c.withCalls()
	quotas.usage["p9"] = cellwire.Usage{Instances: 2, Cores: 8, RAM: 4096}
	for _, tt := range []struct {
		body, says string
		set        apidb.QuotaSet // after it
	}{
		{body: `{"quota_set":{"ram":4096,"cores":7}}`,
			says: "badRequest: Quota limit 7 for cores must be greater than or equal to already used and reserved 8."},
		{body: `{"quota_set":{"ram":"4096","cores":-1}}`, set: apidb.QuotaSet{"ram": 4096, "cores": -1}},
		{body: `{"quota_set":{"cores":7,"force":"yes"}}`, set: apidb.QuotaSet{"ram": 4096, "cores": 7}},
		{body: `{"quota_set":{"cores":8,"force":"off"}}`, set: apidb.QuotaSet{"ram": 4096, "cores": 8}},
		{body: `{"quota_set":{"instances":1,"force":"no"}}`, set: apidb.QuotaSet{"ram": 4096, "cores": 8},
			says: "badRequest: Quota limit 1 for instances must be greater than or equal to already used and " +
				"reserved 2."},
		{body: `{"quota_set":{"key_pairs":0}}`, set: apidb.QuotaSet{"ram": 4096, "cores": 8, "key_pairs": 0}},
		{body: `{"quota_set":7}`, set: apidb.QuotaSet{"ram": 4096, "cores": 8, "key_pairs": 0},
			says: "badRequest: Invalid input for field/attribute quota_set. Value: 7. 7 is not of type 'object'"},
	} {
		got := c.do(administrator, "2.69", "PUT", "/v2.1/os-quota-sets/p9", tt.body)
		testproc.Equal(t, got.message(), tt.says, "%s: %d %s", tt.body, got.status)
		set := testproc.Try(c.store.Quotas(t.Context(), "p9")).Or(t)
		if len(set) == 0 {
			set = nil
		}
		testproc.Samef(t, gocmp.Diff(tt.set, set), "%s", tt.body)
	}
	quotas.err = errors.New("the usage cannot be counted")
	if got := c.do(administrator, "2.69", "PUT", "/v2.1/os-quota-sets/p9",
		`{"quota_set":{"cores":1,"force":true}}`); got.status != 200 {
		t.Errorf("forced: %d %s", got.status, got.text)
	}
	if got := c.ask(administrator, "2.69", "/v2.1/limits"); got.status != 500 {
		t.Errorf("limits without a usage: %d %s", got.status, got.text)
	}
}

// TestRemovedNetworksQuota: before 2.36 the schema still has it, so that the refusal can say why.
func TestRemovedNetworksQuota(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withCalls()
	got := c.do(administrator, "2.35", "PUT", "/v2.1/os-quota-sets/p9", `{"quota_set":{"networks":1}}`)
	if got.message() != "badRequest: The networks quota has been removed" {
		t.Errorf("a quota of networks: got %d %s, want 400", got.status, got.text)
	}
}
