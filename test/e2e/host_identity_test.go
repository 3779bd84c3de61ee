// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// authority is a CA of a site, with the files of its certificates.
type authority struct {
	t   *testing.T
	dir string
	ca  *pki.Authority
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.InitAuthority(filepath.Join(dir, "ca"), "site", time.Now())
	check(t, err, os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o600))
	return &authority{t, dir, ca}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes the certificate and the key of an identity to NAME.pem and NAME.key.
func (a *authority) issue(id pki.Identity) {
	a.t.Helper()
	key, text, err := pki.NewKey()
	check(a.t, err)
	pem := testproc.Try(pki.NewRequest(key, id.Name)).Or(a.t)
	request := testproc.Try(pki.ParseRequest(pem)).Or(a.t)
	id.Names = append(id.Names, id.Name)
	o := pki.SignOptions{Lifetime: time.Hour, Now: time.Now()}
	if id.Kind == pki.Service {
		o.Addresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	certificate, err := a.ca.Sign(request, id, o)
	check(a.t, err, os.WriteFile(a.file(id.Name+".pem"), certificate, 0o600),
		os.WriteFile(a.file(id.Name+".key"), text, 0o600))
}

// as is a client that trusts the CA, and shows the certificate of a name; "" for none.
func (a *authority) as(name string) *http.Client {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.ca.Certificate())
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	if name != "" {
		pair := testproc.Try(tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))).Or(a.t)
		c.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: c}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// newHostsWorld is a world whose Placement is a process that knows the scheduler by a token, and
// hosts by certificates of a CA. Its agents have that of cn1. The url of the world adds TLS to the
// requests of the other clients.
func newHostsWorld(t *testing.T) (w *world, a *authority, address string) {
	t.Helper()
	a = newAuthority(t)
	a.issue(pki.Identity{Kind: pki.Service, Name: "placement"})
	a.issue(pki.Identity{Kind: pki.Host, Name: "cn1"})
	tokens := a.file("tokens")
	check(t, os.WriteFile(tokens, fmt.Appendf(nil, "%x admin,service scheduler\n", sha256.Sum256([]byte("admin"))),
		0o600))
	// What an operator allows for such hosts: heal, and the rename of some reshapes.
	rules := a.file("policy.yaml")
	check(t, os.WriteFile(rules, []byte(`"placement:hosts:heal": "user_id:cn1"`+"\n"), 0o600))
	listen := testproc.FreeAddress(t)
	server := spawn(t, []string{
		"COMPUTE_AGENT_POLICY_FILE=" + rules, "COMPUTE_AGENT_PLACEMENT_HOST_CLASS_RENAMES=CUSTOM_GPU=VGPU",
		"COMPUTE_AGENT_PLACEMENT_TLS_CERT_FILE=" + a.file("placement.pem"),
		"COMPUTE_AGENT_PLACEMENT_TLS_KEY_FILE=" + a.file("placement.key"),
		"COMPUTE_AGENT_PLACEMENT_TLS_HOST_CA_FILE=" + a.file("ca.pem"),
	}, "compute-agent", "placement", "serve", "--listen", listen, "--state-dir", t.TempDir(),
		"--runtime-dir", testproc.SocketDir(t), "--auth", "token", "--token-file", tokens)
	server.await(0, "Serving the Placement API.")
	target := testproc.Try(url.Parse("https://" + listen)).Or(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = a.as("").Transport
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	w = newWorld(t, front.URL)
	w.env = []string{
		"COMPUTE_AGENT_PLACEMENT_CLIENT_URL=" + target.String(), "COMPUTE_AGENT_PLACEMENT_CLIENT_AUTH=certificate",
		"COMPUTE_AGENT_PLACEMENT_CLIENT_CA_FILE=" + a.file("ca.pem"),
		"COMPUTE_AGENT_PLACEMENT_CLIENT_CERT_FILE=" +
			a.file("cn1.pem"), "COMPUTE_AGENT_PLACEMENT_CLIENT_KEY_FILE=" + a.file("cn1.key"),
	}
	return w, a, target.String()
}

// TestReshapeAsHost: an agent that has the certificate of its host and no role does what one with
// the role service does.
func TestReshapeAsHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, i := range drawn(t, 2, len(reshapes)) {
		tc := reshapes[i]
		t.Run(tc.name, func(t *testing.T) {
			w, _, _ := newHostsWorld(t)
			w.goThrough(tc, false)
		})
	}
}

