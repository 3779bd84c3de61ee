// SPDX-License-Identifier: Apache-2.0

// Package loopback decides who can reach a server by where it listens: a server that believes whatever a request says of itself (noauth) listens on
// loopback addresses and unix sockets only, and everybody who checks that asks here.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Host reports whether what listens at a host, as HOST:PORT and URLs have it (IPv6 without brackets), is reached from its own machine alone: an address
// in 127.0.0.0/8 or ::1, with a zone or mapped into IPv6 too, or the name localhost. No host stands for all interfaces, and is none; other names may
// lead anywhere.
func Host(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && isLoopback(ip)
}

// Exposed reports whether other machines reach what listens at a host, for certain: no host, and addresses that are not loopback. A name is neither
// Host nor Exposed before it was looked up, but for localhost.
func Exposed(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !isLoopback(ip)
}

func isLoopback(ip netip.Addr) bool { return ip.Unmap().IsLoopback() }

// Addr reports whether only this machine reaches a listener that has this address: a unix socket, or HOST:PORT with a [Host].
func Addr(a net.Addr) bool {
	if strings.HasPrefix(a.Network(), "unix") {
		return true
	}
	host, _, err := net.SplitHostPort(a.String())
	return err == nil && Host(host)
}
