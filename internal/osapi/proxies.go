// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

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
