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

// maxHanging bounds the connections that are left to calls which do not return.
const maxHanging = 3

// Settings are what a Link needs to know.
type Settings struct {
	// URI is libvirt's connection URI.
	URI string
	// Write asks for connections that can change something. Without it they can be used to look
	// only.
	Write bool
	// Open makes connections.
	Open Open
	// ConnectTimeout is how long a caller waits for a connection, CallTimeout how long for an
	// answer, if its context allows as much.
	ConnectTimeout, CallTimeout time.Duration
	// Explain turns an error of Open into one with cause and hint. It is called with a deadline.
	Explain func(ctx context.Context, uri string, write bool, err error) error
	// Connected is called whenever a connection was made. It must not block.
	Connected func()
	// EventLog gets the events, each new connection, and the first failure to make one; nil: none.
	EventLog *EventLog
}

// Link is a connection to libvirt that reconnects. One goroutine owns the connection and makes all
// calls, one after the other: libvirt's calls cannot be cancelled, and a connection must not be
// closed during one. Use two links for slow calls and for calls that must not wait.
//
// A call that takes too long is given up by its caller, not by the goroutine: further callers get
// an [*Unavailable] until it returns. Keep-alive (in [Conn]) ensures that it does, some 20 s
// after a daemon has stopped. A daemon that answers keep-alive but not the call (a guest's
// emulator, or a tool it waits for, hangs) never lets it return: when it has had CallTimeout more
// than its caller gave it, the connection is left to it and another one made. The connection is
// given back when the call returns after all. There are at most three such; with more, the link
// waits.
type Link struct {
	settings Settings
	calls    chan call
	losses   chan loss
	stop     chan struct{}
	stopOnce sync.Once
	ended    chan struct{}  // no more calls are made
	drained  chan struct{}  // all connections are given back
	hanging  sync.WaitGroup // calls that a connection was left to

	mu          sync.Mutex
	currentCall string // what the goroutine is in the middle of, "" if it waits
	since       time.Time
	limit       time.Duration // of what it does
	abandoned   bool          // a caller has given up what it does now
	cause       error         // why there is no connection, nil if there is one
	leak        error
	counts      Counts
}

// Counts are the counters of a Link.
type Counts struct {
	// Attempts is how often a connection was tried, Abandoned how many calls were given up after
	// they had begun.
	Attempts, Abandoned int
	// Hanging is how many calls are still in libvirt with a connection that was left to them.
	Hanging int
}

type call struct {
	what  string
	limit time.Duration
	run   func(Conn) (broken error)
	fail  func(error)
}

type loss struct {
	conn   int
	reason string
}

// NewLink starts to connect and returns at once. Close it in the end.
func NewLink(s Settings) *Link {
	l := &Link{
		settings: s, calls: make(chan call), losses: make(chan loss, 16), stop: make(chan struct{}),
		ended: make(chan struct{}), drained: make(chan struct{}),
		cause: errors.New("not connected yet"), currentCall: "connecting", since: time.Now(), limit: s.ConnectTimeout,
	}
	go l.run()
	return l
}

// Call makes a call of libvirt and waits for its end, at most until ctx or the timeout ends. what
// names it in errors.
//
// Errors: those of f; [*Unavailable] if there is no connection, it broke, or the answer did not
// come in time (f then goes on by itself and its result is dropped).
func Call[T any](ctx context.Context, l *Link, what string, f func(Conn) (T, error)) (T, error) {
	return CallWithin(ctx, l, what, l.settings.CallTimeout, f)
}

// CallWithin is Call with another timeout than the link's: for what takes longer.
func CallWithin[T any](
	ctx context.Context, l *Link, what string, limit time.Duration, f func(Conn) (T, error),
) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	answers := make(chan answer, 1)
	c := call{
		what: what, limit: limit,
		run: func(conn Conn) (broken error) {
			v, err := f(conn)
			if err != nil && !errors.Is(err, ErrUnsupported) && (errors.Is(err, ErrBroken) || !conn.Alive()) {
				broken = fmt.Errorf("the connection broke during a call (%s): %w", what, err)
				err = l.unavailable(broken, true)
			}
			answers <- answer{v, err}
			return broken
		},
		fail: func(err error) { answers <- answer{err: l.unavailable(err, false)} },
	}
	queue := time.NewTimer(l.settings.ConnectTimeout)
	defer queue.Stop()
	select {
	case l.calls <- c:
	case <-queue.C:
		return none, l.unavailable(l.busy(what), false)
	case <-ctx.Done():
		return none, l.unavailable(l.busy(what), false)
	case <-l.ended:
		return none, l.unavailable(errors.New("the connection is closed"), false)
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-over.C:
		return none, l.abandon(what, true)
	case <-ctx.Done():
		return none, l.abandon(what, false)
	}
}

// abandon is how a caller leaves a call that has begun.
func (l *Link) abandon(what string, overdue bool) error {
	l.mu.Lock()
	l.counts.Abandoned++
	if overdue {
		l.abandoned = l.currentCall == what
	}
	l.mu.Unlock()
	return l.unavailable(l.busy(what), true)
}

// State is nil while libvirt can be asked, else an [*Unavailable]. It does not block.
func (l *Link) State() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.abandoned, l.currentCall != "" && time.Since(l.since) > l.limit:
		return l.unavailable(l.stuckLocked(), false)
	case l.cause != nil:
		return l.unavailable(l.cause, false)
	}
	return nil
}

// Counts returns the counters.
func (l *Link) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Close ends the link and gives the connection back, when the calls in progress have returned. It
// returns what the connections' Close said, or an error if ctx ends before those calls do; they are
// then closed later.
func (l *Link) Close(ctx context.Context) error {
	l.stopOnce.Do(func() { close(l.stop) })
	select {
	case <-l.drained:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.leak
	case <-ctx.Done():
		return fmt.Errorf("closing the connection to libvirt: %w", l.busy("close"))
	}
}

func (l *Link) unavailable(err error, begun bool) error {
	return &Unavailable{URI: l.settings.URI, Begun: begun, Err: err}
}

// busy is why a call was given up.
func (l *Link) busy(what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.currentCall != "":
		return l.stuckLocked()
	case l.counts.Hanging > 0:
		return fmt.Errorf("%d calls to libvirt have not returned", l.counts.Hanging)
	}
	return fmt.Errorf("the caller did not wait for %s", what)
}

// stuckLocked names the moment and not how long ago it was: the same words while it hangs are one
// line in the agent's log.
func (l *Link) stuckLocked() error {
	return fmt.Errorf(
		"it has not responded since %s (%s): the daemon hangs or is very busy; if this persists, restart it "+
			"(systemctl restart libvirtd, or virtqemud); guests keep running",
		l.since.UTC().Format("15:04:05Z"), l.currentCall)
}

func (l *Link) begin(what string, limit time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentCall, l.since, l.limit, l.abandoned = what, time.Now(), limit, false
}

func (l *Link) finish(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.currentCall, l.cause, l.abandoned = "", cause, false
}
