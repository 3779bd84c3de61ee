// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

const (
	// idleConnections are kept to a cell: as many lists at once need no new ones.
	idleConnections = 64
	// idleTimeout is shorter than a cell's own, so that the client closes first and no request goes
	// to a connection about to be closed.
	idleTimeout = 30 * time.Second
	// maxHeader bounds the headers of an answer.
	maxHeader = 64 << 10
)

// newTransport makes connections to a cell: directly, over HTTP/1.1. net/http repeats a request by
// itself only on a kept connection that turned out dead, and only if it is a GET or nothing of it
// was written: no change is made twice by that.
func newTransport(socket string, config *tls.Config) *http.Transport {
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if socket != "" {
			network, address = "unix", socket
		}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := rebind(ctx)
			defer cancel()
			return dial(ctx, network, address)
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := rebind(ctx)
			defer cancel()
			return dialTLS(ctx, dial, config, network, address)
		},
		DisableCompression:     true,
		MaxIdleConns:           idleConnections,
		MaxIdleConnsPerHost:    idleConnections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
}

func dialTLS(
	ctx context.Context, dial func(context.Context, string, string) (net.Conn, error),
	config *tls.Config, network, address string,
) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, MinTLS)
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = nil
	plain, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		if header := new(tls.RecordHeaderError); errors.As(err, header) && string(header.RecordHeader[:]) == "HTTP/" {
			err = fmt.Errorf(
				"it does not speak TLS: use http:// in its URL, or have it use TLS (cert_file and key_file): %w", err)
		}
		return nil, err
	}
	return conn, nil
}

// requestKey is where a request's own context is among the values of the context that net/http
// dials with.
type requestKey struct{}

// bound puts ctx among its own values.
func bound(ctx context.Context) context.Context { return context.WithValue(ctx, requestKey{}, ctx) }

// rebind ends a dial together with the request that it was begun for. net/http lets it go on, for
// others to use: to a host that answers nothing that is a goroutine for minutes.
func rebind(ctx context.Context) (context.Context, context.CancelFunc) {
	request, ok := ctx.Value(requestKey{}).(context.Context)
	if !ok {
		return context.WithTimeout(ctx, maxCall)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(request, func() { cancel(request.Err()) })
	return ctx, func() { stop(); cancel(nil) }
}

// fixedParts are the parts of a cell's paths that do not vary.
var fixedParts = partsOf(
	"/v1/cell", "/v1/survey", "/v1/services", "/v1/compute-nodes/mapped", "/v1/compute-nodes/state",
	"/v1/migrations/due", "/v1/migrations/query",
	"/v1/servers/query", "/v1/servers/states", "/v1/servers/unfinished", "/release", "/discard", "/delete", "/restore",
	"/freed", "/power", "/rebuild",
	"/actions", "/stream", "/v1/hosts", "/work", "/reports", "/nodes", "/streams", "/arrivals",
)

func partsOf(paths ...string) map[string]bool {
	parts := map[string]bool{}
	for _, path := range paths {
		for part := range strings.SplitSeq(path, "/") {
			parts[part] = true
		}
	}
	return parts
}

// places are what stands for names, behind these parts.
var places = map[string]string{"hosts": "{host}", "nodes": "{node}", "streams": "{id}"}

// route is the path of a call as a cell has it in its table.
func route(path string) string { return textutil.Route(path, fixedParts, places) }
