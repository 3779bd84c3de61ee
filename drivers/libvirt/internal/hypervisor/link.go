// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The pauses between attempts to connect double from the first to the second.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// Settings are what a Link needs to know.
type Settings struct {
	// URI is libvirt's connection URI.
	URI string
	// Open makes connections.
	Open Open
	// ConnectTimeout is how long a caller waits for a connection, CallTimeout how long for an answer, if its context
	// allows as much.
	ConnectTimeout, CallTimeout time.Duration
	// Explain turns an error of Open into one that names cause and remedy. It is called with a deadline.
	Explain func(ctx context.Context, uri string, err error) error
	// Up is called whenever a connection was made. It must not block.
	Up func()
}

// Link is a connection to libvirt that mends itself. One goroutine owns the connection and makes all calls, one after the
// other: libvirt's calls cannot be cancelled, and a connection must not be closed beneath one.
//
// A call that takes too long is given up by its caller, not by the goroutine: further callers get an [*Unavailable] until
// it returns. Keep-alive (in [Conn]) sees to it that it does, some 20 s after a daemon has stopped.
type Link struct {
	settings Settings
	calls    chan call
	lost     chan loss
	stop     chan struct{}
	stopOnce sync.Once
	ended    chan struct{}

	mu       sync.Mutex
	doing    string // what the goroutine is in the middle of, "" if it waits
	since    time.Time
	overdue  bool  // a caller has given up what it does now
	cause    error // why there is no connection, nil if there is one
	leak     error
	attempts int
}

type call struct {
	what string
	run  func(Conn)
	fail func(error)
}

type loss struct {
	conn   int
	reason string
}

// Unavailable says that libvirt cannot be asked now.
type Unavailable struct {
	// URI is the connection's.
	URI string
	// Err is the cause, with a remedy where one is known.
	Err error
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("libvirt (%s) cannot be asked: %v", e.URI, e.Err)
}

// Unwrap is the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

// NewLink starts to connect and returns at once. Close it in the end.
func NewLink(s Settings) *Link {
	l := &Link{
		settings: s, calls: make(chan call), lost: make(chan loss, 16), stop: make(chan struct{}), ended: make(chan struct{}),
		cause: errors.New("not connected yet"), doing: "connecting", since: time.Now(),
	}
	go l.run()
	return l
}

// Call makes a call of libvirt and waits for its end, at most until ctx or the timeout ends. what names it in errors.
//
// Errors: those of f; [*Unavailable] if there is no connection, it broke, or the answer did not come in time (f then goes
// on by itself and its result is dropped).
func Call[T any](ctx context.Context, l *Link, what string, f func(Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1)
	c := call{
		what: what,
		run:  func(conn Conn) { v, err := f(conn); answers <- answer{v, err} },
		fail: func(err error) { answers <- answer{err: err} },
	}
	queue := time.NewTimer(l.settings.ConnectTimeout)
	defer queue.Stop()
	select {
	case l.calls <- c:
	case <-queue.C:
		return none, l.unavailable(l.busy(what))
	case <-ctx.Done():
		return none, l.unavailable(l.busy(what))
	case <-l.ended:
		return none, l.unavailable(errors.New("the connection was closed for good"))
	}
	limit := time.NewTimer(l.settings.CallTimeout)
	defer limit.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-limit.C:
		l.mu.Lock()
		l.overdue = l.doing != ""
		l.mu.Unlock()
		return none, l.unavailable(l.busy(what))
	case <-ctx.Done():
		return none, l.unavailable(l.busy(what))
	}
}

// State is nil while libvirt can be asked, else an [*Unavailable]. It does not block.
func (l *Link) State() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.overdue, l.doing != "" && l.cause == nil && time.Since(l.since) > l.settings.CallTimeout,
		l.doing != "" && l.cause != nil && time.Since(l.since) > l.settings.ConnectTimeout:
		return l.unavailable(l.stuckLocked())
	case l.cause != nil:
		return l.unavailable(l.cause)
	}
	return nil
}

// Attempts is how often a connection was tried so far.
func (l *Link) Attempts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts
}

// Close ends the link and gives the connection back, when the call in progress has returned. It returns what the
// connection's Close said, or ctx's error if that call takes longer; it is then closed later.
func (l *Link) Close(ctx context.Context) error {
	l.stopOnce.Do(func() { close(l.stop) })
	select {
	case <-l.ended:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.leak
	case <-ctx.Done():
		return fmt.Errorf("closing the connection to libvirt: %w", l.busy("close"))
	}
}

func (l *Link) unavailable(err error) error { return &Unavailable{URI: l.settings.URI, Err: err} }

// busy says why a call was given up.
func (l *Link) busy(what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doing == "" {
		return fmt.Errorf("the caller did not wait for %s", what)
	}
	return l.stuckLocked()
}

func (l *Link) stuckLocked() error {
	return fmt.Errorf("it has not answered for %s (%s): the daemon hangs or is very busy; if it stays so, restart it (systemctl restart libvirtd, or virtqemud); guests go on running",
		time.Since(l.since).Round(100*time.Millisecond), l.doing)
}

func (l *Link) begin(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doing, l.since, l.overdue = what, time.Now(), false
}

func (l *Link) finish(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doing, l.cause, l.overdue = "", cause, false
}
