// SPDX-License-Identifier: Apache-2.0

package agentruns

import (
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
)

// HeaderProcess is the header by which an agent says with its requests which run of it sends them,
// where the protocol has no other place, and by which the server answers. Who does not know it
// ignores it, as OpenStack's Placement does.
//
//	token=…&boot=…&machine=…&started=…&host=…&identity=…&turn=SERVER.7     a request
//	turn=SERVER.8&for=600&several=2+agents+report+as…                      an answer
const HeaderProcess = "Compute-Agent-Process"

const (
	// maxProcessHeader bounds what is read of such a header, in bytes.
	maxProcessHeader = 4 << 10
	// maxServers is how many servers an agent remembers the turns of: those behind one address.
	maxServers = 8
)

// ProcessHeader is what a request says.
type ProcessHeader struct {
	Process Process
	// Host is the name that the agent has, and Identity the uuid of its state directory. Who trusts
	// the credential knows better.
	Host, Identity string

	turns []string
}

// ReadProcessHeader is what the headers of a request say; nil for nothing, and for what no agent
// says.
func ReadProcessHeader(h http.Header) *ProcessHeader {
	values := h[HeaderProcess]
	if len(values) != 1 || len(values[0]) > maxProcessHeader {
		return nil
	}
	v, err := url.ParseQuery(values[0])
	if err != nil {
		return nil
	}
	started, err := time.Parse(time.RFC3339, v.Get("started"))
	p := &ProcessHeader{
		Process: Process{Token: v.Get("token"), Boot: v.Get("boot"), Machine: v.Get("machine"), Started: started},
		Host:    v.Get("host"), Identity: v.Get("identity"), turns: v["turn"],
	}
	if err != nil || p.Process.Check() != nil || len(p.Identity) > 64 || p.Host != "" && pki.CheckName(p.Host) != nil {
		return nil
	}
	return p
}

// Report is the request as a server of a name takes it. Turns of other servers, and of the same one
// before it forgot the agents, say nothing.
func (p *ProcessHeader) Report(server, address string) Report {
	r := Report{Process: &p.Process, Address: address}
	for _, text := range p.turns {
		if of, number, ok := strings.Cut(text, "."); ok && of == server {
			if turn, err := strconv.ParseInt(number, 10, 64); err == nil {
				r.Turn = max(r.Turn, turn)
			}
		}
	}
	return r
}

// Answer is the header of the answer of a server of a name, which has no dot.
func (ag *Agents) Answer(server, host string, at time.Time, window time.Duration) string {
	v := url.Values{"turn": {server + "." + strconv.FormatInt(ag.Turn, 10)}}
	if live := ag.Live(at, window); live != nil {
		left := time.UnixMicro(ag.Until).Sub(at)
		v["for"], v["several"] = []string{strconv.Itoa(int(math.Ceil(left.Seconds())))},
			[]string{SeveralAgents(host, live)}
	}
	return v.Encode()
}

// ProcessSender says in requests which run of an agent sends them, from Begin on, and keeps what
// the servers answer. It is safe for concurrent use.
type ProcessSender struct {
	mu      sync.Mutex
	says    url.Values      // nil: nothing
	answers []processAnswer // one of each server, the latest first
}

// processAnswer is the last answer of a server.
type processAnswer struct {
	server, turn string
	several      string // what it says of several agents, until a time
	until        time.Time
}

// Begin has the header sent, by the run of an agent that is the only one of its state directory:
// commands beside it are no second agent. identity is the uuid of that directory.
func (s *ProcessSender) Begin(p Process, host, identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = url.Values{"token": {p.Token}, "started": {p.Started.UTC().Format(time.RFC3339)}}
	for key, text := range map[string]string{"boot": p.Boot, "machine": p.Machine, "host": host, "identity": identity} {
		if text != "" {
			s.says.Set(key, text)
		}
	}
}

// SeveralAgents is what a server said last, if several agents report as this host; "" if none does,
// or what it said is too old.
func (s *ProcessSender) SeveralAgents() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.answers {
		if a.several != "" && time.Now().Before(a.until) {
			return a.several
		}
	}
	return ""
}

// Transport is a transport that adds the header to each request. A nil ProcessSender adds nothing.
func (s *ProcessSender) Transport(next http.RoundTripper) http.RoundTripper {
	if s == nil {
		return next
	}
	return &processTransport{next: next, sender: s}
}

// value returns the header's value for the next request; "" if the request gets no header.
func (s *ProcessSender) value() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.says == nil {
		return ""
	}
	v := maps.Clone(s.says)
	for _, a := range s.answers {
		v["turn"] = append(v["turn"], a.turn)
	}
	return v.Encode()
}

// answered keeps the header of an answer.
func (s *ProcessSender) answered(text string) {
	v, err := url.ParseQuery(text)
	if err != nil || len(text) > maxProcessHeader {
		return
	}
	a := processAnswer{turn: v.Get("turn"), several: v.Get("several")}
	server, _, ok := strings.Cut(a.turn, ".")
	if !ok || len(a.turn) > 64 {
		return
	}
	seconds, _ := strconv.ParseUint(v.Get("for"), 10, 20)
	a.server, a.until = server, time.Now().Add(time.Duration(seconds)*time.Second) // at most 20 bits
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []processAnswer{a}
	for _, other := range s.answers {
		if other.server != server && len(all) < maxServers {
			all = append(all, other)
		}
	}
	s.answers = all
}

// processTransport carries the requests of a ProcessSender.
type processTransport struct {
	next   http.RoundTripper
	sender *ProcessSender
}

// RoundTrip implements http.RoundTripper.
func (t *processTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	value := t.sender.value()
	if value == "" {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set(HeaderProcess, value)
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		t.sender.answered(resp.Header.Get(HeaderProcess))
	}
	return resp, err
}

// CloseIdleConnections closes the connections that are not in use.
func (t *processTransport) CloseIdleConnections() {
	(&http.Client{Transport: t.next}).CloseIdleConnections()
}
