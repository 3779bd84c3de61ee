// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// victim and attacker are the hosts of the tests; stolen is on the deny list.
const (
	victim, attacker, stolen = "h1", "h2", "h417"
	victimNode               = "11111111-1111-4111-8111-111111111111"
	attackerNode             = "22222222-2222-4222-8222-222222222222"
	stolenNode               = "41741741-7417-4417-8417-417417417417"
)

// site is a site's CA, and the files that its servers read.
type site struct {
	t      testing.TB
	dir    string
	ca     *pki.Authority
	others *pki.Authority // a CA that no server trusts
}

func newSite(t testing.TB) *site {
	t.Helper()
	dir := t.TempDir()
	authority := func(name string) *pki.Authority {
		return testproc.Try(pki.InitAuthority(filepath.Join(dir, name), name, time.Now().Add(-100*24*time.Hour))).Or(t)
	}
	return &site{t: t, dir: dir, ca: authority("site"), others: authority("others")}
}

// file writes a file and returns its path.
func (s *site) file(name string, data []byte) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	check(s.t, os.WriteFile(path, data, 0o600))
	return path
}

// pair makes a key and has a CA sign a certificate for it.
func (s *site) pair(ca *pki.Authority, id pki.Identity, o pki.SignOptions) (certificate, key []byte) {
	s.t.Helper()
	private, key, err := pki.NewKey()
	check(s.t, err)
	text := testproc.Try(pki.NewRequest(private, id.Name)).Or(s.t)
	request := testproc.Try(pki.ParseRequest(text)).Or(s.t)
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	o.Lifetime = time.Hour
	certificate = testproc.Try(ca.Sign(request, id, o)).Or(s.t)
	return certificate, key
}

// server writes the certificate of a service on this machine.
func (s *site) server(name string) (certFile, keyFile string) {
	s.t.Helper()
	certificate, key := s.pair(s.ca, service(name), pki.SignOptions{Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return s.file(name+".pem", certificate), s.file(name+".key", key)
}

// identity is a credential, and who it makes its holder.
type identity struct {
	name  string
	pair  *tls.Certificate // nil: none
	token string
	// handshake: the connection is refused.
	handshake bool
	// host is the host that a server takes it for; "" for none.
	host string
	// unknown: no service knows it.
	unknown bool
	// api: it is the compute API.
	api bool
	// user is the user of a token, and role its role.
	user, role string
}

// hostIdentity is the identity of a host with one node.
func hostIdentity(name, node string) pki.Identity {
	return pki.Identity{Kind: pki.Host, Name: name, Names: []string{name}, Nodes: []string{node}}
}

func service(name string) pki.Identity {
	return pki.Identity{Kind: pki.Service, Name: name, Names: []string{name}}
}

// identities are all that an attacker may come with.
func (s *site) identities() []identity {
	s.t.Helper()
	of := func(ca *pki.Authority, id pki.Identity, o pki.SignOptions) *tls.Certificate {
		pair := testproc.Try(tls.X509KeyPair(s.pair(ca, id, o))).Or(s.t)
		return &pair
	}
	own, other := hostIdentity(victim, victimNode), hostIdentity(attacker, attackerNode)
	posing := hostIdentity(attacker, attackerNode)
	posing.Names = []string{"compute-api"}
	return []identity{
		{name: "no credential", unknown: true},
		{name: "host", pair: of(s.ca, own, pki.SignOptions{}), host: victim},
		{name: "other host", pair: of(s.ca, other, pki.SignOptions{}), host: attacker},
		{name: "other host named compute-api", pair: of(s.ca, posing, pki.SignOptions{}), host: attacker},
		{name: "expired", pair: of(s.ca, own, pki.SignOptions{Now: time.Now().Add(-48 * time.Hour)}), handshake: true},
		{name: "not valid yet", pair: of(s.ca, own, pki.SignOptions{Now: time.Now().Add(24 * time.Hour)}),
			handshake: true},
		{name: "denied", pair: of(s.ca, hostIdentity(stolen, stolenNode), pki.SignOptions{}), unknown: true},
		{name: "other CA", pair: of(s.others, own, pki.SignOptions{}), handshake: true},
		{name: "cell's service", pair: of(s.ca, service("cell1"), pki.SignOptions{}), handshake: true},
		{name: "client service", pair: of(s.ca, service("billing"), pki.SignOptions{Client: true}), unknown: true},
		{name: "compute API", pair: of(s.ca, service("compute-api"), pki.SignOptions{Client: true}), api: true},
		{name: "unknown token", token: "guessed", unknown: true},
		{name: "token of the host", token: "token-of-" + victim, host: victim},
		{name: "token of the other host", token: "token-of-" + attacker, host: attacker},
		{name: "denied token", token: "token-of-" + stolen, unknown: true},
		{name: "service", token: "token-of-nova", user: "nova", role: "service"},
		{name: "admin", token: "token-of-admin", user: "admin", role: "admin"},
		{name: "member", token: "token-of-alice", user: "alice", role: "member"},
	}
}

// as is the identity of a name.
func (s *site) as(name string) identity {
	s.t.Helper()
	all := s.identities()
	return all[slices.IndexFunc(all, func(i identity) bool { return i.name == name })]
}

// tokenFile has the tokens of identities: roles and users, in turn.
func (s *site) tokenFile(name string, words ...string) string {
	s.t.Helper()
	var text []byte
	for holder := range slices.Chunk(words, 2) {
		text = fmt.Appendf(text, "%x %s %s\n", sha256.Sum256([]byte("token-of-"+holder[1])), holder[0], holder[1])
	}
	return s.file(name, text)
}

// denied is a deny list with the stolen host.
func (s *site) denied() *pki.DenyFile {
	s.t.Helper()
	denial := pki.Denial{Host: stolen, Before: time.Now().Add(time.Hour), Reason: "stolen"}
	list := testproc.Try(pki.NewDenyList([]pki.Denial{denial})).Or(s.t)
	return testproc.Try(pki.OpenDenyFile(s.file("denied", list.Text()), nopLog)).Or(s.t)
}

// client makes connections as an identity.
func (s *site) client(i identity) *http.Client {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca.PEM())
	trust := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
	if i.pair != nil {
		// Whatever CAs the server says that it trusts.
		trust.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: trust}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testproc.Patience}
}
