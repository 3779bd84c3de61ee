// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"net"
	"net/http/httptrace"
	"net/netip"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// details are what people see of a node; nil while its driver was not asked, or its guests were not
// compared, so that the cell keeps what an earlier process of the agent reported. w.mu is held.
func (w *Worker) details(n *nodeState) *cellwire.NodeDetails {
	if n.Hypervisor == nil || n.unknown == nil {
		return nil
	}
	return &cellwire.NodeDetails{
		HypervisorType: n.Hypervisor.Type, HypervisorVersion: n.Hypervisor.Version,
		HostIP:        cmp.Or(w.cfg.Address, w.address),
		UnknownGuests: int64(len(n.unknown)),
	}
}

// sameHypervisor reports whether two hypervisors are the same; nil is one that was not asked for.
func sameHypervisor(a, b *plugins.Hypervisor) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// traceAddress notes from which address the requests of a context reach the cell.
func (w *Worker) traceAddress(ctx context.Context) context.Context {
	if w.cfg.Address != "" {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		address := localAddress(ctx, info.Conn.LocalAddr())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.address = address
	}})
}

// localAddress is the address of this host by which others know it: that of a connection to the
// cell or, if the cell is on this host, that of its default route; without one 127.0.0.1, as Nova's
// my_ip.
func localAddress(ctx context.Context, local net.Addr) string {
	if ip, is := addressOf(local); is {
		return ip
	}
	// Addresses for documentation, which no host has: the kernel only looks at its routes.
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", target)
		if err != nil {
			continue
		}
		ip, is := addressOf(conn.LocalAddr())
		if _ = conn.Close(); is { // nothing was sent
			return ip
		}
	}
	return "127.0.0.1"
}

// addressOf is the address of one end of a connection, unless it is a loopback address, or none.
func addressOf(end net.Addr) (string, bool) {
	var ip netip.Addr
	switch end := end.(type) {
	case *net.TCPAddr:
		ip = end.AddrPort().Addr()
	case *net.UDPAddr:
		ip = end.AddrPort().Addr()
	}
	ip = ip.Unmap().WithZone("")
	return ip.String(), ip.IsValid() && !ip.IsLoopback() && !ip.IsUnspecified()
}
