// SPDX-License-Identifier: Apache-2.0

package cellclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log" // http.Server.ErrorLog takes no other logger.
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const uuid = "11111111-1111-1111-1111-111111111111"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on loopback and gives a client of it.
func serve(t *testing.T, h http.HandlerFunc) *cellclient.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return connect(t, cellclient.Config{URL: server.URL})
}

func connect(t *testing.T, c cellclient.Config) *cellclient.Client {
	t.Helper()
	client := testproc.Try(cellclient.New(c)).Or(t)
	t.Cleanup(client.CloseIdle)
	return client
}

// answer writes JSON.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// raw answers with bytes as they are, and closes the connection.
func raw(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, response)
		_ = conn.Close()
	}
}

const okInfo = `{"name":"cell1","epoch":"e1","version":"1","now":"2026-01-01T00:00:00Z"}`

func TestInvalidAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tests := map[string]http.HandlerFunc{
		"garbage":             answer(200, `{"name":`),
		"trailing garbage":    answer(200, okInfo+"x"),
		"two values":          answer(200, okInfo+okInfo),
		"null":                answer(200, " null\n"),
		"a list":              answer(200, `[]`),
		"no epoch":            answer(200, `{}`),
		"no content":          answer(204, ""),
		"empty":               answer(200, ""),
		"wrong type of a key": answer(200, `{"epoch":7}`),
		"half a body": raw(
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + okInfo),
		"half a chunked body": raw(
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + okInfo),
		"half a body till EOF": raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + okInfo[:20]),
		"half a header":        raw("HTTP/1.1 200 OK\r\nContent-Ty"),
		"endless header":       raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)),
		"no HTTP":              raw("SSH-2.0-OpenSSH_9.2\r\n"),
		"nothing":              raw(""),
		"said to be huge": raw(
			"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 67108865\r\n\r\n"),
		"HTML": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		},
		"JSON of no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, okInfo)
		},
		"500":                answer(500, `{"code":"internal","message":"x"}`),
		"503":                answer(503, `{"code":"unavailable","message":"locked"}`),
		"502 of a proxy":     answer(502, ``),
		"404 of a proxy":     http.NotFound,
		"404 without a code": answer(404, `{"message":"no"}`),
		"404 of half JSON":   answer(404, `{"code":"not_fo`),
		"404 of Placement": answer(404,
			`{"errors":[{"status":404,"title":"Not Found","detail":"The resource could not be found."}]}`),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/other", http.StatusTemporaryRedirect)
		},
		"304": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			client := serve(t, handler)
			_, err := client.Cell(t.Context())
			var failure *cellclient.Failure
			if !errors.As(err, &failure) {
				t.Fatalf("got %v, not a failure", err)
			}
			if failure.Kind != cellclient.Broken || !failure.Sent {
				t.Errorf("got kind %v, sent %v: %v", failure.Kind, failure.Sent, err)
			}
			var refusal *cellwire.Error
			if errors.As(err, &refusal) {
				t.Errorf("a failure looks like the refusal %v", refusal)
			}
		})
	}
}

func TestAHugeAnswerIsNotReadToItsEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var written atomic.Int64
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, okInfo) // What follows may follow JSON, but not so much of it.
		spaces := []byte(strings.Repeat(" ", 1<<20))
		for range 200 {
			n, err := w.Write(spaces)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	_, err := client.Cell(t.Context())
	var failure *cellclient.Failure
	if !errors.As(err, &failure) || failure.Kind != cellclient.Broken {
		t.Fatalf("got %v", err)
	}
	if n := written.Load(); n >= 200<<20 {
		t.Errorf("all %d bytes were taken", n)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var requests atomic.Int64
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, r.URL.Path, http.StatusPermanentRedirect)
	})
	if err := client.MarkFreed(t.Context(), uuid); err == nil {
		t.Fatal("no error")
	}
	testproc.Equal(t, requests.Load(), 1, "%d requests")
}

