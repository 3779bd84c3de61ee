// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// nodeFile is a URI of libvirt's test driver for a host with domains.
func nodeFile(t testing.TB, h testhost.Host, domains ...testhost.Domain) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.xml")
	testproc.Check(t, os.WriteFile(file, []byte(h.NodeXML(domains...)), 0o600))
	return "test://" + file
}

// asSets compares lists without their order.
var asSets = cmpopts.SortSlices(strings.Compare)

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// domains are many, every tenth of them only defined.
func domains(n int) (list []testhost.Domain) {
	for i := range n {
		list = append(list, testhost.Domain{Name: fmt.Sprintf("instance-%08x", i), UUID: uuid(i), VCPUs: 2,
			MemoryMiB: 512, Off: i%10 == 9})
	}
	return list
}

// counter stands between a client and a daemon and counts the calls of libvirt's protocol, by their
// numbers.
type counter struct {
	socket string

	mu    sync.Mutex
	calls map[uint32]int
}

// The numbers of the calls that tests ask for (remote_protocol.x).
const (
	procListAllDomains    = 273
	procGetAllDomainStats = 344
	procDomainGetXMLDesc  = 14
	procListNodeDevices   = 285
	procNodeDeviceXML     = 114
)

// count starts a counter in front of a daemon.
func count(t testing.TB, to string) *counter {
	t.Helper()
	dir := testproc.Try(os.MkdirTemp("", "cn")).Or(t)
	c := &counter{socket: filepath.Join(dir, "sock"), calls: map[uint32]int{}}
	l := testproc.Try(net.Listen("unix", c.socket)).Or(t)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
			wg.Go(func() { c.pass(server, client); _ = server.Close() })
		}
	})
	return c
}

// pass hands messages on and counts those that are calls of the remote program.
func (c *counter) pass(to io.Writer, from io.Reader) {
	header := make([]byte, 28)
	for {
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(header)
		if binary.BigEndian.Uint32(header[4:]) == 0x20008086 && binary.BigEndian.Uint32(header[16:]) == 0 {
			c.mu.Lock()
			c.calls[binary.BigEndian.Uint32(header[12:])]++
			c.mu.Unlock()
		}
		if _, err := to.Write(header); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, int64(length)-28); err != nil {
			return
		}
	}
}

// since tells the calls since the last time.
func (c *counter) since() map[uint32]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = map[uint32]int{}
	return calls
}

// through makes a URI of a daemon one of the counter before it.
func (c *counter) through(uri string) string {
	before, _, _ := strings.Cut(uri, "?")
	if rest, ok := strings.CutPrefix(before, "test:"); ok {
		before = "test+unix:" + rest
	}
	return before + "?socket=" + c.socket
}

func socketOf(t testing.TB, uri string) string {
	t.Helper()
	_, socket, ok := strings.Cut(uri, "socket=")
	if !ok {
		t.Fatalf("%s names no socket", uri)
	}
	return socket
}
