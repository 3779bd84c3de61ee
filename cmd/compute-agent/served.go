// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/systemd"
)

// served is a service of this process, and how others learn of it.
type served struct {
	what string // in words: "Placement", "cell cell1"
	// plain says that it does not speak TLS, and tls what to set so that it does.
	plain bool
	tls   string
	// watched is how it is watched, serve what answers its requests until the context ends.
	watched watched
	serve   func(context.Context, net.Listener) error
}

// run serves on the listener, tells systemd when that begins and when it ends, and has the service watched meanwhile. It closes the listener in any
// case, and returns when nothing of the service runs.
func (s served) run(ctx context.Context, l net.Listener, notify *systemd.Notifier, log zerolog.Logger) error {
	address := l.Addr().String()
	if s.plain && !osapi.IsLoopbackAddr(l.Addr()) {
		log.Warn().Str("address", address).Msg("Tokens come to this address as plain text, and whoever can listen on the network can use them. Set " + s.tls + ", or let only a proxy that speaks TLS reach the address.")
	}
	stopWatched, err := serveWatched(ctx, s.watched, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer stopWatched()
	watching, stopWatchdog := context.WithCancel(context.WithoutCancel(ctx)) // also while the last requests are answered
	var watchdog sync.WaitGroup
	watchdog.Go(func() { notify.Watchdog(watching, time.Now, log) })
	defer func() { stopWatchdog(); watchdog.Wait() }()
	tell(log, notify.Ready("serving "+s.what+" on "+address))
	defer context.AfterFunc(ctx, func() { tell(log, notify.Stopping("finishing the requests under way")) })()
	return s.serve(ctx, l)
}

// Shares, in percent, of the memory of a unit or a container that the Go runtime of this process
// may use: what it does not count, such as stacks of C and the page cache, has to fit beside it,
// and in the agent's unit the drivers as well.
const (
	serviceMemory = 90
	agentMemory   = 50
)

// limitMemory makes the garbage collector keep this process within a share of the memory that its unit or container may use.
func limitMemory(percent int64, log zerolog.Logger) {
	if limit := systemd.LimitMemory(percent); limit > 0 {
		log.Debug().Int64("bytes", limit).Msg("The memory of the process is limited. GOMEMLIMIT sets another limit.")
	}
}

// notifier tells systemd how a service of this process is.
func notifier(log zerolog.Logger) *systemd.Notifier {
	notify, err := systemd.New()
	if err != nil {
		log.Warn().Err(err).Msg("What systemd passed in the environment makes no sense: it will not be told how the service is.")
	}
	return notify
}

// tell logs what systemd could not be told; the service goes on.
func tell(log zerolog.Logger, err error) {
	if err != nil {
		log.Warn().Err(err).Msg("systemd could not be told how the service is.")
	}
}
