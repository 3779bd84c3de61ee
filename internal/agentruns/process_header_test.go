// SPDX-License-Identifier: Apache-2.0

package agentruns

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// watching is a server with a Watch.
type watching struct{ w *Watch }

func (w watching) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{}
	if p := ReadProcessHeader(r.Header); p != nil {
		answer, _ := w.w.Add("identity "+p.Identity, p.Host, r.Host, p)
		h.Set(HeaderProcess, answer)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}, nil
}

// asking is an agent of the host h1.
type asking struct {
	t      *testing.T
	sender ProcessSender
}

func newAsking(t *testing.T, token string) *asking {
	a := &asking{t: t}
	a.sender.Begin(Process{Token: token, Boot: "boot-" + token, Machine: "m", Started: time.Now()}, "h1", "id1")
	return a
}

// ask sends a request, and returns what the agent knows of others then.
func (a *asking) ask(server http.RoundTripper) string {
	a.t.Helper()
	r := testproc.Try(http.NewRequestWithContext(a.t.Context(), http.MethodGet, "http://192.0.2.1/", http.NoBody)).
		Or(a.t)
	testproc.Try(a.sender.Transport(server).RoundTrip(r)).Or(a.t)
	if len(r.Header) > 0 {
		a.t.Errorf("the request was changed: %v", r.Header)
	}
	return a.sender.SeveralAgents()
}

// TestTwoAgentsAskOneServer: both learn of each other when each has shown that it lived after the
// other one came, and as long as both ask.
func TestTwoAgentsAskOneServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		w := NewWatch(20*time.Minute, time.Now)
		server := watching{w}
		before, a, b := newAsking(t, "before"), newAsking(t, "a"), newAsking(t, "b")
		before.ask(server) // it is restarted
		for i, one := range []*asking{a, b, a, b} {
			testproc.Equal(t, one.ask(server), "", "request %d proves nothing: %q", i)
			time.Sleep(time.Minute)
		}
		for _, one := range []*asking{a, b} {
			why := one.ask(server)
			for _, part := range []string{"2 agents report as host h1: one that started at ",
				"(boot id boot-a, machine m)", "(boot id boot-b, "} {
				testproc.Contains(t, why, part, "%q")
			}
		}
		testproc.Equal(t, w.Several(), 1, "%d hosts")
		// The copy is switched off. What the server said has an end, also if it does not answer.
		time.Sleep(19 * time.Minute)
		testproc.Contains(t, a.ask(server), "2 agents", "the answer: %q")
		time.Sleep(61 * time.Second)
		testproc.Equal(t, a.sender.SeveralAgents(), "", "without an answer: %q")
		testproc.Equal(t, a.ask(server), "", "with one: %q")
		testproc.Equal(t, w.Several(), 0, "%d hosts")
	})
}

// TestRestartsAreNotTwo: of the agent, of the server, and both.
func TestRestartsAreNotTwo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		servers := []watching{{NewWatch(20*time.Minute, time.Now)}, {NewWatch(20*time.Minute, time.Now)}}
		for n := range 20 {
			a := newAsking(t, fmt.Sprint("a", n))
			for i := range n % 5 {
				testproc.Equal(t, a.ask(servers[(n+i)%2]), "", "one at a time: %q")
				time.Sleep(time.Second)
			}
			if n%7 == 6 {
				servers[n%2] = watching{NewWatch(20*time.Minute, time.Now)}
			}
		}
		// Turns of one server say nothing to another one, whatever its clock says.
		ahead := watching{NewWatch(20*time.Minute, func() time.Time { return time.Now().Add(time.Hour) })}
		a, b := newAsking(t, "old"), newAsking(t, "new")
		a.ask(ahead)
		a.ask(servers[0])
		b.ask(servers[0])
		b.ask(servers[0])
		testproc.Equal(t, a.ask(servers[0]), "", "a late request: %q")
	})
}

// TestServersBehindOneAddress: agents whose requests are spread over several servers are found by
// each of them.
func TestServersBehindOneAddress(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		servers := []watching{{NewWatch(20*time.Minute, time.Now)}, {NewWatch(20*time.Minute, time.Now)}}
		a, b := newAsking(t, "a"), newAsking(t, "b")
		for i := range 6 {
			a.ask(servers[i%2])
			b.ask(servers[i%2])
			time.Sleep(time.Minute)
		}
		for i, s := range servers {
			testproc.Equal(t, s.w.Several(), 1, "server %d: %d hosts", i)
		}
	})
}

// TestProcessHeaders: what no agent says is ignored, and who knows no headers, or has not begun,
// changes nothing.
func TestProcessHeaders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const good = "token=t&started=2026-03-04T05:06:07Z&host=h1&identity=i&turn=s.7&turn=s.x&turn=&turn=other.99"
	p := ReadProcessHeader(http.Header{HeaderProcess: {good}})
	if p == nil || p.Report("s", "").Turn != 7 || p.Report("none", "").Turn != 0 {
		t.Errorf("ReadProcessHeader: got %+v, want turn 7 of s alone", p)
	}
	for _, bad := range []string{
		"", "%", "token=&started=2026-03-04T05:06:07Z", "token=t", "token=t&started=yesterday", good + "&boot=%00",
		good + "&machine=" + strings.Repeat("m", 65),
		"token=t&started=2026-03-04T05:06:07Z&host=%0a", "token=t&started=2026-03-04T05:06:07Z&identity=" +
			strings.Repeat("i", 65), good + strings.Repeat("&turn=s.1", 1000),
	} {
		if p := ReadProcessHeader(http.Header{HeaderProcess: {bad}}); p != nil {
			t.Errorf("%.80q: %+v", bad, p)
		}
	}
	if p := ReadProcessHeader(http.Header{HeaderProcess: {good, good}}); p != nil {
		t.Error("two headers")
	}
	var seen http.Header
	other := roundTrip(func(r *http.Request) (*http.Response, error) {
		seen = r.Header
		return &http.Response{Header: http.Header{HeaderProcess: {"turn=&several=x&for=9"}}, Body: http.NoBody}, nil
	})
	a := newAsking(t, "a")
	testproc.Equal(t, a.ask(other), "", "an answer without a turn: %q")
	if seen.Get(HeaderProcess) == "" {
		t.Error("no header was sent")
	}
	testproc.Equal(t, (&asking{t: t}).ask(other), "", "%q")
	if len(seen) > 0 {
		t.Errorf("before it has begun: %v", seen)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (rt roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

// TestAgentWatchIsBounded: it forgets hosts that were not seen for a window, and takes no more
// while it is full of others.
func TestAgentWatchIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	w := NewWatch(20*time.Minute, func() time.Time { return at })
	p := &ProcessHeader{Process: Process{Token: "t"}}
	for i := range maxWatched + 100 {
		answer, _ := w.Add(fmt.Sprint("host ", i), "h", "", p)
		if (answer == "") != (i >= maxWatched) {
			t.Fatalf("host %d: %q", i, answer)
		}
	}
	at = at.Add(10 * time.Minute)
	w.Add("host 7", "h", "", p)
	at = at.Add(11 * time.Minute)
	if answer, _ := w.Add("a new one", "h", "", p); answer == "" || len(w.hosts) != 2 {
		t.Errorf("%d hosts are kept, the answer is %q", len(w.hosts), answer)
	}
}
