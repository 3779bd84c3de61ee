// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// unread is a client that reads nothing of its answer until it is let.
type unread struct {
	http.ResponseWriter
	writes sync.Once
	began  chan struct{} // closed when the answer is written
	let    chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	u.writes.Do(func() { close(u.began) })
	<-u.let
	return len(b), nil
}

// TestMemoryForAnswers: large answers that no client reads take up no more memory than there is
// for them. Small ones, those to writes, and one that is alone are sent all the same, and when the
// others are gone all are.
func TestMemoryForAnswers(t *testing.T) {
	s := NewService(Options{Limits: Limits{Answers: 4 << 20}})
	status := func(method string, size int) int {
		w := serve(s, httptest.NewRequest(method, "/", nil),
			func(x *Exchange) error { return x.SendJSON(strings.Repeat("x", size)) })
		if w.Code == http.StatusServiceUnavailable &&
			(w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "memory")) {
			t.Errorf("the answer without memory: got %v %s, want Retry-After and the reason", w.Header(), w.Body)
		}
		return w.Code
	}
	testproc.Equal(t, status(http.MethodGet, 5<<20), http.StatusOK, "more than all of it, alone: %d")
	client := &unread{ResponseWriter: httptest.NewRecorder(), began: make(chan struct{}), let: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h := &handling{do: func(x *Exchange) error { return x.SendJSON(strings.Repeat("x", 3<<20)) }}
		s.Serve(client, httptest.NewRequest(http.MethodGet, "/", nil), &h.Exchange, h)
	}()
	<-client.began
	testproc.Equal(t, status(http.MethodGet, 2<<20), http.StatusServiceUnavailable, "beside one that is not read: %d")
	testproc.Equal(t, status(http.MethodGet, 1<<19), http.StatusOK, "one that fits: %d")
	testproc.Equal(t, status(http.MethodGet, 1000), http.StatusOK, "a small one: %d")
	testproc.Equal(t, status(http.MethodPost, 2<<20), http.StatusOK, "one to a write: %d")
	close(client.let)
	<-ended
	testproc.Equal(t, status(http.MethodGet, 2<<20), http.StatusOK, "afterwards: %d")
	testproc.Equal(t, s.answers.Load(), 0, "%d bytes are held after all")
}

// TestLimitsFollowTheMemory: what all bodies and answers together may take follows from the memory
// limit of the process.
func TestLimitsFollowTheMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for limit, want := range map[int64][2]int64{
		math.MaxInt64: {256 << 20, 256 << 20}, 800 << 20: {100 << 20, 100 << 20}, 8 << 20: {2 << 20, 32 << 20},
		64 << 30: {256 << 20, 256 << 20},
	} {
		debug.SetMemoryLimit(limit)
		got := NewService(Options{Limits: Limits{Body: 1 << 20}}).Limits
		if got.Bodies != want[0] || got.Answers != want[1] {
			t.Errorf("with a limit of %d MiB: %d MiB for bodies, %d MiB for answers",
				limit>>20, got.Bodies>>20, got.Answers>>20)
		}
	}
}
