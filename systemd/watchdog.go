// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"time"

	"github.com/rs/zerolog"
)

// checksPerInterval is how often within the watchdog's interval the heart is
// listened to. sd_watchdog_enabled(3) asks for two signs of life; the third
// check leaves room for a warning long before systemd acts.
const checksPerInterval = 3

// Watchdog pings systemd for as long as the service is alive, until ctx ends,
// and returns at once where systemd has no watchdog. It belongs into a
// goroutine of its own.
//
// lastBeat is when the part of the service that matters last made progress (the
// tracker's loop, not a timer of its own). When it lies further back than the
// interval no ping is sent, the log says so and when systemd will kill the
// service, and systemd does. A heart that beats again in time is forgiven.
func (n *Notifier) Watchdog(ctx context.Context, lastBeat func() time.Time, log zerolog.Logger) {
	interval := n.WatchdogInterval()
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(max(interval/checksPerInterval, time.Millisecond))
	defer ticker.Stop()
	lastPing, silent := time.Now(), false
	for {
		now := time.Now()
		if age := now.Sub(lastBeat()); age > interval {
			if !silent {
				silent = true
				log.Error().
					Dur("since_last_beat", age).
					Dur("watchdog_interval", interval).
					Dur("until_killed", max(0, interval-now.Sub(lastPing))).
					Msg("the tracker's loop makes no progress, so systemd gets no more signs of life and will kill and restart the agent; guests are not affected; look at the last messages above for the driver call or request that hangs")
			}
		} else {
			if silent {
				silent = false
				log.Info().Msg("the tracker's loop makes progress again; systemd gets signs of life")
			}
			lastPing = now
			if err := n.ping(); err != nil {
				log.Warn().Err(err).Msg("a sign of life did not reach systemd; it kills the agent when none does within the watchdog's interval")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
