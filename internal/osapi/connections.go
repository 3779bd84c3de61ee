// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Defaults of ConnectionLimits, and other bounds.
const (
	// mostConnections is the bound of all connections if the process can have more descriptors.
	mostConnections = 20_000
	// shareOfAddress is the divisor for the connections of one address.
	shareOfAddress = 4
	// otherDescriptors are left for databases, logs, and connections to other services, and one of
	// shareOfOthers more.
	otherDescriptors, shareOfOthers = 40, 16
	// leastConnections are always allowed.
	leastConnections = 8
	// headerBudget is the total cost of all headers that have not arrived completely, in bytes.
	headerBudget = 32 << 20
	// lineCost is the cost of a header line in addition to its bytes: the entry of a map.
	lineCost = 128
)

// ConnectionLimits bound the connections of the clients of a process. Connections to unix sockets
// do not count.
type ConnectionLimits struct {
	// Total is how many there may be; 0 is what the process's limit of open files allows, at most
	// 20,000.
	Total int
	// PerAddress is how many one IP address may have; 0 is a quarter of Total.
	PerAddress int
}

// resolve fills in defaults for a process that may have so many files open.
func (l ConnectionLimits) resolve(files uint64) ConnectionLimits {
	possible := mostConnections
	if reserved := otherDescriptors + files/shareOfOthers; files < mostConnections+reserved {
		possible = max(int(files)-int(reserved), leastConnections) // it is less than the bound above
	}
	if l.Total <= 0 || l.Total > possible {
		l.Total = possible
	}
	if l.PerAddress <= 0 {
		l.PerAddress = max(l.Total/shareOfAddress, leastConnections)
	}
	l.PerAddress = min(l.PerAddress, l.Total)
	return l
}

// Connections are the connections of clients to all servers of a process. If a new connection
// exceeds a bound, another one of the process or of the same address is closed: the one that has
// been idle for longest, or else the one that has been sending headers for longest. A connection
// with a request in progress is never closed; if there are no others, the new one is refused. It is
// safe for concurrent use.
type Connections struct {
	limits  ConnectionLimits
	proxies []netip.Prefix
	budget  int64 // of headers

	mu        sync.Mutex
	n         int
	idle      list.List // of *conn, the one that is idle for longest first
	waiting   list.List // of *conn
	addresses map[netip.Addr]*address
	headers   int64 // what the headers of those that wait cost
}

// address are the connections of one IP address.
type address struct {
	n             int
	idle, waiting list.List
}

// NewConnections makes an empty set. Proxies are trusted: they have no bound of an address, and
// what they say about addresses of clients counts.
func NewConnections(l ConnectionLimits, proxies ...netip.Prefix) *Connections {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		files.Cur = 1024 // the usual limit
	}
	return &Connections{
		limits: l.resolve(files.Cur), proxies: proxies, budget: headerBudget, addresses: map[netip.Addr]*address{},
	}
}

// Limits are the bounds in force.
func (cn *Connections) Limits() ConnectionLimits { return cn.limits }

// state of a connection.
type state int

const (
	waiting state = iota // for the rest of a request's headers, or of a handshake
	active               // a request is in progress
	idle                 // between two requests
	closed
)

// conn is a connection that is counted.
type conn struct {
	net.Conn
	set  *Connections
	from netip.Addr // invalid for one that has no bound

	// Under set.mu.
	state            state
	inAll, inAddress *list.Element // of the lists of its state, nil if it is active or closed
	cost             int64         // of its headers
}

// admit adds a connection, and closes another one if a bound is exceeded. If there is none to
// close, it closes the new one and returns nil.
func (cn *Connections) admit(c net.Conn) *conn {
	n := &conn{Conn: c, set: cn}
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		n.from = tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	var victim *conn
	accepted := true
	cn.mu.Lock()
	if n.from.IsValid() {
		perAddress := cn.limits.PerAddress
		if cn.trusts(n.from) {
			perAddress = cn.limits.Total
		}
		a := cn.addresses[n.from]
		switch {
		case a != nil && a.n >= perAddress:
			victim = oldest(&a.idle, &a.waiting)
		case cn.n >= cn.limits.Total:
			victim = oldest(&cn.idle, &cn.waiting)
		}
		if victim != nil {
			cn.remove(victim)
		} else {
			a = cn.addresses[n.from]
			accepted = cn.n < cn.limits.Total && (a == nil || a.n < perAddress)
		}
		if accepted {
			if a = cn.addresses[n.from]; a == nil {
				a = &address{}
				cn.addresses[n.from] = a
			}
			a.n++
			cn.n++
		}
	}
	if accepted {
		cn.setState(n, waiting)
	}
	cn.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close() // its client sees the end of the connection
	}
	if !accepted {
		_ = c.Close() // as above
		return nil
	}
	return n
}

