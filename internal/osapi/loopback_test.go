// SPDX-License-Identifier: Apache-2.0

package osapi_test

import (
	"net"
	"testing"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestHost(t *testing.T) {
	for _, c := range []struct {
		host           string
		alone, exposed bool
	}{
		{"127.0.0.1", true, false},
		{"127.0.0.2", true, false},
		{"127.255.255.254", true, false},
		{"::1", true, false},
		{"0:0:0:0:0:0:0:1", true, false},
		{"::ffff:127.0.0.1", true, false},
		{"::1%lo", true, false},
		{"localhost", true, false},
		{"LocalHost", true, false},
		// No host is every interface.
		{"", false, true},
		{"0.0.0.0", false, true},
		{"::", false, true},
		{"::ffff:0.0.0.0", false, true},
		{"192.0.2.1", false, true},
		{"126.255.255.255", false, true},
		{"128.0.0.1", false, true},
		{"::ffff:192.0.2.1", false, true},
		{"::2", false, true},
		{"::127.0.0.1", false, true}, // an address of its own, and no IPv4 address
		{"fe80::1%eth0", false, true},
		// Names are what a resolver makes of them, and so is what only looks like an address.
		{"host.example", false, false},
		{"localhost.example", false, false},
		{"127.0.0.1.example", false, false},
		{"127.1", false, false},
		{"127.0.0.01", false, false},
		{"[::1]", false, false},
		{"127.0.0.1:80", false, false},
		{" 127.0.0.1", false, false},
		{"unix", false, false},
	} {
		testproc.Equal(t, osapi.IsLoopback(c.host), c.alone, "Host(%q) = %v", c.host)
		testproc.Equal(t, osapi.IsExposed(c.host), c.exposed, "Exposed(%q) = %v", c.host)
	}
}

// text is an address that says of itself what it is.
type text struct{ network, address string }

func (t text) Network() string { return t.network }
func (t text) String() string  { return t.address }

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		addr net.Addr
		want bool
	}{
		{&net.UnixAddr{Net: "unix", Name: "/run/cell.sock"}, true},
		{&net.UnixAddr{Net: "unix", Name: "@cell"}, true},
		{&net.UnixAddr{Net: "unixpacket", Name: ""}, true},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 80}, true}, // net's IPv4 is mapped into IPv6
		{&net.TCPAddr{IP: net.IP{127, 0, 0, 1}, Port: 80}, true},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 80}, true},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 80, Zone: "lo"}, true},
		{text{"tcp", "[::ffff:127.0.0.1]:80"}, true},
		{text{"tcp", "localhost:http"}, true},
		{&net.TCPAddr{Port: 80}, false},
		{&net.TCPAddr{IP: net.IPv4zero, Port: 80}, false},
		{&net.TCPAddr{IP: net.IPv6unspecified, Port: 80}, false},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, false},
		{text{"tcp", "host.example:80"}, false},
		{text{"tcp", "127.0.0.1"}, false}, // without a port it is no listener's address
		{text{"", ""}, false},
	} {
		testproc.Equal(t, osapi.IsLoopbackAddr(c.addr), c.want, "Addr(%s %s) = %v", c.addr.Network(), c.addr)
	}
}

// TestListener: an address and what listens on it are both loopback.
func TestListener(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "127.0.0.2:0", "[::ffff:127.0.0.1]:0"} {
		host, _, err := net.SplitHostPort(address)
		testproc.Check(t, err)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		testproc.Checkf(t, err, "%s", address)
		if !osapi.IsLoopback(host) || !osapi.IsLoopbackAddr(l.Addr()) {
			t.Errorf("%s listens on %s: Host says %v, and Addr %v",
				address, l.Addr(), osapi.IsLoopback(host), osapi.IsLoopbackAddr(l.Addr()))
		}
		_ = l.Close()
	}
}
