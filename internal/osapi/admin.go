// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/rs/zerolog"
)

// Admin is what a service serves beside its API: an admin socket and metrics.
type Admin struct {
	Service string // for messages: "Placement", "Cell cell1"
	// Socket is the path of the admin socket, and Serve serves on it; Offers describes what.
	Socket, Offers string
	Serve          func(context.Context, *KeySocket) error
	// MetricsAddress is an additional address for metrics, "" for none; Key is its configuration
	// key.
	MetricsAddress, Key string
	ServeMetrics        func(context.Context, net.Listener) error
}

// Start serves the admin socket and, if configured, metrics at an address, until ctx ends or stop
// is called; stop waits. Failure to create the admin socket is logged only, because clients of the
// service do not need it. Failure to listen on a configured address is an error.
func (a Admin) Start(ctx context.Context, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	serve := func(what string, l net.Listener, on func() error) {
		log.Info().Str("address", l.Addr().String()).Msg(a.Service + ": serving the " + what + ".")
		group.Go(func() {
			if err := on(); err != nil {
				log.Error().Err(err).Msg(a.Service + ": the " + what +
					" has failed. Requests are still served; restart the service to restore it.")
			}
		})
	}
	if a.MetricsAddress != "" {
		l, err := Listen(ctx, onLoopback(a.MetricsAddress))
		if err != nil {
			stop()
			return nil, fmt.Errorf("%s: %w; choose another address, or none", a.Key, err)
		}
		serve("metrics page", l, func() error { return a.ServeMetrics(ctx, l) })
	}
	l, err := ListenWithKey(ctx, a.Socket)
	if err != nil {
		log.Warn().
			Err(err).
			Str("socket", a.Socket).
			Msg(a.Service + " has no admin socket: its " +
				a.Offers +
				" are not available there, and commands on its database require that it is stopped. Give each " +
				"service its own writable runtime directory (--runtime-dir).")
		return stop, nil
	}
	serve("admin socket", l, func() error { return a.Serve(ctx, l) })
	return stop, nil
}

// onLoopback returns the address, on loopback if it has no host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}