// evict closes one connection without a request in progress, and reports whether there was one.
func (cn *Connections) evict() bool {
	cn.mu.Lock()
	victim := oldest(&cn.idle, &cn.waiting)
	if victim != nil {
		cn.remove(victim)
	}
	cn.mu.Unlock()
	if victim == nil {
		return false
	}
	_ = victim.Conn.Close() // its client sees the end of the connection
	return true
}

func oldest(lists ...*list.List) *conn {
	for _, l := range lists {
		if e := l.Front(); e != nil {
			return e.Value.(*conn)
		}
	}
	return nil
}

// setState moves a connection to a state. The caller holds mu.
func (cn *Connections) setState(c *conn, to state) {
	a := cn.addresses[c.from]
	if c.inAll != nil {
		l, la := &cn.idle, (*list.List)(nil)
		if a != nil {
			la = &a.idle
		}
		if c.state == waiting {
			l = &cn.waiting
			if a != nil {
				la = &a.waiting
			}
		}
		l.Remove(c.inAll)
		if la != nil {
			la.Remove(c.inAddress)
		}
		c.inAll, c.inAddress = nil, nil
	}
	c.state = to
	if to != waiting {
		cn.headers -= c.cost
		c.cost = 0
	}
	if a == nil { // one without a bound is never closed for another
		return
	}
	switch to {
	case waiting:
		c.inAll, c.inAddress = cn.waiting.PushBack(c), a.waiting.PushBack(c)
	case idle:
		c.inAll, c.inAddress = cn.idle.PushBack(c), a.idle.PushBack(c)
	}
}

// remove forgets a connection. The caller holds mu.
func (cn *Connections) remove(c *conn) {
	if c.state == closed {
		return
	}
	cn.setState(c, closed)
	if a := cn.addresses[c.from]; a != nil {
		cn.n--
		if a.n--; a.n == 0 {
			delete(cn.addresses, c.from)
		}
	}
}

// changeState changes the state of a connection.
func (c *conn) changeState(to state) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	if c.state != closed && c.state != to {
		c.set.setState(c, to)
	}
}

// charge adds to the cost of the headers of the connection. If the total exceeds the budget, the
// connections that have been sending headers for longest are closed, possibly this one.
func (c *conn) charge(cost int64) {
	s := c.set
	s.mu.Lock()
	var victims []*conn
	if c.state == idle { // its next request has begun
		s.setState(c, waiting)
	}
	if c.state == waiting {
		c.cost += cost
		s.headers += cost
		for s.headers > s.budget {
			victim := oldest(&s.waiting)
			if victim == nil {
				break
			}
			s.remove(victim)
			victims = append(victims, victim)
		}
	}
	s.mu.Unlock()
	for _, victim := range victims {
		_ = victim.Conn.Close() // its client sees the end of the connection
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.set.mu.Lock()
	c.set.remove(c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending side, so that the client can read the answer to a request that was
// not read completely.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// headerForwardedFor has the addresses of a request's client and of the proxies after it.
const headerForwardedFor = "X-Forwarded-For"

// trusts says whether an address is that of a trusted proxy.
func (cn *Connections) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(cn.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// clientOf returns the address of the client for which a trusted proxy has sent a request: the last
// one in its header that is not that of a trusted proxy, because a client can write those before.
// It returns "" if the connection is no such proxy's, or if the header has no address.
func (c *conn) clientOf(h http.Header) (client string) {
	if !c.from.IsValid() || !c.set.trusts(c.from) {
		return ""
	}
	list := strings.Split(strings.Join(h.Values(headerForwardedFor), ","), ",")
	for _, text := range slices.Backward(list) {
		address, ok := forwardedAddress(strings.TrimSpace(text))
		if !ok {
			break
		}
		client = address.String()
		if !c.set.trusts(address) {
			break
		}
	}
	return client
}

// forwardedAddress reads an address, with or without a port.
func forwardedAddress(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		with, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		address = with.Addr()
	}
	return address.Unmap().WithZone(""), true
}
