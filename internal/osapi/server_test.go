// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// certificate is the TLS of a server on loopback.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := testproc.Try(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)).Or(t)
	leaf := testproc.Try(x509.ParseCertificate(der)).Or(t)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
}

// start serves on loopback until the test ends, and returns the address.
func start(t *testing.T, s *Server) string {
	t.Helper()
	l := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		testproc.NoErrorf(t, <-ended, "serve")
	})
	return l.Addr().String()
}

// client is a connection to a server.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, address string, config *tls.Config) client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil && config != nil {
		config = config.Clone()
		config.ServerName = "127.0.0.1"
		c = tls.Client(c, config)
	}
	testproc.Check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return client{c, bufio.NewReader(c)}
}

func (c client) send(t *testing.T, text string) {
	t.Helper()
	testproc.Try(io.WriteString(c, text)).Or(t)
}

// answer reads an answer, as "STATUS BODY", with " closed" after it if the connection ends with it,
// or the error.
func (c client) answer() string {
	a, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return "closed"
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%d %s", a.StatusCode, body)
	if a.Close {
		text += " closed"
	}
	return text
}

// echo answers with the method, path and body of a request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
}

// TestFraming: over plain HTTP and TLS, a request with both headers is refused and ends the
// connection, however it is written and whatever came before it; other requests are answered, one
// after another on one connection and many at once.
func TestFraming(t *testing.T) {
	serverTLS, clientTLS := certificate(t)
	const refused = "400 The request has both Content-Length and Transfer-Encoding. Send one of them.\n closed"
	for _, config := range []struct {
		name           string
		server, client *tls.Config
	}{{"plain", nil, nil}, {"TLS", serverTLS, clientTLS}} {
		t.Run(config.name, func(t *testing.T) {
			address := start(t, &Server{Handler: http.HandlerFunc(echo), TLS: config.server})
			for name, c := range map[string]struct {
				text string
				want []string
			}{
				"both": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n" +
					"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{refused}},
				"the other way": {"POST /a HTTP/1.1\r\nHost: h\r\ntransfer-encoding:chunked\r\n" +
					"content-length:3\r\n\r\n0\r\n\r\n", []string{refused}},
				"bare line feeds": {"POST /a HTTP/1.1\nHost: h\nContent-Length: 3\nTransfer-Encoding: " +
					"chunked\n\n0\r\n\r\n", []string{refused}},
				"a zero length": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n" +
					"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{refused}},
				"HTTP/1.0": {"POST /a HTTP/1.0\r\nContent-Length: 3\r\nTransfer-Encoding: " +
					"chunked\r\n\r\nabc", []string{refused}},
				"the second one": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcPOST /b " +
					"HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
					[]string{"200 POST /a abc", refused}},
				"after OPTIONS *": {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\n" +
					"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
					[]string{"200 OPTIONS * ", refused}},
				"after line ends": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\nPOST /b " +
					"HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
					[]string{"200 POST /a x", refused}},
				"three ordinary ones": {"GET /a HTTP/1.1\r\nHost: h\r\n\r\nPUT /b HTTP/1.1\r\nHost: h\r\n" +
					"Content-Length: 2\r\n\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
					[]string{"200 GET /a ", "200 PUT /b \r\n", "200 GET /c  closed"}},
				"a body like a request": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 56\r\n\r\n" +
					"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\nGET / H\r\nGET /b HTTP/1.1\r\nHost: " +
					"h\r\nConnection: close\r\n\r\n",
					[]string{"200 POST /a Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\nGET / H",
						"200 GET /b  closed"}},
				"chunked": {"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n" +
					"abc\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n", []string{"200 POST /a abc closed"}},
				"lengths that are equal": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: " +
					"3\r\n\r\nabcGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n", []string{"200 POST /a abc closed"}},
				"a length after spaces": {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length:" +
					strings.Repeat(" ", 100) + "3\r\n\r\nabcGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n",
					[]string{"200 POST /a abc closed"}},
				"a header that goes on": {"POST /a HTTP/1.1\r\nHost: h\r\nX: y\r\n Transfer-Encoding: chunked\r\n" +
					"Content-Length: 3\r\n\r\nabcGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n",
					[]string{"200 POST /a abc closed"}},
				"a header of another kind": {"POST /a HTTP/1.1\r\nHost: h\r\nX-Transfer-Encoding: chunked\r\n" +
					"Content-Length: 3\r\nConnection: close\r\n\r\nabc", []string{"200 POST /a abc closed"}},
			} {
				// At once, and byte by byte.
				for _, size := range []int{len(c.text), 1} {
					conn := dial(t, address, config.client)
					if tcp, ok := conn.Conn.(*net.TCPConn); ok && size == 1 {
						_ = tcp.SetNoDelay(true)
					}
					go func() {
						for text := c.text; text != ""; {
							n := min(size, len(text))
							if _, err := io.WriteString(conn, text[:n]); err != nil {
								return // the server has closed it
							}
							text = text[n:]
						}
					}()
					for i, want := range append(c.want, "closed") {
						if got := conn.answer(); got != want {
							t.Errorf("%s, %d bytes at once: answer %d is %q, want %q", name, size, i+1, got, want)
							break
						}
					}
				}
			}
		})
	}
}