func TestRefusals(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tests := []struct {
		status             int
		body               string
		notFound, conflict bool
	}{
		{404, `{"code":"not_found","message":"There is no such server."}`, true, false},
		{409, `{"code":"conflict","message":"It was released."}`, false, true},
		{409, `{"code":"exists","message":"Another has it."}`, false, true},
		{401, `{"code":"unauthorized","message":"Who are you?"}`, false, false},
		{403, `{"code":"forbidden","message":"No."}`, false, false},
		{400, `{"code":"bad_request","message":"What?"}`, false, false},
	}
	for _, test := range tests {
		t.Run(test.body, func(t *testing.T) {
			client := serve(t, answer(test.status, test.body))
			_, err := client.Release(t.Context(), uuid)
			var refusal *cellwire.Error
			if !errors.As(err, &refusal) || refusal.Status != test.status || refusal.Message == "" {
				t.Fatalf("got %v", err)
			}
			if cellclient.IsNotFound(err) != test.notFound || cellclient.IsConflict(err) != test.conflict {
				t.Errorf("not found %v, conflict %v", cellclient.IsNotFound(err), cellclient.IsConflict(err))
			}
			var failure *cellclient.Failure
			if errors.As(err, &failure) {
				t.Errorf("a refusal looks like the failure %v", failure)
			}
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	listener := testproc.Listen(t)
	closed := listener.Addr().String()
	_ = listener.Close()
	for _, url := range []string{"http://" + closed,
		"https://" + closed, "unix://" + filepath.Join(t.TempDir(), "none.sock")} {
		client := connect(t, cellclient.Config{URL: url})
		_, err := client.Insert(t.Context(), cellwire.Server{UUID: uuid})
		var failure *cellclient.Failure
		if !errors.As(err, &failure) || failure.Kind != cellclient.Refused || failure.Sent || !cellclient.NotSent(err) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestServerWithoutTLS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := httptest.NewServer(answer(200, okInfo))
	t.Cleanup(server.Close)
	client := connect(t, cellclient.Config{URL: "https" + strings.TrimPrefix(server.URL, "http")})
	_, err := client.Cell(t.Context())
	var failure *cellclient.Failure
	if !errors.As(err, &failure) || failure.Kind != cellclient.Broken || failure.Sent ||
		!strings.Contains(err.Error(), "it does not speak TLS: use http://") {
		t.Errorf("got %v", err)
	}
	secure := httptest.NewTLSServer(answer(200, okInfo))
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	_, err = connect(t, cellclient.Config{URL: "http" + strings.TrimPrefix(secure.URL, "https")}).Cell(t.Context())
	if !errors.As(err, &failure) || failure.Kind != cellclient.Broken ||
		!strings.Contains(err.Error(), "it speaks TLS: use https://") {
		t.Errorf("got %v", err)
	}
	if cellclient.IsCertificate(err) {
		t.Error("that is about no certificate")
	}
}

// TestTimeout: the kernel accepts connections for a cell that hangs, and no process answers.
func TestTimeout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testproc.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	for scheme, sent := range map[string]bool{"http": true, "https": false} {
		client := connect(t, cellclient.Config{URL: scheme + "://" + listener.Addr().String()})
		ctx, cancel := context.WithCancelCause(t.Context())
		received := make(chan struct{})
		go func() { // The deadline passes when the cell has got something and says nothing.
			defer close(received)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = conn.Read(make([]byte, 1))
			cancel(context.DeadlineExceeded)
			_, _ = io.Copy(io.Discard, conn)
		}()
		_, err = client.Insert(&manualDeadline{Context: ctx}, cellwire.Server{UUID: uuid})
		<-received // The connection is closed, and nothing goes on.
		var failure *cellclient.Failure
		if !errors.As(err, &failure) || failure.Kind != cellclient.TimedOut || failure.Sent != sent {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

func TestBodyTimeout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	stalled, done := make(chan struct{}), make(chan struct{})
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, okInfo[:10])
		w.(http.Flusher).Flush()
		close(stalled)
		<-done
	})
	t.Cleanup(func() { close(done) })
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	deadline := &manualDeadline{Context: ctx}
	go func() { <-stalled; cancel(context.DeadlineExceeded) }()
	_, err := client.Cell(deadline)
	var failure *cellclient.Failure
	if !errors.As(err, &failure) || failure.Kind != cellclient.TimedOut || !failure.Sent {
		t.Errorf("got %v", err)
	}
}

// manualDeadline is a context whose deadline passes when the test wants it to.
type manualDeadline struct{ context.Context }

func (m *manualDeadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (m *manualDeadline) Err() error {
	if m.Context.Err() != nil {
		return context.Cause(m.Context)
	}
	return nil
}

func TestCancelledCall(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	arrived, done := make(chan struct{}), make(chan struct{})
	client := serve(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-done })
	t.Cleanup(func() { close(done) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := client.Cell(ctx)
	var failure *cellclient.Failure
	if !errors.As(err, &failure) || failure.Kind != cellclient.Cancelled || !failure.Sent ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_, err = client.Cell(ctx)
	if !errors.As(err, &failure) || failure.Sent {
		t.Errorf("cancelled before: %v", err)
	}
}

// TestNoChangeIsSentTwice: a cell that was restarted: connections kept to it are dead. A change is
// sent once, whatever becomes of it.
func TestNoChangeIsSentTwice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var inserts atomic.Int64
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			answer(200, okInfo)(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		inserts.Add(1)
		raw("")(w, r)
	})
	for range 5 {
		if _, err := client.Cell(t.Context()); err != nil { // a connection to be kept
			t.Fatal(err)
		}
		before := inserts.Load()
		_, err := client.Insert(t.Context(), cellwire.Server{UUID: uuid})
		var failure *cellclient.Failure
		if !errors.As(err, &failure) || !failure.Sent {
			t.Fatalf("got %v", err)
		}
		if n := inserts.Load() - before; n != 1 {
			t.Fatalf("the insert was sent %d times", n)
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := httptest.NewUnstartedServer(answer(200, okInfo))
	var connections atomic.Int64
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := connect(t, cellclient.Config{URL: server.URL + "/"})
	for range 10 {
		testproc.Try(client.Cell(t.Context())).Or(t)
	}
	testproc.Equal(t, connections.Load(), 1, "%d connections")
}

func TestUnixSocketAndCredentials(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "cell.sock")
	listener := testproc.Try(net.Listen("unix", path)).Or(t)
	server := &httptest.Server{Listener: listener,
		Config: &http.Server{ReadHeaderTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Auth-Token") != "secret" {
					answer(401, `{"code":"unauthorized","message":"no token"}`)(w, r)
					return
				}
				answer(200, okInfo)(w, r)
			})}}
	server.Start()
	t.Cleanup(server.Close)
	client := connect(t, cellclient.Config{URL: "unix://" +
		path, Authorize: func(h http.Header) error { h.Set("X-Auth-Token", "secret"); return nil }})
	info, err := client.Cell(t.Context())
	if err != nil || info.Name != "cell1" {
		t.Errorf("got %+v, %v", info, err)
	}
	client = connect(t, cellclient.Config{URL: "unix://" +
		path, Authorize: func(http.Header) error { return io.ErrUnexpectedEOF }})
	if _, err := client.Cell(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) || !cellclient.NotSent(err) {
		t.Errorf("without credentials: %v", err)
	}
}

