// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Upgrade answers a request with 101, and takes over its connection for another protocol: read from
// the reader, which may hold what the client sent already. The connection has no deadlines and is
// the caller's to close; the server does not wait for it when it stops.
func (x *Exchange) Upgrade(protocol string) (net.Conn, io.Reader, error) {
	if err := x.CheckUpgrade(protocol); err != nil {
		return nil, nil, err
	}
	c, buffered, err := http.NewResponseController(x.W).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("taking over the connection of a request: %w", err)
	}
	x.Status = http.StatusSwitchingProtocols
	_, err = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n",
		protocol, HeaderRequestID, x.ID)
	if err != nil {
		_ = c.Close() // the client has closed the connection
		return nil, nil, fmt.Errorf("answering a request for another protocol: %w", err)
	}
	return c, withBuffered(c, buffered.Reader), nil
}

// CheckUpgrade refuses (426) a request that does not ask for another protocol.
func (x *Exchange) CheckUpgrade(protocol string) error {
	if hasToken(x.R.Header, "Connection", "upgrade") && hasToken(x.R.Header, "Upgrade", protocol) &&
		x.R.ProtoMajor == 1 {
		return nil
	}
	return Errorf(http.StatusUpgradeRequired,
		"This call needs HTTP/1.1 with the headers Connection: Upgrade and Upgrade: %s.", protocol)
}

// hasToken reports whether a header with a list of words has one.
func hasToken(h http.Header, name, word string) bool {
	for _, line := range h.Values(name) {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(one), word) {
				return true
			}
		}
	}
	return false
}

// withBuffered reads what a buffer holds of a connection, and then from that.
func withBuffered(c net.Conn, buffer *bufio.Reader) io.Reader {
	if buffer.Buffered() == 0 {
		return c
	}
	return io.MultiReader(io.LimitReader(buffer, int64(buffer.Buffered())), c)
}