// TestTLS: HTTP/2 works, and its requests know the state of TLS, as those of HTTP/1 over TLS
// do.
func TestTLS(t *testing.T) {
	serverTLS, clientTLS := certificate(t)
	var said testproc.Buffer
	address := start(t, &Server{TLS: serverTLS, Logger: zerolog.New(&said).Level(zerolog.WarnLevel),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, r.Proto, r.TLS != nil && r.TLS.HandshakeComplete)
		})})
	for _, h2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: clientTLS.Clone(), ForceAttemptHTTP2: h2}
		if !h2 {
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		c := http.Client{Transport: transport}
		for range 2 {
			answer := testproc.Try(c.Get("https://" + address)).Or(t)
			body, err := io.ReadAll(answer.Body)
			if want := map[bool]string{false: "HTTP/1.1true", true: "HTTP/2.0true"}[h2]; string(body) != want ||
				err != nil {
				t.Errorf("got %s, %v, want %s", body, err, want)
			}
			_ = answer.Body.Close()
		}
		c.CloseIdleConnections()
	}
	if answer, err := http.Get("http://" + address); err != nil || answer.StatusCode != http.StatusBadRequest {
		t.Errorf("HTTP to HTTPS: %v, %v", answer, err)
	}
	// after the answer
	testproc.Eventually(t, testproc.Patience,
		"its failure is logged", testproc.True(func() bool { return said.String() != "" }))
	probe := dial(t, address, nil)
	_ = probe.Close()
	for range 2 {
		untrusting := dial(t, address, &tls.Config{MinVersion: tls.VersionTLS12})
		if err := untrusting.Conn.(*tls.Conn).Handshake(); err == nil {
			t.Error("a client that does not know the CA shook hands")
		}
	}
	// The first failure of the address, which is the one above that speaks HTTP, is logged; the
	// others of this minute are not.
	if text := said.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, `"address":"127.0.0.1","why":"tls: first record does not look like a TLS handshake"`) {
		t.Error(text)
	}
}

// until waits for a condition, which it looks at under the lock.
func (cn *Connections) until(is func() bool) {
	for {
		cn.mu.Lock()
		done := is()
		cn.mu.Unlock()
		if done {
			return
		}
		runtime.Gosched()
	}
}

