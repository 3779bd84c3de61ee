// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// u1 is the uuid of a provider.
const u1 = "aaaaaaaa-0000-4000-8000-000000000001"

// oneHost is an API on a ledger with one provider of 8 VCPU.
func oneHost(t *testing.T, log zerolog.Logger) *API {
	t.Helper()
	l := testproc.Try(transactor.Open(t.Context(), &placementtest.MemoryStore{}, transactor.Options{})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, l.Close()) })
	a := New(Config{Ledger: l,
		Authenticator: osapi.Fixed{Principal: osapi.Principal{User: "u", Roles: []string{"service"}}}, Logger: log})
	for _, c := range [][3]string{
		{"POST", "/resource_providers", `{"name":"node","uuid":"` + u1 + `"}`},
		{"PUT", "/resource_providers/" + u1 + "/inventories",
			`{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}`},
	} {
		r := httptest.NewRequest(c[0], c[1], strings.NewReader(c[2]))
		r.Header.Set("Content-Type", wire.MediaType)
		r.Header.Set(wire.HeaderVersion, wire.MaxVersion.HeaderValue())
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", c[1], w.Code, w.Body)
		}
	}
	return a
}

func getCandidates(ctx context.Context, a *API) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/allocation_candidates?resources=VCPU:1", nil)
	r.Header.Set(wire.HeaderVersion, wire.MaxVersion.HeaderValue())
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// TestCandidateAnswersAreBounded: when all answers together take what they may, the next is a 503
// that says when to come back; afterwards, nothing is counted any more.
func TestCandidateAnswersAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := oneHost(t, zerolog.Nop())
	a.answers.bytes.Store(maxAnswers)
	w := getCandidates(t.Context(), a)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("with no memory left: %d %s", w.Code, w.Body)
	}
	if got := a.answers.bytes.Load(); got != maxAnswers {
		t.Errorf("%d bytes are counted after the answer, want %d", got, maxAnswers)
	}
	a.answers.bytes.Store(0)
	if w := getCandidates(t.Context(), a); w.Code != http.StatusOK || a.answers.bytes.Load() != 0 {
		t.Errorf("with memory again: %d, and %d bytes counted", w.Code, a.answers.bytes.Load())
	}
}

