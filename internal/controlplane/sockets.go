// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/systemd"
)

// Sockets are the sockets that systemd passed to this process, by name.
type Sockets map[string][]net.Listener

// AddressError says that an address to listen on is invalid.
type AddressError struct{ err error }

func (e *AddressError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *AddressError) Unwrap() error { return e.err }

// WithSockets runs a service that gets the sockets that systemd passed. If the service cannot
// start, and systemd is to start it again after that error, the requests that wait on Placement's
// socket are answered: the socket stays open, and their clients would wait for as long as the
// service cannot start. For other failures systemd closes the socket.
//
// Errors: those of run; a socket that was passed cannot be used.
func WithSockets(ctx context.Context, run func(Sockets) error, restarts func(error) bool) error {
	sockets, err := systemd.Listeners()
	if err != nil {
		return err
	}
	var again []net.Listener // as the service closes its own
	defer func() { systemd.CloseAll(again) }()
	for _, l := range sockets[systemd.PlacementSocket] {
		second, err := systemd.Duplicate(l)
		if err != nil {
			return fmt.Errorf("the socket that systemd passed: %w", err)
		}
		again = append(again, second)
	}
	if err = run(sockets); err != nil && restarts(err) && ctx.Err() == nil {
		for _, l := range again {
			osapi.TurnAway(ctx, l, "Placement cannot start. Its log says why. It is started again.")
		}
	}
	return err
}

// PlacementListener returns the socket for Placement that systemd passed, or opens one at an
// address.
//
// Errors: an [*AddressError]; those of the socket.
func PlacementListener(
	ctx context.Context, sockets Sockets, address string, log zerolog.Logger,
) (l net.Listener, passed bool, err error) {
	ours := sockets[systemd.PlacementSocket]
	delete(sockets, systemd.PlacementSocket)
	for name, others := range sockets {
		log.Warn().Str("socket", name).Str("address", others[0].Addr().String()).
			Msg("systemd passed a socket that is not used. A socket for Placement needs FileDescriptorName=" +
				systemd.PlacementSocket + " in its unit.")
		systemd.CloseAll(others)
	}
	if len(ours) > 0 {
		if len(ours) > 1 {
			log.Warn().Str("address", ours[0].Addr().String()).Int("sockets", len(ours)).
				Msg("systemd passed several sockets; Placement serves only on the first. Keep one ListenStream= " +
					"in the unit.")
		}
		systemd.CloseAll(ours[1:])
		return ours[0], true, nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	}
	if err != nil {
		return nil, false,
			&AddressError{
				fmt.Errorf("cannot serve Placement on %s: %w; --listen takes HOST:PORT, such as 127.0.0.1:8778",
					address, err),
			}
	}
	l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, false,
			fmt.Errorf("cannot serve Placement on %s: %w; is another Placement running there? Choose another "+
				"address with --listen", address, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot serve Placement on %s: %w; choose another address with --listen",
			address, err)
	}
	return l, false, nil
}
