// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// pipes is a listener whose connections are made by the test.
type pipes struct {
	come chan net.Conn
	done chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.come:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "pipe"} }

// ask serves with the handler, sends text, and returns what is answered.
func ask(
	t *testing.T, longest time.Duration, handler http.HandlerFunc, text string,
) (status int, body string, err error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &pipes{make(chan net.Conn), make(chan struct{})}
	ended := make(chan error)
	s := &osapi.Server{Handler: handler, ReadTimeout: requestTimeout, WriteTimeout: longest +
		answerTimeout, Grace: stopGrace}
	go func() { ended <- s.Serve(ctx, l) }()
	client, server := net.Pipe()
	l.come <- server
	go func() { _, _ = io.WriteString(client, text) }()
	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err == nil {
		var data []byte
		data, err = io.ReadAll(answer.Body)
		status, body = answer.StatusCode, string(data)
	}
	_ = client.Close()
	stop()
	testproc.NoError(t, <-ended)
	return status, body, err
}

// TestAHandlerMayWait: a request that has come is not ended by the bounds for those that come
// slowly, with a body or without.
func TestAHandlerMayWait(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, text := range map[string]string{
		"without a body": "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"with a body":    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const wait = 40 * time.Minute // as long as four cells that are given ten minutes
				status, body, err := ask(t, wait, func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						t.Error(err)
					}
					select {
					case <-r.Context().Done():
						_, _ = io.WriteString(w, "ended")
					case <-time.After(wait):
						_, _ = io.WriteString(w, "waited")
					}
				}, text)
				if err != nil || status != 200 || body != "waited" {
					t.Errorf("answered %d %q: %v", status, body, err)
				}
			})
		})
	}
}

// TestIncompleteBodyTimesOut: a client that sends half of a body holds a handler for a minute and
// no longer.
func TestIncompleteBodyTimesOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var took time.Duration // without the end of the server, which may take a moment
		_, body, err := ask(t, 0, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				took = time.Since(begun)
				_, _ = io.WriteString(w, "half")
			}
		}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{")
		if err != nil || body != "half" || took != requestTimeout {
			t.Errorf("after %v: %q, %v", took, body, err)
		}
	})
}
