// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// checksPerInterval is the number of checks per watchdog interval. sd_watchdog_enabled(3) asks for
// two heartbeats; the third check logs a hang before systemd acts.
const checksPerInterval = 3

// Watchdog sends heartbeats to systemd while the service is alive, until ctx ends. It returns
// immediately if the watchdog is off.
//
// lastBeat returns when the service last made progress. If that is longer ago than the watchdog's
// interval, the hang is logged and no heartbeats are sent until there is progress, so that systemd
// restarts the service.
func (n *Notifier) Watchdog(ctx context.Context, lastBeat func() time.Time, log zerolog.Logger) {
	interval := n.WatchdogInterval()
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(max(interval/checksPerInterval, time.Millisecond))
	defer ticker.Stop()
	lastPing, hung := time.Now(), false
	for {
		now := time.Now()
		if age := now.Sub(lastBeat()); age > interval {
			if !hung {
				hung = true
				log.Error().
					Dur("since_last_beat", age).
					Dur("watchdog_interval", interval).
					Dur("until_killed", max(0, interval-now.Sub(lastPing))).
					Msg("The service makes no progress; systemd will restart it when the watchdog expires. Guests " +
						"are not affected. See the messages above for the driver call or request that hangs.")
			}
		} else {
			if hung {
				hung = false
				log.Info().Msg("The service makes progress again; the watchdog is fed.")
			}
			lastPing = now
			if err := n.ping(); err != nil {
				log.Warn().Err(err).
					Msg(
						"Cannot send the watchdog heartbeat to systemd, which restarts the service if none " +
							"arrives in time.")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
