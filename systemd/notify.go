// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// ErrNotify is wrapped by errors of notifications. They do not affect the service.
var ErrNotify = errors.New("systemd was not notified")

// sendTimeout limits a notification, in case systemd hangs.
const sendTimeout = time.Second

// A start that goes on longer than TimeoutStartSec= has extension from its last sign of life, of
// which systemd gets one each extendEvery.
const (
	extension   = 2 * time.Minute
	extendEvery = 10 * time.Second
)

// maxStatus limits STATUS= in bytes; `systemctl status` shows one line.
const maxStatus = 512

// Notifier notifies systemd of the service's state. It is safe for concurrent use. The zero value
// and a nil Notifier do nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration
	send     func(message string) error
	now      func() time.Time

	mu       sync.Mutex
	ready    bool
	extended time.Time // when systemd got the last sign of life of the start
}

// New removes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment, so that no child
// inherits them, and returns a Notifier for them. It does nothing unless systemd started this
// process with Type=notify. The error is about invalid variables; the Notifier works without them.
func New() (*Notifier, error) {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET"), now: time.Now}
	n.send = n.write
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return n, fmt.Errorf("removing NOTIFY_SOCKET from the environment: %w", err)
	}
	interval, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		return n, fmt.Errorf("the watchdog is off: %w", err)
	}
	if n.socket != "" && n.socket[0] != '/' && n.socket[0] != '@' {
		bad := n.socket
		n.socket = ""
		return n, fmt.Errorf("%w: NOTIFY_SOCKET is %q, neither a path nor an abstract socket", ErrNotify, bad)
	}
	n.watchdog = interval
	return n, nil
}

// Enabled reports whether systemd receives notifications.
func (n *Notifier) Enabled() bool { return n != nil && n.socket != "" }

// WatchdogInterval returns the interval in which systemd expects heartbeats, zero for none.
func (n *Notifier) WatchdogInterval() time.Duration {
	if !n.Enabled() {
		return 0
	}
	return n.watchdog
}

// Ready reports the end of start-up or of a reload.
func (n *Notifier) Ready(status string) error {
	if n.Enabled() {
		n.mu.Lock()
		n.ready = true
		n.mu.Unlock()
	}
	return n.notify(daemon.SdNotifyReady, statusLine(status))
}

// Starting reports a sign of life of a start that takes long, such as that of a service that
// upgrades its database: systemd, which would kill it after TimeoutStartSec=, gives it more time.
// It may be called as often as there are signs; after Ready it does nothing.
func (n *Notifier) Starting() error {
	if !n.Enabled() {
		return nil
	}
	n.mu.Lock()
	now := n.now()
	due := !n.ready && (n.extended.IsZero() || now.Sub(n.extended) >= extendEvery)
	if due {
		n.extended = now
	}
	n.mu.Unlock()
	if !due {
		return nil
	}
	return n.notify("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(extension.Microseconds(), 10))
}

// Stopping reports that the service is shutting down.
func (n *Notifier) Stopping(status string) error {
	return n.notify(daemon.SdNotifyStopping, statusLine(status))
}

// Reloading reports the start of a reload, with the monotonic time by which systemd matches it to
// its request. Ready must follow, even if the new configuration is invalid.
func (n *Notifier) Reloading(status string) error {
	if !n.Enabled() {
		return nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("%w: reading the monotonic clock: %w", ErrNotify, err)
	}
	usec := strconv.FormatInt(now.Nano()/int64(time.Microsecond), 10)
	return n.notify(daemon.SdNotifyReloading, "MONOTONIC_USEC="+usec, statusLine(status))
}

// Status sets the status line of `systemctl status`.
func (n *Notifier) Status(status string) error { return n.notify(statusLine(status)) }

// ping sends a heartbeat.
func (n *Notifier) ping() error { return n.notify(daemon.SdNotifyWatchdog) }

func (n *Notifier) notify(lines ...string) error {
	if !n.Enabled() {
		return nil
	}
	var given []string
	for _, l := range lines {
		if l != "" {
			given = append(given, l)
		}
	}
	if len(given) == 0 {
		return nil
	}
	if err := n.send(strings.Join(given, "\n")); err != nil {
		return fmt.Errorf("%w of %s: %w", ErrNotify, given[0], err)
	}
	return nil
}

// write sends one datagram. A name that begins with @ is an abstract socket,
// which package net understands.
func (n *Notifier) write(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}

// statusLine formats one STATUS= assignment, without line breaks.
func statusLine(status string) string {
	status = strings.Join(strings.Fields(strings.ToValidUTF8(status, "?")), " ")
	if status == "" {
		return ""
	}
	return "STATUS=" + textutil.Shorten(status, maxStatus)
}

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