// TestIdleIsClosedFirst: at the bound, a new connection closes the one that has been idle for
// longest, then the one that has been sending headers for longest, and never one whose request is
// worked on.
func TestIdleIsClosedFirst(t *testing.T) {
	for name, limits := range map[string]ConnectionLimits{"in all": {Total: 3, PerAddress: 3},
		"of an address": {Total: 100, PerAddress: 3}} {
		t.Run(name, func(t *testing.T) {
			held := make(chan struct{})
			came := make(chan struct{}, 10)
			var said testproc.Buffer
			conns := NewConnections(limits)
			address := start(t, &Server{Connections: conns,
				Logger: zerolog.New(&said), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/wait" {
						came <- struct{}{}
						<-held
					}
					echo(w, r)
				})})
			const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
			working := dial(t, address, nil)
			working.send(t, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
			<-came
			slow := dial(t, address, nil)
			slow.send(t, "GET / HT")
			old := dial(t, address, nil)
			old.send(t, get)
			if got := old.answer(); got != "200 GET / " {
				t.Fatal(got)
			}
			// The client has its answer before the server is done with the request.
			conns.until(func() bool { return conns.idle.Len() == 1 })
			second := dial(t, address, nil) // for old
			second.send(t, get)
			testproc.Equal(t, second.answer(), "200 GET / ", "the second one: %s")
			testproc.Equal(t, old.answer(), "closed", "the one that was idle: %s")
			conns.until(func() bool { return conns.idle.Len() == 1 })
			slow.send(t, "TP/1.1\r\nHost: h\r\n\r\n")
			testproc.Equal(t, slow.answer(), "200 GET / ", "the slow one, while others were idle: %s")
			conns.until(func() bool { return conns.idle.Len() == 2 })
			slow.send(t, "GET / HT") // it is the one that sends headers now
			conns.until(func() bool { return conns.waiting.Len() == 1 })
			third := dial(t, address, nil)
			third.send(t, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n") // for second
			<-came
			testproc.Equal(t, second.answer(), "closed", "the second one: %s")
			fourth := dial(t, address, nil) // for slow
			fourth.send(t, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
			<-came
			testproc.Equal(t, slow.answer(), "closed", "the slow one, while no other was idle: %s")
			if got := dial(t, address, nil).answer(); got != "closed" { // a request is worked on in all others
				t.Errorf("one too many: %s", got)
			}
			close(held)
			for _, c := range []client{working, third, fourth} {
				testproc.Equal(t, c.answer(), "200 GET /wait ", "one whose request was worked on: %s")
			}
			// after it is closed
			testproc.Eventually(t, time.Minute, "the log says that a connection was refused", func() error {
				if !strings.Contains(said.String(), "Refused a connection") {
					return errors.New(said.String())
				}
				return nil
			})
		})
	}
}

