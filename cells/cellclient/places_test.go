// SPDX-License-Identifier: Apache-2.0

package cellclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// replaceable is a server whose answers change, and which counts requests.
type replaceable struct {
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
	asked   atomic.Int64
}

func newReplaceable(t *testing.T, h http.HandlerFunc) *replaceable {
	t.Helper()
	r := &replaceable{}
	r.handler.Store(&h)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		(*r.handler.Load())(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

// TestSeveralURLs: a request without a valid answer goes to the next process of the cell, and the
// following ones go there at once; a refusal is an answer. When no process answers, the failure
// names each.
func TestSeveralURLs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ok, unavailable := answer(http.StatusOK, okInfo),
		answer(http.StatusServiceUnavailable, `{"code":"unavailable","message":"no"}`)
	a, b := newReplaceable(t, ok), newReplaceable(t, ok)
	client := connect(t, cellclient.Config{URL: a.URL + ", " + b.URL})
	expect := func(askedA, askedB int64, fails bool) error {
		t.Helper()
		_, err := client.Cell(t.Context())
		if n, m := a.asked.Swap(0), b.asked.Swap(0); n != askedA || m != askedB || (err != nil) != fails {
			t.Errorf("the first was asked %d times and the second %d, want %d and %d; %v", n, m, askedA, askedB, err)
		}
		return err
	}
	_ = expect(1, 0, false)
	a.handler.Store(&unavailable)
	_ = expect(1, 1, false)
	_ = expect(0, 1, false)
	refused := answer(http.StatusNotFound, `{"code":"not_found","message":"no"}`)
	b.handler.Store(&refused)
	if err := expect(0, 1, true); !cellclient.IsNotFound(err) {
		t.Errorf("a refusal is %v", err)
	}
	b.handler.Store(&unavailable)
	err := expect(1, 1, true)
	var f *cellclient.Failure
	if !errors.As(err, &f) || f.Kind != cellclient.Broken || !f.Sent || !strings.Contains(f.Error(), a.URL) ||
		!strings.Contains(f.Error(), b.URL) {
		t.Errorf("without any answer: %v", err)
	}
	a.handler.Store(&ok)
	b.Close()
	if _, err := client.Cell(t.Context()); err != nil {
		t.Errorf("with one that is gone: %v", err)
	}
	a.handler.Store(&unavailable)
	if _, err := client.Cell(t.Context()); cellclient.NotSent(err) {
		t.Errorf("%v counts as not sent, and one process got it", err)
	}
	for _, url := range []string{a.URL + ",", "," + a.URL, a.URL + ",ftp://x"} {
		if _, err := cellclient.New(cellclient.Config{URL: url}); err == nil {
			t.Errorf("%q is taken", url)
		}
	}
}

// TestHungProcess: a process that does not answer in time costs one call; the next one asks
// another.
func TestHungProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		client, err := cellclient.New(cellclient.Config{URL: "http://a,http://b",
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				asked[r.URL.Host]++
				if r.URL.Host == "a" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				w := httptest.NewRecorder()
				answer(http.StatusOK, okInfo)(w, r)
				return w.Result(), nil
			})})
		testproc.Check(t, err)
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := client.Cell(ctx)
			cancel()
			var f *cellclient.Failure
			if timedOut := errors.As(err, &f) &&
				f.Kind == cellclient.TimedOut; timedOut != (i == 0) || (err != nil) != (i == 0) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if asked["a"] != 1 || asked["b"] != 2 {
			t.Errorf("asked were %v", asked)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (rt roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }
