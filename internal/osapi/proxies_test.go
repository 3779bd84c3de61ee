// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTrustedProxies: the client of a request that a trusted proxy sends is who the proxy says,
// and no other client can say who it is.
func TestTrustedProxies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	loopback, two := []string{"127.0.0.0/8"}, []string{"127.0.0.0/8", "198.51.100.0/24"}
	for name, c := range map[string]struct {
		proxies, header []string
		want            string // "": the address of the connection
	}{
		"no proxies":                       {nil, []string{"192.0.2.1"}, ""},
		"another proxy":                    {[]string{"198.51.100.1/32"}, []string{"192.0.2.1"}, ""},
		"no header":                        {loopback, nil, ""},
		"the client of one proxy":          {loopback, []string{"192.0.2.1"}, "192.0.2.1"},
		"with a port":                      {loopback, []string{"192.0.2.1:4711"}, "192.0.2.1"},
		"of IPv6":                          {loopback, []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		"of IPv6, no port":                 {loopback, []string{"[2001:db8::1]"}, "2001:db8::1"},
		"what a client wrote before":       {loopback, []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		"in two headers":                   {loopback, []string{"203.0.113.9", "192.0.2.1"}, "192.0.2.1"},
		"two proxies":                      {two, []string{"203.0.113.9, 192.0.2.1, 198.51.100.7"}, "192.0.2.1"},
		"all are proxies":                  {two, []string{"198.51.100.8, 198.51.100.7"}, "198.51.100.8"},
		"no address before the last proxy": {two, []string{"unknown, 198.51.100.7"}, "198.51.100.7"},
		"no address":                       {loopback, []string{"unknown"}, ""},
		"line breaks and quotes":           {loopback, []string{"192.0.2.1\" x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var proxies []netip.Prefix
			for _, p := range c.proxies {
				proxies = append(proxies, netip.MustParsePrefix(p))
			}
			address := start(t, &Server{
				Connections: NewConnections(ConnectionLimits{}, proxies...), Logger: zerolog.Nop(),
				Handler: http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.RemoteAddr) }),
			})
			request := "GET / HTTP/1.1\r\nHost: h\r\n"
			for _, h := range c.header {
				request += "X-Forwarded-For: " + h + "\r\n"
			}
			client := dial(t, address, nil)
			client.send(t, request+"\r\n")
			got := strings.TrimPrefix(client.answer(), "200 ")
			if want := c.want; want != "" {
				testproc.Equal(t, got, want, "%s")
			} else if host, _, err := net.SplitHostPort(got); err != nil || host != "127.0.0.1" {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// TestTrustedProxyHasAllConnections: the bound of an address does not hold for a proxy, which has
// the connections of many clients.
func TestTrustedProxyHasAllConnections(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, trusted := range []bool{false, true} {
		var proxies []netip.Prefix
		if trusted {
			proxies = append(proxies, netip.MustParsePrefix("127.0.0.1/32"))
		}
		conns := NewConnections(ConnectionLimits{Total: 8, PerAddress: 2}, proxies...)
		address := start(t, &Server{Connections: conns, Logger: zerolog.Nop(), Handler: http.HandlerFunc(echo)})
		const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		var clients []client
		for i := range 4 {
			c := dial(t, address, nil)
			c.send(t, get)
			testproc.Equal(t, c.answer(), "200 GET / ", "the answer: %s")
			clients = append(clients, c)
			open := min(i+1, 2)
			if trusted {
				open = i + 1
			}
			conns.until(func() bool { return conns.idle.Len() == open })
		}
		want := "closed"
		if trusted {
			clients[0].send(t, get)
			want = "200 GET / "
		}
		testproc.Equal(t, clients[0].answer(), want, "the first connection: %s")
	}
}
