// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/systemd"
)

// served is a network service of this process.
type served struct {
	what string // for messages: "Placement", "cell cell1"
	// plain means without TLS; tls names the settings that enable it.
	plain bool
	tls   string
	// watched are its admin socket and metrics; serve serves requests until the context ends.
	watched osapi.Admin
	serve   func(context.Context, net.Listener) error
}

// run serves on the listener, with watchdog, admin socket and metrics, and notifies systemd. It
// closes the listener in any case, and returns when nothing of the service runs.
func (s served) run(ctx context.Context, l net.Listener, notify *systemd.Notifier, log zerolog.Logger) error {
	address := l.Addr().String()
	if s.plain && !osapi.IsLoopbackAddr(l.Addr()) {
		log.Warn().Str("address", address).Msg("Clients send tokens to this address in plain text. Set " + s.tls +
			", or allow only a TLS proxy to reach the address.")
	}
	stopWatched, err := s.watched.Start(ctx, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer stopWatched()
	// also while the last requests are answered
	watching, stopWatchdog := context.WithCancel(context.WithoutCancel(ctx))
	var watchdog sync.WaitGroup
	watchdog.Go(func() { notify.Watchdog(watching, time.Now, log) })
	defer func() { stopWatchdog(); watchdog.Wait() }()
	logFailure(log, notify.Ready("serving "+s.what+" on "+address))
	defer context.AfterFunc(ctx, func() { logFailure(log, notify.Stopping("finishing requests")) })()
	return s.serve(ctx, l)
}

// serviceMemory is the percentage of the memory of a unit or container that the Go runtime of a
// service may use. The rest is for memory that it does not count, such as the page cache.
const serviceMemory = 90

// LimitMemory sets the Go runtime's memory limit to a percentage of that of the unit or container.
func LimitMemory(percent int64, log zerolog.Logger) {
	if limit := systemd.LimitMemory(percent); limit > 0 {
		log.Debug().Int64("bytes", limit).Msg("Set the memory limit of the process. GOMEMLIMIT overrides it.")
	}
}

// notifier returns the systemd notifier of a service.
func notifier(log zerolog.Logger) *systemd.Notifier {
	notify, err := systemd.New()
	if err != nil {
		log.Warn().Err(err).Msg("Invalid systemd environment; systemd is not notified of the service's state.")
	}
	return notify
}

// starting returns a function that gives a service that is starting more time when it is called.
func starting(notify *systemd.Notifier, log zerolog.Logger) func() {
	return func() { logFailure(log, notify.Starting()) }
}

// logFailure logs a failed notification of systemd, which does not affect the service.
func logFailure(log zerolog.Logger, err error) {
	if err != nil {
		log.Warn().Err(err).Msg("Cannot notify systemd of the service's state.")
	}
}

// CloseAudit closes an audit log, and logs what is lost.
func CloseAudit(audit *auditlog.Log, log zerolog.Logger) {
	if err := audit.Close(); err != nil {
		log.Error().Err(err).Msg("The audit log was closed with an error.")
	}
}
