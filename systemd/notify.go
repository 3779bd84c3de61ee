// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// ErrNotify is wrapped by the errors of notifications that were not delivered. The service
// continues.
var ErrNotify = errors.New("systemd was not notified")

// sendTimeout limits a notification. The socket accepts it at once unless systemd hangs.
const sendTimeout = time.Second

// maxStatus limits the text of STATUS=, in bytes; `systemctl status` shows one line.
const maxStatus = 512

// Notifier reports the state of the service to systemd. It is safe for concurrent use. The zero
// value, and a nil Notifier, do nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration
	send     func(message string) error
}

// New removes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment of the process, so
// that no child inherits them, and returns a Notifier for them. It does nothing if systemd did not
// start this process with Type=notify. The error reports invalid variables; the Notifier works
// without them.
func New() (*Notifier, error) {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	n.send = n.write
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return n, fmt.Errorf("take NOTIFY_SOCKET out of the environment: %w", err)
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

// WatchdogInterval is the time within which systemd expects a heartbeat; zero if it expects none.
func (n *Notifier) WatchdogInterval() time.Duration {
	if !n.Enabled() {
		return 0
	}
	return n.watchdog
}

// Ready reports that start-up, or a reload, is complete.
func (n *Notifier) Ready(status string) error {
	return n.notify(daemon.SdNotifyReady, statusLine(status))
}

// Stopping reports that the service is shutting down.
func (n *Notifier) Stopping(status string) error {
	return n.notify(daemon.SdNotifyStopping, statusLine(status))
}

// Reloading reports that the configuration is being reloaded, with the time on the monotonic clock
// by which systemd matches it to its request. Ready must follow, also if the new configuration is
// refused.
func (n *Notifier) Reloading(status string) error {
	if !n.Enabled() {
		return nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("%w: read the monotonic clock: %w", ErrNotify, err)
	}
	usec := strconv.FormatInt(now.Nano()/int64(time.Microsecond), 10)
	return n.notify(daemon.SdNotifyReloading, "MONOTONIC_USEC="+usec, statusLine(status))
}

// Status sets the text for `systemctl status`.
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

// statusLine removes line breaks, which would begin another assignment.
func statusLine(status string) string {
	status = strings.Join(strings.Fields(strings.ToValidUTF8(status, "?")), " ")
	if status == "" {
		return ""
	}
	if len(status) > maxStatus {
		status = strings.ToValidUTF8(status[:maxStatus], "") + "…"
	}
	return "STATUS=" + status
}
