// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// theft is a site with Placement and a cell, which copy the deny list of an enrolment service.
type theft struct {
	t   *testing.T
	dir string
	ca  *pki.Authority
}

func newTheft(t *testing.T) *theft {
	s := &theft{t: t, dir: t.TempDir()}
	var err error
	s.ca, err = pki.InitAuthority(filepath.Join(s.dir, "ca"), "ca", time.Now())
	testproc.Check(t, err)
	testproc.Check(t, os.WriteFile(s.path("ca.pem"), s.ca.PEM(), 0o600))
	testproc.Check(t, os.WriteFile(s.path("revoked"), new(pki.DenyList).Text(), 0o600))
	return s
}

func (t *theft) path(name string) string { return filepath.Join(t.dir, name) }

// certificate makes a certificate and its key, and returns their files.
func (t *theft) certificate(id pki.Identity) (certFile, keyFile string) {
	t.t.Helper()
	certFile, keyFile = t.path(id.Name+".pem"), t.path(id.Name+".key")
	key := testproc.Try(pki.FileKey(keyFile)).Or(t.t)
	csr := testproc.Try(pki.NewRequest(key, id.Name)).Or(t.t)
	o := pki.SignOptions{Lifetime: time.Hour, Now: time.Now()}
	if id.Kind == pki.Service {
		o.Client, o.Addresses = true, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	text := testproc.Try(t.ca.SignPEM(csr, id, o)).Or(t.t)
	testproc.Check(t.t, os.WriteFile(certFile, text, 0o600))
	return certFile, keyFile
}

// server is the TLS of a service.
func (t *theft) server(name string) osapi.TLSFiles {
	certFile, keyFile := t.certificate(pki.Identity{Kind: pki.Service, Name: name})
	return osapi.TLSFiles{CertFile: certFile, KeyFile: keyFile, MinVersion: tls.VersionTLS13}
}

// client is the TLS of a client.
func (t *theft) client(id pki.Identity) pki.ClientTLS {
	certFile, keyFile := t.certificate(id)
	return pki.ClientTLS{CAFile: t.path("ca.pem"), CertFile: certFile, KeyFile: keyFile, MinVersion: tls.VersionTLS13}
}

// enrolment serves the enrolment service, and returns its URL.
func (t *theft) enrolment() string {
	t.t.Helper()
	store := testproc.Try(apidb.Open(t.t.Context(), t.path("api.db"), apidb.Options{})).Or(t.t)
	t.t.Cleanup(func() { testproc.Check(t.t, store.Close()) })
	denied := testproc.Try(pki.OpenDenyFile(t.path("revoked"), zerolog.Nop())).Or(t.t)
	service, err := enrolment.New(enrolment.Config{Store: store, Authority: t.ca, Names: []string{"127.0.0.1"},
		Denied: denied, Logger: zerolog.Nop()})
	testproc.Check(t.t, err)
	l := t.listen()
	t.run(func(ctx context.Context) {
		testproc.NoError(t.t, service.Serve(ctx, l))
	})
	return "https://" + l.Addr().String()
}

// revoke runs the command on the machine of the enrolment service.
func (t *theft) revoke(host string) {
	t.t.Helper()
	var out bytes.Buffer
	args := []string{"ca", "revoke", host, "--unknown", "--reason", "stolen", "--file", t.path("revoked")}
	if code := execute(t.t.Context(), args, &out, &out); code != cli.ExitDone {
		t.t.Fatalf("ca revoke exits with %d: %s", code, out.String())
	}
}

// follow copies the list of a URL quickly into a file, until the test ends. It waits for the first.
func (t *theft) follow(url, name string) *pki.DenyFile {
	t.t.Helper()
	transport, err := pki.ClientTLS{CAFile: t.path("ca.pem")}.Transport(zerolog.Nop(), nil,
		func(config *tls.Config) *http.Transport {
			return &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		})
	testproc.Check(t.t, err)
	denied, err := pki.FollowDenyFile(t.path(name),
		pki.Source{URL: url, Transport: transport, Interval: 100 * time.Millisecond}, zerolog.Nop())
	testproc.Check(t.t, err)
	t.run(func(ctx context.Context) { denied.Run(ctx) })
	for end := time.Now().Add(testproc.Patience); denied.Get().Err() != nil; runtime.Gosched() {
		if time.Now().After(end) {
			t.t.Fatal("the list is not fetched")
		}
	}
	return denied
}

// run runs something until the test ends, and waits for it then.
func (t *theft) run(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { f(ctx) })
	t.t.Cleanup(func() { cancel(); group.Wait() })
}