// TestCandidatesOfAGoneClient: the search ends with the context of the request.
func TestCandidatesOfAGoneClient(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := oneHost(t, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w := getCandidates(ctx, a); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// answering is an answer to fill, and a candidate for it.
func answering(t *testing.T, a *API, v wire.Version) (*candidatesAnswer, *candidates.Candidate) {
	t.Helper()
	s := testproc.Try(a.ledger.Snapshot(t.Context())).Or(t)
	p, ok := s.Provider(u1)
	if !ok {
		t.Fatal("the provider is not there")
	}
	cq := testproc.Try(candidates.ReadURLQuery("resources=VCPU:1", v, 0)).Or(t)
	return a.answers.acquire(s, v, &cq, 1000), &candidates.Candidate{
		Root: p, Allocations: []candidates.Allocation{{Provider: p, Class: "VCPU", Amount: 1}},
		Groups: [][]*ledger.Provider{{p}},
	}
}

// TestCandidatesAnswerEndsWhenItIsFull: what was added until then is a whole answer, and the log
// says why there is no more.
func TestCandidatesAnswerEndsWhenItIsFull(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log bytes.Buffer
	a := oneHost(t, zerolog.New(&log).Level(zerolog.WarnLevel))
	answer, c := answering(t, a, wire.MaxVersion)
	defer a.answers.release(answer)
	if !answer.add(c) {
		t.Error("the first candidate does not fit")
	}
	answer.size += maxAnswer
	if answer.add(c) || !answer.large {
		t.Error("the answer takes more than its limit")
	}
	answer.size -= maxAnswer
	parts, err := answer.body()
	body := bytes.Join(parts, nil)
	want := `{"allocations":{"` + u1 + `":{"resources":{"VCPU":1}}},"mappings":{"":["` + u1 + `"]}}`
	if got := string(body); err != nil ||
		!strings.HasPrefix(got, `{"allocation_requests":[`+want+`,`+want+`],"provider_summaries":{"`+u1+`":{`) {
		t.Errorf("the answer that is full: error %v, body %s", err, got)
	}
	x := &exchange{api: a}
	request := httptest.NewRequest(http.MethodGet, "/allocation_candidates?resources=VCPU:1", nil)
	a.service.Serve(httptest.NewRecorder(), request, &x.Exchange, handling{x, func() error {
		for _, c := range []struct {
			stats candidates.Stats
			want  string
		}{
			{candidates.Stats{}, "larger"},
			{candidates.Stats{Exhausted: true}, "steps"},
		} {
			log.Reset()
			if x.logCutShort(c.stats, answer); !strings.Contains(log.String(), c.want) ||
				!strings.Contains(log.String(), x.ID) {
				t.Errorf("the log says %s", &log)
			}
		}
		return nil
	}})
}

// handling is an exchange that a test handles.
type handling struct {
	*exchange
	do func() error
}

func (h handling) Handle() error { return h.do() }

// TestCandidatesAnswerReusesMemory: with the memory of an answer before, hundreds of candidates and
// the summaries behind them cost none. The race detector makes a sync.Pool forget some.
func TestCandidatesAnswerReusesMemory(t *testing.T) {
	const many = 2000
	a := oneHost(t, zerolog.Nop())
	for _, v := range []wire.Version{10, 28, 29, 39} {
		answer, c := answering(t, a, v)
		fill := func() {
			answer.limit = many
			for range many {
				answer.add(c)
			}
			if _, err := answer.body(); err != nil || answer.count != many || len(answer.full) < 2 {
				t.Errorf("%d candidates, %d full chunks, %v", answer.count, len(answer.full), err)
			}
		}
		fill()
		s, cq := answer.s, answer.cq
		a.answers.release(answer)
		if n := testing.AllocsPerRun(20, func() {
			answer = a.answers.acquire(s, v, cq, many)
			fill()
			a.answers.release(answer)
		}); n > many/20 {
			t.Errorf("at %s: %v allocations for %d candidates", v, n, many)
		}
	}
}

// TestKeptAnswersAreEmpty: what waits for the next requests keeps no snapshot alive, and memory
// that grew for a large candidate is not kept.
func TestKeptAnswersAreEmpty(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := oneHost(t, zerolog.Nop())
	for _, v := range []wire.Version{28, 39} {
		answer, c := answering(t, a, v)
		answer.add(c)
		answer.b = append(answer.b, make([]byte, chunk)...)
		answer.add(c)
		testproc.Try(answer.body()).Or(t)
		used, summaries, parts := answer.used[:cap(answer.used)], answer.summaries[:cap(answer.summaries)], answer.parts
		a.answers.release(answer)
		if answer.s != nil || answer.cq != nil ||
			slices.ContainsFunc(used, func(p *ledger.Provider) bool { return p != nil }) ||
			slices.ContainsFunc(append(summaries, parts...), func(b []byte) bool { return b != nil }) {
			t.Errorf("at %s: an answer is kept with what it told of", v)
		}
		testproc.Equal(t, a.answers.bytes.Load(), 0, "at %s: %d bytes are counted", v)
	}
	answer, _ := answering(t, a, 39)
	answer.b = append(answer.b, make([]byte, chunk)...)
	for a.answers.chunks.Get() != nil { // what was kept above
	}
	a.answers.release(answer)
	if c := a.answers.chunks.Get(); c != nil {
		t.Error("memory that grew is kept")
	}
}

// TestCapacityBeyondAllNumbers: capacities are shown in full, as Placement does, whose integers
// have no end.
func TestCapacityBeyondAllNumbers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		inv  ledger.Inventory
		want string
	}{
		{ledger.Inventory{Total: 16, Reserved: 2, AllocationRatio: 1.5}, "21"},
		{ledger.Inventory{Total: 16, AllocationRatio: 1e30}, "16000000000000000318153997418496"},
		{ledger.Inventory{Total: 1, Reserved: 17, AllocationRatio: 1e30}, "-16000000000000000318153997418496"},
		{ledger.Inventory{Total: 0, AllocationRatio: math.Inf(1)}, "0"},
	} {
		if got := string(appendCapacity(nil, &c.inv)); got != c.want {
			t.Errorf("(%d-%d)*%g is shown as %s, not %s",
				c.inv.Total, c.inv.Reserved, c.inv.AllocationRatio, got, c.want)
		}
	}
}