// TestHostsCertificate: a host heals, audits and loses a node with its certificate, and a renewed
// one needs no restart. Another host's certificate reads and changes nothing of it.
func TestHostsCertificate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const guests = `guest_list = [{uuid = "` + guest + `", name = "new", node = "cn1", project_id = "p", user_id = "u", resources = {"" = {VCPU = 1}}},
  {uuid = "` + leaving + `", name = "gone", node = "cn1", project_id = "p", user_id = "u", resources = {"" = {VCPU = 1}}}]`
	const one = `{name = "cn1", inventories = {VCPU = {total = 8}, MEMORY_MB = {total = 8192}}, traits = ["CUSTOM_FAST"],
  children = [{name = "gpu", inventories = {CUSTOM_GPU = {total = 4}}}]}`
	w, a, address := newHostsWorld(t)
	both := "\nnodes = [" + one +
		`, {name = "cn1.spare", uuid = "99999999-0000-4000-8000-000000000001", inventories = {VCPU = {total = 2}}}]`
	w.write(both, "")
	w.settle()
	w.write(guests+both, "")
	agent := w.run()
	agent.awaitAny(passDone)
	w.others()
	w.claim(holding{leaving: {"cn2": {"VCPU": 1}}, large: {"cn1": {"VCPU": 1}, "nfs": {"DISK_GB": 1}}})

	healed, code := binaries.Run(t, "compute-agent", "allocations", "heal", "--config", w.config)
	if code != 0 && !strings.Contains(healed, "elsewhere") {
		t.Errorf("heal: %d\n%s", code, healed)
	}
	got := w.look()
	if diff := cmp.Diff(holding{guest: {"cn1": {"VCPU": 1}}, leaving: {"cn2": {"VCPU": 1}},
		large: {"cn1": {"VCPU": 1}, "nfs": {"DISK_GB": 1}}}, got.Holding); diff != "" {
		t.Errorf("after heal:\n%s\n%s", diff, healed)
	}
	for _, command := range [][]string{{"allocations", "audit"}, {"tree", "--servers"}} {
		if out, code := binaries.Run(t, "compute-agent", append(command, "--config", w.config)...); strings.Contains(
			out, "does not allow") || code > 1 {
			t.Errorf("%v: %d\n%s", command, code, out)
		}
	}

	// A renewed certificate.
	a.issue(pki.Identity{Kind: pki.Host, Name: "cn1"})
	w.write(guests+"\nnodes = ["+one+"]\ndeleted_nodes = [\"cn1.spare\"]", "")
	mark := agent.Mark()
	agent.signal(syscall.SIGHUP)
	agent.await(mark, passDone)
	testproc.Eventually(t, patience, "the node that is gone is removed",
		testproc.True(func() bool { return w.look().Inventories["cn1.spare"] == nil }))
	agent.stop()

	// The stolen certificate of another host.
	a.issue(pki.Identity{Kind: pki.Host, Name: "cn3"})
	thief := a.as("cn3")
	before := w.look()
	inventory := map[string]any{"VCPU": map[string]any{"total": 1}}
	for name, uuid := range w.uuids {
		if before.Inventories[name] == nil {
			continue
		}
		at := "/resource_providers/" + uuid
		generation := before.Generations[name]
		for _, request := range []struct {
			method, path string
			body         any
		}{
			{"GET", at, nil}, {"GET", at + "/inventories", nil}, {"GET", at + "/usages", nil},
			{"GET", at + "/allocations", nil}, {"GET", at + "/traits", nil}, {"GET", at + "/aggregates", nil},
			{"GET", "/resource_providers?in_tree=" + uuid, nil},
			{"GET", "/resource_providers?name=" + url.QueryEscape(name), nil},
			{"DELETE", at, nil}, {"DELETE", at + "/inventories", nil}, {"DELETE", at + "/traits", nil},
			{"PUT", at, map[string]any{"name": "cn3"}},
			{"PUT", at + "/inventories",
				map[string]any{"resource_provider_generation": generation, "inventories": inventory}},
			{"PUT", at + "/traits", map[string]any{"resource_provider_generation": generation, "traits": []string{}}},
			{"PUT", at + "/aggregates",
				map[string]any{"resource_provider_generation": generation, "aggregates": []string{}}},
			{"POST", "/resource_providers", map[string]any{"name": "cn3_child", "parent_provider_uuid": uuid}},
			{"POST", "/reshaper", map[string]any{
				"inventories": map[string]any{
					uuid: map[string]any{"resource_provider_generation": generation, "inventories": inventory},
				},
				"allocations": map[string]any{},
			}},
			{"PUT", "/allocations/" + plain, map[string]any{
				"allocations": map[string]any{uuid: map[string]any{"resources": map[string]int{"VCPU": 1}}},
				"project_id":  "p", "user_id": "u", "consumer_generation": nil, "consumer_type": "INSTANCE",
			}},
		} {
			refusedTo(t, thief, address, request.method, request.path, request.body)
		}
	}
	for _, consumer := range []string{guest, leaving, large} {
		refusedTo(t, thief, address, "GET", "/allocations/"+consumer, nil)
		refusedTo(t, thief, address, "DELETE", "/allocations/"+consumer, nil)
	}
	for _, path := range []string{"/resource_providers",
		"/usages?project_id=p", "/allocation_candidates?resources=VCPU:1"} {
		refusedTo(t, thief, address, "GET", path, nil)
	}
	testproc.Samef(t, cmp.Diff(before, w.look()), "another host's certificate changed something")
}

// refusedTo sends a request as a host, and checks that the answer is a 403 that names a rule.
func refusedTo(t *testing.T, client *http.Client, address, method, path string, body any) {
	t.Helper()
	r := testproc.Send(t, client, method, address+path, "placement 1.38", body, "X-Auth-Token", "")
	if r.Code != http.StatusForbidden || !strings.Contains(string(r.Body), "placement:hosts:") {
		t.Error(r)
	}
}