func (t *theft) listen() net.Listener {
	t.t.Helper()
	return testproc.Try((&net.ListenConfig{}).Listen(t.t.Context(), "tcp", "127.0.0.1:0")).Or(t.t)
}

// newCell serves a cell, and returns its URL.
func (t *theft) newCell(denied *pki.DenyFile) string {
	t.t.Helper()
	files := t.server("cell1")
	files.ClientCAFile = t.path("ca.pem")
	c := testproc.Try(cells.NewCell(t.t.Context(), cells.CellConfig{
		Name: "cell1", Database: t.path("cell.db"), Auth: cell.MutualTLS([]string{"compute-api"}), Denied: denied,
		TLS: files, Logger: zerolog.Nop(),
	})).Or(t.t)
	t.t.Cleanup(func() { testproc.Check(t.t, c.Close()) })
	l := t.listen()
	t.run(func(ctx context.Context) {
		testproc.NoError(t.t, c.Serve(ctx, l))
	})
	return "https://" + l.Addr().String()
}

func (t *theft) cellClient(url string, id pki.Identity) *cellclient.Client {
	t.t.Helper()
	c := testproc.Try(cellclient.New(cellclient.Config{URL: url, Cell: "cell1", Files: t.client(id)})).Or(t.t)
	t.t.Cleanup(c.CloseIdle)
	return c
}

// TestRevokedHostIsCutOffAtACell: what a host does when it is revoked ends, on connections that
// are open: a request that waits for work, and a stream. Another host is not affected.
func TestRevokedHostIsCutOffAtACell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newTheft(t)
	url := s.newCell(s.follow(s.enrolment(), "denied"))
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	const node, server = "90de0000-0000-4000-8000-000000000417", "5e000000-0000-4000-8000-000000000001"
	stolen := s.cellClient(url, pki.Identity{Kind: pki.Host, Name: "h417", Nodes: []string{node}})
	honest := s.cellClient(url, pki.Identity{Kind: pki.Host, Name: "h1"})
	api := s.cellClient(url, pki.Identity{Kind: pki.Service, Name: "compute-api"})

	report := cellwire.HostReport{Version: "1",
		Nodes: []cellwire.ReportedNode{{UUID: node, Name: "h417", Abilities: []string{plugins.AbilityConsole}}}}
	testproc.Try(stolen.Report(ctx, "h417", report)).Or(t)
	testproc.Try(api.Insert(ctx, cellwire.Server{
		UUID: server, ProjectID: "p", Name: "one", Host: "h417", Node: "h417", NodeUUID: node,
		VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
		CreatedAt: time.Now(),
	})).Or(t)
	_, err := api.Release(ctx, server)
	testproc.Check(t, err)

	// A stream is open, and a request waits for work.
	opened := make(chan *cellwire.Stream, 1)
	go func() {
		end, err := api.OpenStream(ctx, server, cellwire.PurposeConsole, 0)
		testproc.NoError(t, err)
		opened <- end
	}()
	var work cellwire.Work
	for len(work.Streams) == 0 {
		work, err = stolen.Work(ctx, "h417", work.Revision, work.Epoch, time.Minute)
		testproc.Check(t, err)
	}
	end := testproc.Try(stolen.AcceptStream(ctx, "h417", work.Streams[0].ID)).Or(t)
	far := <-opened
	if far == nil {
		t.FailNow()
	}
	testproc.Try(io.WriteString(end, "hello")).Or(t)
	testproc.Try(io.ReadFull(far, make([]byte, 5))).Or(t)
	waiting := make(chan error, 1)
	go func() {
		_, err := stolen.Work(ctx, "h417", work.Revision, work.Epoch, time.Minute)
		waiting <- err
	}()

	s.revoke("h417")
	if _, err := io.ReadAll(far); err == nil || ctx.Err() != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if err := <-waiting; !refused(err) {
		t.Errorf("the request that waited: %v", err)
	}
	if _, err := stolen.Report(ctx, "h417", report); !refused(err) {
		t.Errorf("another request on the connection: %v", err)
	}
	if _, err := honest.Report(ctx, "h1", cellwire.HostReport{Version: "1"}); err != nil {
		t.Errorf("another host: %v", err)
	}
}

