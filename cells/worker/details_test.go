// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// reached is a connection from an address.
type reached struct {
	net.Conn
	from net.Addr
}

func (r reached) LocalAddr() net.Addr { return r.from }

// over is a connection from an address and port.
func over(from string) net.Conn {
	return reached{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))}
}

// TestDetailsAreReported: when the cell has said that it takes them, and at once when they change.
// What is not known yet is left as it was, and an older cell gets none.
func TestDetailsAreReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inScene(t, func(s *scene) {
		expect := func(when string, want *cellwire.NodeDetails) {
			t.Helper()
			if beat := s.cell.last(); len(beat.Nodes) != 1 || !cmp.Equal(want, beat.Nodes[0].Details) {
				t.Errorf("%s: %+v, want %+v", when, beat, want)
			}
		}
		identify := func(h plugins.Hypervisor) {
			s.mu.Lock()
			s.hypervisor = &h
			s.mu.Unlock()
			s.pass(2 * time.Second) // nodes are looked at each second, and heartbeats come every ten
		}
		s.cell.conn = over("192.0.2.7:4711")
		s.start()
		s.pass(time.Minute)
		expect("an older cell", nil)
		s.cell.set(func() { s.cell.details = true })
		s.pass(time.Minute)
		expect("a driver that was not asked", nil)
		identify(plugins.Hypervisor{Type: "QEMU", Version: 7002001})
		want := cellwire.NodeDetails{HypervisorType: "QEMU", HypervisorVersion: 7002001, HostIP: "192.0.2.7"}
		expect("a driver that was asked", &want)
		s.cell.set(func() { s.cell.conn = over("[::ffff:192.0.2.8]:4711") })
		s.pass(30 * time.Second) // one heartbeat learns the address, and the next one has it
		want.HostIP = "192.0.2.8"
		expect("another address", &want)
		identify(plugins.Hypervisor{})
		expect("a driver that does not know", &cellwire.NodeDetails{HostIP: "192.0.2.8"})
		s.driver.mu.Lock()
		s.driver.guests[serverUUID(9)] = plugins.PowerRunning
		s.driver.mu.Unlock()
		s.w.Changed("", "")
		s.pass(30 * time.Second)
		unknown := &cellwire.NodeDetails{HostIP: "192.0.2.8", UnknownGuests: 1}
		expect("a guest of no server", unknown)
		s.cell.set(func() { s.cell.untold = errLost })
		s.start()
		s.pass(time.Minute)
		expect("guests that were not compared since the start", nil)
		s.cell.set(func() { s.cell.untold = nil })
		s.pass(time.Minute)
		expect("guests that were compared", unknown)
		identify(plugins.Hypervisor{Type: "QEMU", Version: 8000000})

		beats, asked := len(s.cell.heartbeats()), s.cell.called("report")
		s.cell.set(func() { s.cell.details = false })
		s.pass(time.Minute)
		if more, requests := len(s.cell.heartbeats())-beats,
			s.cell.called("report")-asked; more < 5 || requests != more+1 {
			t.Errorf("to a cell of before: %d heartbeats with %d requests: one is refused", more, requests)
		}
		expect("a cell of before", nil)
		if beat := s.cell.last(); beat.Nodes[0].Abilities == nil {
			t.Errorf("it gets no abilities: %+v", beat)
		}
	})
}

// TestAddressOfTheHost: that of the configuration counts, and that of the connection to the cell;
// for a cell on this host, that of the default route.
func TestAddressOfTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		conn       net.Conn
		configured string
		want       string // "": an address that the machine has
	}{
		"configured":      {over("192.0.2.7:4711"), "198.51.100.1", "198.51.100.1"},
		"IPv6":            {over("[2001:db8::7]:4711"), "", "2001:db8::7"},
		"a zone":          {over("[fe80::7%eth0]:4711"), "", "fe80::7"},
		"this host":       {over("127.0.0.1:4711"), "", ""},
		"this host, IPv6": {over("[::1]:4711"), "", ""},
		"a unix socket":   {reached{from: &net.UnixAddr{Name: "@", Net: "unix"}}, "", ""},
	} {
		inScene(t, func(s *scene) {
			s.hypervisor, s.address = &plugins.Hypervisor{Type: "QEMU"}, c.configured
			s.cell.conn, s.cell.details = c.conn, true
			s.start()
			s.pass(time.Minute)
			beat := s.cell.last()
			if len(beat.Nodes) != 1 || beat.Nodes[0].Details == nil {
				t.Fatalf("%s: %+v", name, beat)
			}
			got := beat.Nodes[0].Details.HostIP
			ip, err := netip.ParseAddr(got)
			if c.want != "" && got != c.want || c.want == "" && (err != nil || ip.Zone() != "" || ip.IsUnspecified()) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		})
	}
}