func TestTLS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := httptest.NewTLSServer(answer(200, okInfo))
	t.Cleanup(server.Close)
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := connect(t, cellclient.Config{URL: server.URL, TLS: trusting}).Cell(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := connect(t, cellclient.Config{URL: server.URL}).Cell(t.Context())
	if !cellclient.NotSent(err) || !cellclient.IsCertificate(err) {
		t.Errorf("to a server that is not trusted: %v", err)
	}
	strict := httptest.NewUnstartedServer(answer(200, okInfo))
	// its refusal is in the handshake
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: tls.VersionTLS12}
	strict.Config.ErrorLog = log.New(io.Discard, "", 0)
	strict.StartTLS()
	t.Cleanup(strict.Close)
	_, err = connect(t, cellclient.Config{URL: strict.URL,
		TLS: strict.Client().Transport.(*http.Transport).TLSClientConfig}).Cell(t.Context())
	if !cellclient.IsCertificate(err) {
		t.Errorf("without a certificate: %v", err)
	}
	t.Cleanup(server.Client().CloseIdleConnections)
}

func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	client := serve(t, answer(200, okInfo))
	if _, err := client.Cell(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestURLs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, url := range []string{"", "cell1:8779", "ftp://cell1", "http://", "http:///v1", "unix://", "unix:///",
		"unix://relative", "unix:cell.sock",
		"http://user:secret@cell1", "http://cell1?x=1",
		"http://cell1#x", "http://cell 1", "http://user:secret@cell1:port"} {
		if _, err := cellclient.New(cellclient.Config{URL: url}); err == nil ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("New with the URL %q: got %v, want an error without the secret", url, err)
		}
	}
}

func TestOversizedRequestIsNotSent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	client := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	_, err := client.Insert(t.Context(), cellwire.Server{UUID: uuid, UserData: strings.Repeat("x", 4<<20)})
	var refusal *cellwire.Error
	if !errors.As(err, &refusal) || refusal.Code != cellwire.CodeTooLarge {
		t.Errorf("got %v", err)
	}
}

// transport carries requests in the test.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestALongPollEndsAfterItsWaitAndALittle(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		client := connect(t,
			cellclient.Config{URL: "http://cell1", Transport: transport(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})})
		start := time.Now()
		_, err := client.Work(t.Context(), "h1", 0, "", 30*time.Second)
		if took := time.Since(start); took <= 30*time.Second || took > time.Minute {
			t.Errorf("it took %v", took)
		}
		var failure *cellclient.Failure
		if !errors.As(err, &failure) || failure.Kind != cellclient.TimedOut || !failure.Sent {
			t.Errorf("got %v", err)
		}
		if _, err := client.Cell(t.Context()); !errors.As(err, &failure) || failure.Kind != cellclient.TimedOut {
			t.Errorf("a call without a deadline: %v", err)
		}
	})
}

// TestErrorNamesServiceThatIsNoCell: where something else than a cell answers, the error says what,
// and which option is wrong.
func TestErrorNamesServiceThatIsNoCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for who, handler := range map[string]http.HandlerFunc{
		"a Placement": answer(404,
			`{"errors":[{"status":404,"title":"Not Found","detail":"The resource could not be found."}]}`),
		"a compute API": answer(404, `{"itemNotFound":{"code":404,"message":"The resource could not be found."}}`),
		"a Keystone": answer(401,
			`{"error":{"code":401,"message":"The request you have made requires `+
				`authentication.","title":"Unauthorized"}}`),
	} {
		_, err := serve(t, handler).Cell(t.Context())
		testproc.ErrorHas(t, err, who+
			" answers there, and no cell: cell_client.url of an agent, and the URL that `cells manage list` shows",
			"an answer of another service: %v")
	}
}
