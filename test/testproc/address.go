// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreeAddress returns an address on which no process listens. Its port is outside the range of
// ports for outgoing connections: one of those could take it while its process is down.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
	t.Fatal("no port is free")
	return ""
}

// SocketDir returns a directory for sockets that is removed when the test ends. Its name is short:
// that of t.TempDir can be too long for a socket.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
