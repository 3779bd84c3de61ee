// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// ed25519Key is a public key, and its fingerprint by ssh-keygen -E md5.
const (
	ed25519Key   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI drivertest"
	ed25519Print = "aa:f3:62:0a:e3:f7:fb:d3:44:a6:4f:9b:b6:8a:fe:16"
)

func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// importing is the body that imports a key.
func importing(name, key string) string {
	return fmt.Sprintf(`{"keypair":{"name":%s,"public_key":%s}}`, quoted(name), quoted(key))
}

// TestKeyPairsOfEachMicroversion: statuses and members, as Nova's own schemas of responses have
// them.
func TestKeyPairsOfEachMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withCalls()
	const path = "/v2.1/os-keypairs"
	for _, tt := range []struct {
		version         string
		create, destroy int
		typed           bool
	}{{"2.1", 200, 202, false}, {"2.2", 201, 204, true}, {"2.10", 201, 204, true}, {"2.71", 201, 204, true}} {
		brief := map[string]any{"name": "k", "public_key": ed25519Key, "fingerprint": ed25519Print}
		if tt.typed {
			brief["type"] = "ssh"
		}
		made := map[string]any{"user_id": "u-p1"}
		for name, value := range brief {
			made[name] = value
		}
		whole := map[string]any{"id": 0.0, "created_at": "2024-05-01T12:00:00.000000", "deleted": false,
			"deleted_at": nil, "updated_at": nil}
		for name, value := range made {
			whole[name] = value
		}
		check := func(what string, got reply, status int, want any) {
			t.Helper()
			if pair, is := got.body["keypair"].(map[string]any); is && pair["id"] != nil {
				pair["id"] = 0.0
			}
			if diff := gocmp.Diff(want, any(got.body)); diff != "" || got.status != status {
				t.Errorf("%s %s: %d (-want +got)\n%s", tt.version, what, got.status, diff)
			}
		}
		check("create", c.do(member, tt.version, "POST", path, importing("k", ed25519Key)), tt.create,
			map[string]any{"keypair": made})
		check("show", c.ask(member, tt.version, path+"/k"), 200, map[string]any{"keypair": whole})
		check("list", c.ask(member, tt.version, path), 200,
			map[string]any{"keypairs": []any{map[string]any{"keypair": brief}}})
		check("delete", c.do(member, tt.version, "DELETE", path+"/k", ""), tt.destroy, map[string]any(nil))
	}
}

// TestKeyPairRefusals: in Nova's words.
func TestKeyPairRefusals(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	_, quotas := c.withCalls()
	quotas.defaults["key_pairs"] = 2
	const path = "/v2.1/os-keypairs"
	no := "forbidden: Policy doesn't allow os_compute_api:os-keypairs:"
	for _, tt := range []struct {
		who, version, method, path, body string
		status                           int
		says                             string
	}{
		{member, "2.1", "POST", "", `{"keypair":{"name":"a/b","public_key":"x"}}`, 400,
			`badRequest: Invalid input for field/attribute name. Value: a/b. 'a/b' does not match '^[_\\- ` +
				`a-zA-Z0-9]+$'`},
		{member, "2.1", "POST", "", `{"keypair":{"name":"k","type":"ssh"}}`, 400,
			"badRequest: Invalid input for field/attribute keypair. Value: {'name': 'k', 'type': 'ssh'}. Additional " +
				"properties are not allowed ('type' was unexpected)"},
		{member, "2.2", "POST", "", `{"keypair":{"name":"k","type":"pgp"}}`, 400,
			"badRequest: Invalid input for field/attribute type. Value: pgp. 'pgp' is not one of ['ssh', 'x509']"},
		{member, "2.2", "POST", "", `{"keypair":{"name":"k","type":"x509"}}`, 400,
			"badRequest: type: this service makes no X.509 certificates; send one as public_key."},
		{member, "2.2", "POST", "", importing("k", "ssh-rsa AAAA"), 400,
			"badRequest: Keypair data is invalid: failed to generate fingerprint"},
		{member, "2.2", "POST", "", importing("k", ""),
			400, "badRequest: Keypair data is invalid: failed to generate fingerprint"},
		{member, "2.2", "POST", "", importing("k", ed25519Key+strings.Repeat("x", plugins.MaxPublicKey)), 400,
			fmt.Sprintf("badRequest: Keypair data is invalid: a public key has at most %d bytes, and none of them is 0",
				plugins.MaxPublicKey)},
		{member, "2.2", "POST", "", importing("k", ed25519Key+"\x00"), 400,
			fmt.Sprintf("badRequest: Keypair data is invalid: a public key has at most %d bytes, and none of them is 0",
				plugins.MaxPublicKey)},
		{reader, "2.2", "POST", "", importing("one", ed25519Key), 201, ""}, // it is the user's own
		{member, "2.2", "POST", "", importing("one", ed25519Key), 409,
			"conflictingRequest: Key pair 'one' already exists."},
		{administrator, "2.10", "POST", "", `{"keypair":{"name":"their own","user_id":"u-p2","public_key":` +
			quoted(ed25519Key) + `}}`, 201, ""},
		{member, "2.10", "POST", "", `{"keypair":{"name":"x","user_id":"u-p2","public_key":"x"}}`, 403,
			no + "create to be performed."},
		{member, "2.9", "GET", "?user_id=u-p2", "", 200, ""}, // left out
		{member, "2.10", "GET", "?user_id=u-p2", "", 403, no + "index to be performed."},
		{member, "2.10", "GET", "/their%20own?user_id=u-p2", "", 403, no + "show to be performed."},
		{member, "2.10", "DELETE", "/their%20own?user_id=u-p2", "", 403, no + "delete to be performed."},
		{administrator, "2.10", "GET", "/their%20own?user_id=u-p2", "", 200, ""},
		{member2, "2.10", "GET", "/their%20own", "", 200, ""},
		{member, "2.10", "GET", "/their%20own", "", 404, "itemNotFound: Keypair their own not found for user u-p1"},
		{member, "2.10", "DELETE", "/none", "", 404, "itemNotFound: Keypair none not found for user u-p1"},
		{member, "2.35", "GET", "?marker=none", "", 400, "badRequest: Marker none could not be found."},
		{member, "2.35", "GET", "?limit=x", "", 400,
			"badRequest: Invalid input for query parameters limit. Value: x. 'x' does not match '^[0-9]*$'"},
		{member, "2.34", "GET", "?limit=x&marker=none", "", 200, ""},
		{member, "2.2", "POST", "", importing("two", ed25519Key), 201, ""},
		{member, "2.2", "POST", "", importing("three", ed25519Key), 403,
			"forbidden: Quota exceeded, too many key pairs."},
		{member, "2.2", "POST", "", `{"keypair":{"name":"three"}}`, 403,
			"forbidden: Quota exceeded, too many key pairs."},
		{"nobody", "2.2", "GET", "", "", 401, ""},
	} {
		got := c.do(tt.who, tt.version, tt.method, path+tt.path, tt.body)
		if got.status != tt.status || tt.says != "" && got.message() != tt.says {
			t.Errorf("%s %s %s%s %.100s:\n%d %s, not\n%d %s", tt.who, tt.version, tt.method, tt.path, tt.body,
				got.status, got.message(), tt.status, tt.says)
		}
	}
}