// refused reports whether an error is the cell's refusal of a host.
func refused(err error) bool {
	var e *cellwire.Error
	return errors.As(err, &e) && (e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized) &&
		strings.Contains(e.Message, "deny list")
}

// TestRevokedHostIsCutOffAtPlacement: a connection of the host that is open is of no use to it.
func TestRevokedHostIsCutOffAtPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newTheft(t)
	_, line, err := osapi.NewToken([]string{"admin"}, "admin", "")
	testproc.Check(t, err)
	testproc.Check(t, os.WriteFile(s.path("tokens"), []byte(line), 0o600))
	files := s.server("placement")
	files.HostCAFile = s.path("ca.pem")
	p := testproc.Try(placement.New(t.Context(), placement.Config{
		StateDir: s.path("placement"), Auth: placement.Auth{Strategy: placement.Token, TokenFile: s.path("tokens")},
		TLS:    files,
		Denied: s.follow(s.enrolment(), "denied"), Logger: zerolog.Nop(),
	})).Or(t)
	defer func() { testproc.Check(t, p.Close()) }()
	l := s.listen()
	s.run(func(ctx context.Context) {
		testproc.NoError(t, p.Serve(ctx, l))
	})
	connections := 0
	transport, err := s.client(pki.Identity{Kind: pki.Host, Name: "h417"}).Transport(zerolog.Nop(), nil,
		func(config *tls.Config) *http.Transport {
			return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
				DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					connections++
					return (&net.Dialer{}).DialContext(ctx, network, address)
				}}
		})
	testproc.Check(t, err)
	ask := func() (status int, text string) {
		req, err := http.NewRequestWithContext(t.Context(),
			http.MethodGet, "https://"+l.Addr().String()+"/resource_providers?name=h417", http.NoBody)
		testproc.Check(t, err)
		resp := testproc.Try(transport.RoundTrip(req)).Or(t)
		body, err := io.ReadAll(resp.Body)
		testproc.Check(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, string(body)
	}
	if status, text := ask(); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	s.revoke("h417")
	for end := time.Now().Add(testproc.Patience); ; {
		status, text := ask()
		if status == http.StatusUnauthorized && strings.Contains(text, "deny list") {
			break
		}
		if status != http.StatusOK || time.Now().After(end) {
			t.Fatalf("%d %s", status, text)
		}
	}
	testproc.Equal(t, connections, 1, "%d connections")
}

