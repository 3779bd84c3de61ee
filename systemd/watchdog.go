// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// checksPerInterval is how often within the watchdog's interval the heartbeat is checked.
// sd_watchdog_enabled(3) recommends two pings; the third check allows a warning long before systemd
// acts.
const checksPerInterval = 3

// Watchdog pings systemd while the service makes progress, until ctx ends. It blocks, and returns
// at once if systemd has no watchdog.
//
// lastBeat returns when the service last made progress: the time of the tracker's loop, not of a
// timer. If that is longer ago than the interval, no ping is sent, the log says when systemd will
// kill the service, and systemd does. Pings resume if the service makes progress again in time.
func (n *Notifier) Watchdog(ctx context.Context, lastBeat func() time.Time, log zerolog.Logger) {
	interval := n.WatchdogInterval()
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(max(interval/checksPerInterval, time.Millisecond))
	defer ticker.Stop()
	lastPing, stalled := time.Now(), false
	for {
		now := time.Now()
		if age := now.Sub(lastBeat()); age > interval {
			if !stalled {
				stalled = true
				log.Error().
					Dur("since_last_beat", age).
					Dur("watchdog_interval", interval).
					Dur("until_killed", max(0, interval-now.Sub(lastPing))).
					Msg("No heartbeat from the tracker's loop: systemd will kill and restart the agent. Guests are not affected. The last messages in the log show which driver call or request hangs.")
			}
		} else {
			if stalled {
				stalled = false
				log.Info().Msg("The tracker's loop makes progress again, and systemd receives heartbeats.")
			}
			lastPing = now
			if err := n.ping(); err != nil {
				log.Warn().Err(err).Msg("A heartbeat did not reach systemd, which kills the service if none does within the watchdog's interval.")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
