// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net"
	"net/netip"
	"strings"
)

// IsLoopback reports whether only this machine reaches what listens at a host, which is written as
// in HOST:PORT and URLs (IPv6 without brackets): an address in 127.0.0.0/8 or ::1, with a zone or
// mapped into IPv6 too, or the name localhost. An empty host means all interfaces and is not one;
// other names may lead anywhere.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && isLoopbackIP(ip)
}

// IsExposed reports whether other machines certainly reach what listens at a host: an empty host,
// and addresses that are not loopback. A name other than localhost is neither before it is looked
// up.
func IsExposed(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !isLoopbackIP(ip)
}

func isLoopbackIP(ip netip.Addr) bool { return ip.Unmap().IsLoopback() }

// IsLoopbackAddr reports whether only this machine reaches a listener with this address: a unix
// socket, or HOST:PORT with an [IsLoopback] host.
func IsLoopbackAddr(a net.Addr) bool {
	if strings.HasPrefix(a.Network(), "unix") {
		return true
	}
	host, _, err := net.SplitHostPort(a.String())
	return err == nil && IsLoopback(host)
}