// TestConfiguredDenyList: a service with [deny_list] url has a copy of the list as soon as it
// runs, and keeps it when it starts without the enrolment service.
func TestConfiguredDenyList(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newTheft(t)
	s.revoke("h417")
	c := config.DenyList{File: s.path("denied"), URL: s.enrolment(), CAFile: s.path("ca.pem")}
	denied := testproc.Try(controlplane.OpenDenyList(c, zerolog.Nop())).Or(t)
	refuses := func() bool {
		return denied.Get().Err() == nil && denied.Get().Check("h417", time.Time{}) != nil
	}
	err := denied.KeepCurrent(func(ctx context.Context, _ net.Listener) error {
		for end := time.Now().Add(testproc.Patience); !refuses(); runtime.Gosched() {
			if time.Now().After(end) {
				return errors.New("h417 is let in, or all are refused")
			}
		}
		return ctx.Err()
	})(t.Context(), nil)
	testproc.Check(t, err)
	c.URL = "https://127.0.0.1:1"
	if denied, err = controlplane.OpenDenyList(c, zerolog.Nop()); err != nil || !refuses() {
		t.Errorf("h417 is let in, or all are refused, while the service is down: %v", err)
	}
	testproc.Check(t, os.WriteFile(s.path("other.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}), 0o600))
	for name, bad := range map[string]config.DenyList{
		"no CA":          {File: c.File, URL: c.URL, CAFile: s.path("missing")},
		"a broken CA":    {File: c.File, URL: c.URL, CAFile: s.path("other.pem")},
		"no file":        {File: s.path("missing")},
		"no such folder": {File: s.path("missing/denied"), URL: c.URL},
	} {
		testproc.Try(controlplane.OpenDenyList(bad, zerolog.Nop())).ErrorIs(t, config.ErrInvalid, "%s: %v", name)
	}
}

// TestOldTLS: cells, as they are configured, and the enrolment service refuse a client that speaks
// TLS 1.2 at most. Placement speaks it, for clients of OpenStack, and 1.3 with those that can.
func TestOldTLS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newTheft(t)
	certFile, keyFile := s.certificate(pki.Identity{Kind: pki.Service, Name: "cell1"})
	made := testproc.Try(controlplane.Cell(&config.Config{Cell: config.Cell{
		Auth: config.AuthMTLS, APINames: []string{"compute-api"}, CertFile: certFile, KeyFile: keyFile,
		PeerCAFile: s.path("ca.pem"),
	}}, "cell1", s.path("cell.db"), controlplane.Process{}, zerolog.Nop())).Or(t)
	cell1 := testproc.Try(cells.NewCell(t.Context(), made)).Or(t)
	t.Cleanup(func() { testproc.Check(t, cell1.Close()) })
	cellListener := s.listen()
	s.run(func(ctx context.Context) { testproc.Check(t, cell1.Serve(ctx, cellListener)) })

	certFile, keyFile = s.certificate(pki.Identity{Kind: pki.Service, Name: "placement"})
	both := controlplane.Placement(&config.Config{
		Agent:        config.Agent{StateDir: s.path("placement")},
		PlacementTLS: config.PlacementTLS{CertFile: certFile, KeyFile: keyFile, HostCAFile: s.path("ca.pem")},
	}, controlplane.Listening{}, nil, zerolog.Nop())
	both.StateDir, both.Auth = s.path("placement"), placement.Auth{Strategy: placement.NoAuth}
	p := testproc.Try(placement.New(t.Context(), both)).Or(t)
	t.Cleanup(func() { testproc.Check(t, p.Close()) })
	placementListener := s.listen()
	s.run(func(ctx context.Context) { testproc.Check(t, p.Serve(ctx, placementListener)) })

	trust := testproc.Try(pki.CertPool(s.path("ca.pem"))).Or(t)
	certFile, keyFile = s.certificate(pki.Identity{Kind: pki.Host, Name: "h1"})
	pair := testproc.Try(tls.LoadX509KeyPair(certFile, keyFile)).Or(t)
	for name, c := range map[string]struct {
		address string
		old     bool
	}{
		"the cell":              {cellListener.Addr().String(), false},
		"the enrolment service": {strings.TrimPrefix(s.enrolment(), "https://"), false},
		"Placement":             {placementListener.Addr().String(), true},
	} {
		dial := func(most uint16) (version uint16, err error) {
			connection, err := tls.Dial("tcp", c.address,
				&tls.Config{RootCAs: trust, Certificates: []tls.Certificate{pair}, MaxVersion: most,
					MinVersion: tls.VersionTLS12})
			if err != nil {
				return 0, err
			}
			return connection.ConnectionState().Version, connection.Close()
		}
		if version, err := dial(tls.VersionTLS12); (err == nil) != c.old || !c.old &&
			!strings.Contains(err.Error(), "protocol version") {
			t.Errorf("%s, with TLS 1.2 at most: %s, %v", name, tls.VersionName(version), err)
		}
		if version, err := dial(0); err != nil || version != tls.VersionTLS13 {
			t.Errorf("%s: %s, %v", name, tls.VersionName(version), err)
		}
	}
}