// TestHeadersShareABudget: many connections with headers that never end are closed, the oldest
// first, when all together cost more than the budget; a client among them is served.
func TestHeadersShareABudget(t *testing.T) {
	conns := NewConnections(ConnectionLimits{})
	conns.budget = 64 << 10
	address := start(t, &Server{Connections: conns, Handler: http.HandlerFunc(echo)})
	const each = 8 << 10
	var first client
	for i := range 20 {
		c := dial(t, address, nil)
		if i == 0 {
			first = c
		}
		c.send(t, "GET / HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("x", each))
		polite := dial(t, address, nil)
		polite.send(t, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		testproc.Equal(t, polite.answer(), "200 GET /  closed", "beside %d that send headers: %s", i+1)
	}
	testproc.Equal(t, first.answer(), "closed", "the oldest one: %s")
	conns.mu.Lock()
	defer conns.mu.Unlock()
	if conns.headers > conns.budget || conns.waiting.Len() > 8 {
		t.Errorf("%d connections hold %d of %d bytes", conns.waiting.Len(), conns.headers, conns.budget)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	address := start(t, &Server{Handler: http.HandlerFunc(echo)})
	c := dial(t, address, nil)
	go func() {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("x", 2*maxHeaderBytes)+"\r\n\r\n")
	}()
	if got := c.answer(); !strings.HasPrefix(got, "431 ") {
		t.Errorf("got %s, want 431", got)
	}
	many := dial(t, address, nil)
	go func() {
		_, _ = io.WriteString(many, "GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("X: y\r\n", maxHeaderLines)+"\r\n")
	}()
	// it is closed while the client still sends
	if got := many.answer(); !strings.HasPrefix(got, "400 ") && got != "closed" {
		t.Errorf("too many lines: got %s, want 400", got)
	}
}

func TestLimitsFromDescriptors(t *testing.T) {
	for _, c := range []struct {
		files uint64
		given ConnectionLimits
		want  ConnectionLimits
	}{
		{64, ConnectionLimits{}, ConnectionLimits{20, 8}},
		{1024, ConnectionLimits{}, ConnectionLimits{920, 230}},
		{524288, ConnectionLimits{}, ConnectionLimits{20000, 5000}},
		{1024, ConnectionLimits{5000, 4000}, ConnectionLimits{920, 920}},
		{1024, ConnectionLimits{100, 0}, ConnectionLimits{100, 25}},
		{1024, ConnectionLimits{100, 100}, ConnectionLimits{100, 100}},
		{16, ConnectionLimits{}, ConnectionLimits{8, 8}},
	} {
		testproc.Equal(t, c.given.resolve(c.files), c.want, "%d files, %+v: got %+v", c.files, c.given)
	}
}

// FuzzFraming: for whatever comes, in whatever pieces, net/http and framing agree on which requests
// there are before the first one that framing does not follow.
func FuzzFraming(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\nHost: h\n\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 2\r\n\r\nab",
	} {
		f.Add(text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		var f framing
		for rest := text; rest != ""; {
			n := min(int(size)+1, len(rest))
			f.feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		r := bufio.NewReader(strings.NewReader(text))
		post := false
		for number := uint64(1); ; number++ {
			if post { // as http.Server does
				for range 4 {
					if b, err := r.Peek(1); err != nil || b[0] != '\r' && b[0] != '\n' {
						break
					}
					_, _ = r.Discard(1)
				}
			}
			request, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			post = request.Method == http.MethodPost
			chunked := len(request.TransferEncoding) > 0
			verdict := f.verdictOf(number)
			if f.requests < number {
				t.Fatalf("request %d of %q was not seen", number, text)
			}
			if verdict != ordinary {
				return
			}
			if chunked {
				t.Fatalf("request %d of %q is chunked and taken for ordinary", number, text)
			}
			if n, err := io.Copy(io.Discard, request.Body); err != nil || n != request.ContentLength {
				return
			}
		}
	})
}

// pipes is a listener whose connections are made by dial.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial() (client, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return client{ours, bufio.NewReader(ours)}, nil
	case <-p.closed:
		return client{}, net.ErrClosed
	}
}

// TestShutdownDelay: a server that has to stop says so, and answers on old and new connections
// until the delay is over; each of these answers closes its connection, and none is cut.
func TestShutdownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 5 * time.Second
		var stopping atomic.Bool
		s := &Server{Handler: http.HandlerFunc(echo), Grace: time.Second, Finish: true, Delay: delay,
			Stopping: func() { stopping.Store(true) }, Logger: zerolog.Nop()}
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- s.Serve(ctx, l) }()
		ask := func(c client, when string, closes bool) {
			t.Helper()
			c.send(t, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err := http.ReadResponse(c.r, nil)
			testproc.Checkf(t, err, "%s", when)
			if _, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || resp.Close != closes {
				t.Errorf("%s: %d, %v, closes the connection: %t", when, resp.StatusCode, err, resp.Close)
			}
		}
		old := testproc.Try(l.dial()).Or(t)
		ask(old, "before", false)
		begin := time.Now()
		stop()
		synctest.Wait()
		if !stopping.Load() {
			t.Error("it does not say that it stops")
		}
		time.Sleep(delay / 2) // of the simulated clock
		ask(old, "on an old connection", true)
		late := testproc.Try(l.dial()).Or(t)
		ask(late, "on a new connection", true)
		if err := <-ended; err != nil || time.Since(begin) != delay {
			t.Errorf("it ended after %v with %v", time.Since(begin), err)
		}
		if _, err := l.dial(); err == nil {
			t.Error("it takes connections after the end")
		}
	})
}
