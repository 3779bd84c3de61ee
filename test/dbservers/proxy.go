// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Fault is what a [Proxy] does to a COMMIT.
type Fault int

// The faults.
const (
	// None lets it pass.
	None Fault = iota
	// LoseCommit closes the connection before the server has the COMMIT.
	LoseCommit
	// LoseAnswer closes the connection after the server has answered the COMMIT.
	LoseAnswer
	// DelayCommit closes the connection to the client, and gives the server the COMMIT when it has
	// a connection of this proxy's again.
	DelayCommit
	// CloseAfter closes the connection when the client has the answer.
	CloseAfter
	// Silence keeps the answer, and the connection open.
	Silence
)

// Proxy is between clients and a database server.
type Proxy struct {
	// DSN is that of the database behind the proxy.
	DSN string

	server   string
	listener net.Listener
	running  sync.WaitGroup
	asked    atomic.Int64
	ended    chan struct{}

	mu      sync.Mutex
	fault   func() Fault // of the next COMMIT; nil is None
	between func()
	watch   func(request []byte)
	conns   map[net.Conn]bool
	trips   []int           // of each COMMIT since they were last asked for
	waiting []chan struct{} // delayed COMMITs, until another connection is made
}

// NewProxy makes a proxy for the server of a DSN that [MariaDB] or [PostgreSQL] returned.
func NewProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	u := testproc.Try(url.Parse(dsn)).Or(t)
	listener := testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	p := &Proxy{server: u.Host, listener: listener, ended: make(chan struct{}), conns: map[net.Conn]bool{}}
	u.Host = listener.Addr().String()
	p.DSN = u.String()
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Faults has each COMMIT from now on treated as next says; nil lets all pass.
func (p *Proxy) Faults(next func() Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = next
}

// Once has the next COMMIT treated as a fault says. between runs when the server is done with it,
// before the client sees anything of it; nil does nothing.
func (p *Proxy) Once(fault Fault, between func()) {
	done := false
	p.mu.Lock()
	p.between = between
	p.mu.Unlock()
	p.Faults(func() Fault {
		if done {
			return None
		}
		done = true
		return fault
	})
}

// Asked returns how often clients asked the server and waited for its answer, so far. It does not
// count that PostgreSQL's driver asks whether a connection that was idle is still there.
func (p *Proxy) Asked() int64 { return p.asked.Load() }

// Cut closes all connections, as a switch or a load balancer does that restarts.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // its goroutines end
	}
}

// Through returns the DSN of a database on the same server, by way of the proxy.
func (p *Proxy) Through(t testing.TB, dsn string) string {
	t.Helper()
	u := testproc.Try(url.Parse(dsn)).Or(t)
	if u.Host != p.server {
		t.Fatalf("a database is at %s, and the proxy is of %s", u.Host, p.server)
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

// Trips returns, for each COMMIT since the last call, how often its connection asked since the
// COMMIT before, as [Proxy.Asked] counts: round trips to the server.
func (p *Proxy) Trips() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.trips
	p.trips = nil
	return out
}

// Watch has f see each part of what clients send, before the server gets it; nil ends that.
func (p *Proxy) Watch(f func(request []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// see shows what a client sent.
func (p *Proxy) see(request []byte) {
	p.mu.Lock()
	watch := p.watch
	p.mu.Unlock()
	if watch != nil {
		watch(request)
	}
}

// Close closes all connections and refuses new ones.
func (p *Proxy) Close() {
	p.mu.Lock()
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
	for c := range p.conns {
		_ = c.Close() // its goroutines end
	}
	p.mu.Unlock()
	_ = p.listener.Close() // as above
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.running.Go(func() { p.serve(client, server) })
	}
}

// keep takes note of the connections of a client; false after Close. A delayed COMMIT is sent now:
// its client has noticed.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	default:
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	for _, w := range p.waiting {
		close(w)
	}
	p.waiting = nil
	return true
}

// decide says what happens to a COMMIT, and what runs meanwhile.
func (p *Proxy) decide() (Fault, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault == nil {
		return None, nil
	}
	fault, between := p.fault(), p.between
	if fault != None {
		p.between = nil
	}
	return fault, between
}

// serve carries the bytes of one connection. The client asks only after it has had the answer.
func (p *Proxy) serve(client, server net.Conn) {
	defer p.forget(client, server)
	var mu sync.Mutex
	fault, between := None, func() {}
	trips, answered := 0, true
	p.running.Go(func() {
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			if fault != LoseCommit { // otherwise the client does not notice too early
				_ = client.Close()
			}
		}()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			do, meanwhile := fault, between
			answered = true
			mu.Unlock()
			if do != None && meanwhile != nil {
				meanwhile()
			}
			switch do {
			case LoseAnswer, DelayCommit:
				return
			case Silence:
				continue
			}
			if _, err := client.Write(buffer[:n]); err != nil || do == CloseAfter {
				return
			}
		}
	})
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		mu.Lock()
		if answered && !isPing(buffer[:n]) {
			p.asked.Add(1)
			trips++
			answered = false
		}
		mu.Unlock()
		p.see(buffer[:n])
		if isCommit(buffer[:n]) {
			p.mu.Lock()
			p.trips = append(p.trips, trips)
			p.mu.Unlock()
			trips = 0
			do, meanwhile := p.decide()
			mu.Lock()
			fault, between = do, meanwhile
			mu.Unlock()
			switch do {
			case LoseCommit:
				if meanwhile != nil {
					_ = server.Close() // which undoes the transaction: others can go on
					meanwhile()
				}
				return
			case DelayCommit:
				if !p.delay(client) {
					return
				}
			}
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// delay closes the connection of a client, and waits for the next one.
func (p *Proxy) delay(client net.Conn) bool {
	noticed := make(chan struct{})
	p.mu.Lock()
	p.waiting = append(p.waiting, noticed)
	p.mu.Unlock()
	_ = client.Close()
	select {
	case <-noticed:
		return true
	case <-p.ended:
		return false
	}
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
			continue // it was gone
		}
	}
}

// isPing says that a request is the empty query of PostgreSQL's driver.
func isPing(request []byte) bool { return bytes.Contains(request, []byte("-- ping\x00")) }

// isCommit says that a request is a COMMIT, in the protocols of MySQL and of PostgreSQL.
func isCommit(request []byte) bool {
	return bytes.HasSuffix(request, []byte("\x03COMMIT")) ||
		bytes.Equal(bytes.ToLower(request), []byte("q\x00\x00\x00\x0bcommit\x00"))
}
