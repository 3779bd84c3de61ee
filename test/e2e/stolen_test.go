// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// thief has a copy of the certificate of a host, with its key.
type thief struct {
	t      *testing.T
	client *http.Client
}

// steal copies the identity of a host.
func (e *enrolled) steal(s *site) *thief {
	e.t.Helper()
	copied := testproc.Try(os.ReadFile(filepath.Join(s.dir, "state", "identity.pem"))).Or(e.t)
	pair := testproc.Try(tls.X509KeyPair(copied, copied)).Or(e.t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.ca.PEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots,
		Certificates: []tls.Certificate{pair}}}
	e.t.Cleanup(transport.CloseIdleConnections)
	return &thief{e.t, &http.Client{Transport: transport, Timeout: patience}}
}

// ask sends a request, and returns the status and the answer.
func (t *thief) ask(method, url string, body any) (int, string) {
	t.t.Helper()
	r := testproc.Send(t.t, t.client, method, url, "placement 1.39", body, "X-Auth-Token", "")
	return r.Code, string(r.Body)
}

// TestHypervisor417IsStolen is the exercise of docs/identity.md. A thief has a copy of the disk of
// host h417, with its certificate. What the thief can read and write is what the host could, and
// nothing of h416. After evict-host it is nothing at all; the server of h417 is still shown, is
// evacuated, and new ones go elsewhere.
func TestHypervisor417IsStolen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	e := newEnrolled(t, "1h") // the thief's copy does not expire before the end of the test
	c := &cloud{t: t, endpoint: "http://" + e.api + "/v2.1"}
	sites, nodes := map[string]*site{}, map[string]string{}
	for _, name := range []string{"h416", "h417"} {
		s := e.host(name)
		sites[name] = s
		if out, code := e.join(s, name); code != 0 {
			t.Fatalf("join: exit code %d\n%s", code, out)
		}
		s.run()
	}
	for name, s := range sites {
		status := s.eventually("the host reports with a certificate for its node", func(h health.Status) bool {
			return h.State == resourcetracker.Reporting &&
				h.Cell != nil && h.Cell.Up && h.Identity != nil && len(h.Identity.Nodes) == 1
		})
		nodes[name] = status.Identity.Nodes[0]
	}
	c.ask(http.MethodPost,
		"/flavors", map[string]any{"flavor": map[string]any{"id": "1", "name": "m1.tiny", "vcpus": 1,
			"ram": 512, "disk": 1}}, nil)
	testproc.Eventually(t, patience, "both hosts report their nodes", func() error {
		var body struct{ Services []any }
		if c.ask(http.MethodGet, "/os-services", nil, &body); len(body.Services) != 2 {
			return fmt.Errorf("%d services", len(body.Services))
		}
		return nil
	})
	e.manage("discover-hosts")
	servers := map[string]string{}
	for _, name := range []string{"h416", "h417"} {
		var made struct{ Server struct{ ID string } }
		secret := base64.StdEncoding.EncodeToString([]byte("the password of " + name))
		if code := c.ask(http.MethodPost, "/servers", map[string]any{"server": map[string]any{
			"name": "web-" + name, "flavorRef": "1", "imageRef": image, "networks": "none",
			"availability_zone": "nova:" + name, "user_data": secret, "metadata": map[string]string{"role": "db"},
		}}, &made); code != http.StatusAccepted {
			t.Fatalf("booting on %s: %d", name, code)
		}
		servers[name] = made.Server.ID
		c.until("the server on "+name+" is active", func() bool { return c.status(made.Server.ID) == "ACTIVE" })
	}

	// What the thief can do. All of it is that of h417.
	has := e.steal(sites["h417"])
	cell, placement, joining := "https://"+e.cell, "https://"+e.placement, "https://"+e.joining
	ofVictim := base64.StdEncoding.EncodeToString([]byte("the password of h416"))
	code, work := has.ask(http.MethodGet, cell+"/v1/hosts/h417/work?wait=0", nil)
	if code != http.StatusOK || !strings.Contains(work, servers["h417"]) {
		t.Errorf("the work of h417: %d %s", code, work)
	}
	if strings.Contains(work, servers["h416"]) || strings.Contains(work, ofVictim) {
		t.Errorf("the work of h417 has the server of h416: %s", work)
	}
	foreign := []struct {
		method, url string
		body        any
	}{
		{http.MethodGet, cell + "/v1/hosts/h416/work?wait=0", nil},
		{http.MethodPut, cell + "/v1/hosts/h416", map[string]any{"version": "1", "nodes": []any{}}},
		{http.MethodPost, cell + "/v1/hosts/h416/reports", map[string]any{"reports": []any{}}},
		{http.MethodGet, cell + "/v1/servers/" + servers["h416"], nil},
		{http.MethodPost, cell + "/v1/servers/" + servers["h416"] + "/delete", map[string]any{"kind": "normal"}},
		{http.MethodGet, placement + "/resource_providers", nil},
		{http.MethodGet, placement + "/resource_providers?name=h416", nil},
		{http.MethodGet, placement + "/allocations/" + servers["h416"], nil},
		{http.MethodDelete, placement + "/allocations/" + servers["h416"], nil},
		{http.MethodDelete, placement + "/resource_providers/" + nodes["h416"], nil},
		{http.MethodPost, placement + "/resource_providers", map[string]any{"name": "h418"}},
	}
	for _, a := range foreign {
		if code, text := has.ask(a.method, a.url, a.body); code != http.StatusForbidden {
			t.Errorf("%s %s with the certificate of h417: %d %s", a.method, a.url, code, text)
		}
	}
	// The attack: h417 says that the node of h416 is its own.
	code, text := has.ask(http.MethodPut, cell+"/v1/hosts/h417", map[string]any{"version": "1", "nodes": []any{
		map[string]any{"uuid": nodes["h417"], "name": "h417"}, map[string]any{"uuid": nodes["h416"], "name": "h416"},
	}})
	if code != http.StatusOK || !strings.Contains(text, "not-in-certificate") {
		t.Errorf("h417 reports the node of h416: %d %s", code, text)
	}
	var view struct {
		Hypervisors []struct{ Service struct{ Host string } }
	}
	c.ask(http.MethodGet, "/os-hypervisors/detail", nil, &view)
	if len(view.Hypervisors) != 2 || view.Hypervisors[0].Service.Host == view.Hypervisors[1].Service.Host {
		t.Errorf("hypervisors after the attack: %+v", view)
	}

	// It is evicted.
	begun := time.Now()
	out := e.manage("evict-host", "h417", "--reason", "stolen from rack 7")
	for _, part := range []string{servers["h417"], "web-h417", "role"} {
		testproc.Contains(t, out, part, "evict-host does not print %q:\n%s", part)
	}
	if strings.Contains(out, servers["h416"]) {
		t.Errorf("evict-host prints the server of another host:\n%s", out)
	}
	own := []string{cell + "/v1/hosts/h417/work?wait=0", placement + "/resource_providers?name=h417"}
	for _, url := range own {
		testproc.Eventually(t, patience, "refused: "+url, func() error {
			if code, text := has.ask(http.MethodGet, url, nil); code != http.StatusUnauthorized &&
				code != http.StatusForbidden {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		})
	}
	t.Logf("refused everywhere after %s", time.Since(begun).Round(time.Second))
	if code, text := has.ask(http.MethodPost, joining+"/v1/renew", map[string]any{"csr": ""}); code == http.StatusOK {
		t.Errorf("the certificate is renewed: %s", text)
	}

	// Its server is shown, and can be evacuated; new ones go elsewhere.
	server := func() (host, status string) {
		var shown struct {
			Server struct {
				Host   string `json:"OS-EXT-SRV-ATTR:host"`
				Status string
			}
		}
		c.ask(http.MethodGet, "/servers/"+servers["h417"], nil, &shown)
		return shown.Server.Host, shown.Server.Status
	}
	if host, _ := server(); host != "h417" {
		t.Errorf("the server of the evicted host is on %q", host)
	}
	if code := c.ask(http.MethodPost, "/servers/"+servers["h417"]+"/action",
		map[string]any{"evacuate": map[string]any{"host": "h416"}}, nil); code >= http.StatusBadRequest {
		t.Fatalf("evacuate: %d", code)
	}
	c.until("the server is on the other host", func() bool {
		host, status := server()
		return host == "h416" && slices.Contains([]string{"ACTIVE", "SHUTOFF"}, status)
	})
	var made struct{ Server struct{ ID string } }
	c.ask(http.MethodPost,
		"/servers", map[string]any{"server": map[string]any{"name": "new", "flavorRef": "1",
			"imageRef": image, "networks": "none"}}, &made)
	c.until("a new server is active", func() bool { return c.status(made.Server.ID) == "ACTIVE" })
	if code, text := has.ask(http.MethodGet, own[0], nil); code == http.StatusOK {
		t.Errorf("the evicted host gets work: %s", text)
	}
}