// TestKeyPairPages: from 2.35 on lists have pages, each with a link to the next.
func TestKeyPairPages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{MaxLimit: 2})
	c.withCalls()
	for _, name := range []string{"c", "a", "b"} {
		c.do(member, "2.2", "POST", "/v2.1/os-keypairs", importing(name, ed25519Key))
	}
	for _, tt := range []struct{ version, query, names, next string }{
		{"2.34", "", "[a b c]", ""},
		{"2.35", "", "[a b]", "http://compute/v2.1/os-keypairs?marker=b"},
		{"2.35", "?limit=1&marker=a", "[b]", "http://compute/v2.1/os-keypairs?limit=1&marker=b"},
		{"2.35", "?limit=5&marker=b", "[c]", ""},
		{"2.35", "?limit=0", "[]", ""},
	} {
		got := c.ask(member, tt.version, "/v2.1/os-keypairs"+tt.query)
		names := []string{}
		for _, pair := range got.body["keypairs"].([]any) {
			names = append(names, pair.(map[string]any)["keypair"].(map[string]any)["name"].(string))
		}
		next := ""
		if links, has := got.body["keypairs_links"].([]any); has {
			next = links[0].(map[string]any)["href"].(string)
		}
		if fmt.Sprint(names) != tt.names || next != tt.next {
			t.Errorf("%s %s: %v %s, not %s %s", tt.version, tt.query, names, next, tt.names, tt.next)
		}
	}
}

// TestGeneratedKey: ssh-keygen reads the private key, and gets the public one and the fingerprint
// from it.
func TestGeneratedKey(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withCalls()
	pair := c.do(member, "2.2", "POST", "/v2.1/os-keypairs", `{"keypair":{"name":"new"}}`).
		body["keypair"].(map[string]any)
	file := filepath.Join(t.TempDir(), "key")
	testproc.Check(t, os.WriteFile(file, []byte(pair["private_key"].(string)), 0o600))
	public := strings.Fields(testproc.SSHKeygen(t, "-y", "-f", file))
	if got := strings.Fields(pair["public_key"].(string)); got[0] != public[0] || got[1] != public[1] ||
		got[2] != "Generated-by-Nova" {
		t.Errorf("the public key is %v, and that of the private one %v", got, public)
	}
	if said := testproc.SSHKeygen(t, "-l", "-E", "md5",
		"-f", file); !strings.Contains(said, "2048 MD5:"+pair["fingerprint"].(string)+" ") {
		t.Errorf("the fingerprint is %s, and ssh-keygen's %s", pair["fingerprint"], said)
	}
	if shown := c.ask(member, "2.2", "/v2.1/os-keypairs/new"); strings.Contains(shown.text, "PRIVATE") {
		t.Error("the private key was kept")
	}
}

// TestServerWithKey: a server gets the name and the public key of a key pair of its user, and keeps
// them; another user's is unknown.
func TestServerWithKey(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, _ := c.withCalls()
	c.withFlavors()
	c.do(member, "2.2", "POST", "/v2.1/os-keypairs", importing("my key", ed25519Key))
	boot := `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none","key_name":"my key"}}`
	if got := c.do(member, "2.69", "POST", "/v2.1/servers", boot); got.status != 202 ||
		boots.asked[0].KeyName != "my key" || boots.asked[0].KeyData != ed25519Key {
		t.Errorf("POST /servers with a key: got %d %s: %+v, want it requested with the key",
			got.status, got.text, boots.asked)
	}
	if got := c.do(member2, "2.69", "POST", "/v2.1/servers",
		boot); got.message() != "badRequest: Invalid key_name provided." {
		t.Errorf("POST /servers with another user's key: got %d %s, want 400", got.status, got.text)
	}
	s := server(1, "s1")
	s.KeyName, s.KeyData = "my key", ed25519Key
	c.has(1, s)
	if got := c.ask(member, "2.1", "/v2.1/servers/"+s.UUID).
		body["server"].(map[string]any)["key_name"]; got != "my key" {
		t.Errorf("key_name is %v", got)
	}
}
