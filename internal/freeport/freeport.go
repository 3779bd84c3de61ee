// SPDX-License-Identifier: Apache-2.0

// Package freeport finds addresses for servers that tests start, end and start again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Loopback is an address on which nobody listens. It is none of those that the kernel gives to connections by itself: while its process is down, one of
// them would keep it from coming back.
func Loopback(t testing.TB) string {
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
