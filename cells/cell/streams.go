// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Bounds of streams.
const (
	// maxStreams is how many there may be in a process, and maxHostStreams to one host.
	maxStreams, maxHostStreams = 256, 32
	// acceptTime is how long the agent of a host has to open its end.
	acceptTime = 15 * time.Second
	// pollGap is how long a host may be between two requests for work and still be one that asks
	// here.
	pollGap = 5 * time.Second
)

// streams pairs the ends of streams. All of it is in memory: what a process does not have, such as
// the agent of the host, another process of the cell may.
type streams struct {
	mu        sync.Mutex
	offers    map[string]*offer    // by id: those that wait for their host
	open      map[string]int       // by host, with those that wait
	total     int                  // of open
	lastPolls map[string]time.Time // when hosts last asked for work here; zero: they wait for some now
	polled    chan struct{}        // closed and replaced when a host begins to ask here
	relays    sync.WaitGroup
	stop      context.CancelFunc
	stopped   context.Context // ends all relays
}

// offer is a stream whose agent's end is not open yet.
type offer struct {
	cellwire.StreamOffer
	host     string
	sent     bool // in an answer to the host
	claimed  bool // by a request that accepts it
	agentEnd chan *cellwire.Stream
	// checkAccess returns an error when the agent's end is not let in any more; it is set before
	// the end is in agentEnd.
	checkAccess func() error
}

func newStreams() *streams {
	s := &streams{offers: map[string]*offer{}, open: map[string]int{},
		lastPolls: map[string]time.Time{}, polled: make(chan struct{})}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s
}

// beginPoll records that a host waits for work, until ends is called.
func (s *streams) beginPoll(host string, now func() time.Time) (ends func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastPolls[host] = time.Time{}
	close(s.polled)
	s.polled = make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lastPolls[host] = now()
	}
}

// polling reports whether a host asks this process for work, and returns a channel that is closed
// when another one begins to.
func (s *streams) polling(host string, now time.Time) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.lastPolls[host]
	return known && (last.IsZero() || now.Sub(last).Abs() < pollGap), s.polled
}

// offersTo returns what is offered to a host; added says that something was not sent to it before.
// With send it counts as sent.
func (s *streams) offersTo(host string, send bool) (list []cellwire.StreamOffer, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.offers {
		if o.host == host {
			list, added = append(list, o.StreamOffer), added || !o.sent
			o.sent = o.sent || send
		}
	}
	slices.SortFunc(list, func(a, b cellwire.StreamOffer) int { return cmp.Compare(a.ID, b.ID) })
	return list, added
}

// offer adds a stream to a host. Its receiver calls remove in the end.
func (s *streams) offer(host string, what cellwire.StreamOffer) (*offer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped.Err() != nil:
		return nil, osapi.Unavailable("The cell is stopping.")
	case s.total >= maxStreams:
		return nil, osapi.Unavailable("The cell has %d streams already, the most that it may have.", s.total)
	case s.open[host] >= maxHostStreams:
		return nil, osapi.Unavailable("There are %d streams to the host already, the most that there may be.",
			s.open[host])
	}
	what.ID = rand.Text()
	o := &offer{StreamOffer: what, host: host, agentEnd: make(chan *cellwire.Stream, 1)}
	s.offers[o.ID] = o
	s.open[host]++
	s.total++
	s.relays.Add(1)
	return o, nil
}

// remove ends an offer. An end that came too late is closed.
func (s *streams) remove(o *offer) {
	s.mu.Lock()
	delete(s.offers, o.ID)
	s.total--
	if s.open[o.host]--; s.open[o.host] == 0 {
		delete(s.open, o.host)
	}
	s.mu.Unlock()
	select {
	case late := <-o.agentEnd:
		late.Abort(streamGone("The other end of the stream did not wait for this one."))
	default:
	}
	s.relays.Done()
}

// claim returns the stream that a host accepts, once: until release, no other request gets it.
func (s *streams) claim(host, id string) (*offer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.offers[id]; o != nil && o.host == host && !o.claimed {
		o.claimed = true
		return o, nil
	}
	return nil, &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound,
		Message: "No stream of this id waits for the host here."}
}

// release offers a stream again that a request took and could not accept.
func (s *streams) release(o *offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.claimed = false
}

// accept hands over the agent's end.
func (s *streams) accept(o *offer, end *cellwire.Stream, checkAccess func() error) {
	s.mu.Lock()
	waits := s.offers[o.ID] == o
	if waits {
		o.checkAccess = checkAccess
		delete(s.offers, o.ID)
		o.agentEnd <- end
	}
	s.mu.Unlock()
	if !waits {
		end.Abort(streamGone("The other end of the stream did not wait for this one."))
	}
}

// close ends all streams, and waits for that.
func (s *streams) close() {
	s.mu.Lock()
	s.stop() // with the lock: no stream is added any more
	s.mu.Unlock()
	s.relays.Wait()
}

func streamGone(text string) *cellwire.Error {
	return &cellwire.Error{Status: http.StatusServiceUnavailable, Code: cellwire.CodeUnavailable, Message: text}
}

// CloseStreams ends all streams and waits for that. Call it when no request is answered any more.
func (c *Cell) CloseStreams() { c.streams.close() }

// streamServer opens a stream between the compute API and the agent of a server's host.
func (c *Cell) streamServer(x *exchange) (any, error) {
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	q, err := readQuery(x, "purpose", "length")
	if err != nil {
		return nil, err
	}
	length, err := q.integer("length", 1<<62)
	if err != nil {
		return nil, err
	}
	what := cellwire.StreamOffer{Purpose: cellwire.Purpose(q.text("purpose")), UUID: uuid, Length: length}
	rule, err := what.Purpose.Rule()
	if err != nil {
		return nil, err
	}
	if rule.Hosts {
		return nil, &cellwire.Error{
			Status: http.StatusBadRequest, Code: cellwire.CodeBadRequest,
			Message: fmt.Sprintf("Only hosts open streams for the purpose %q.", what.Purpose),
		}
	}
	server, err := c.config.Store.Server(x.requestContext(), uuid, c.moment())
	switch {
	case err != nil:
		return nil, err
	case server.Deleted, server.Hidden:
		return nil, &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound,
			Message: fmt.Sprintf("Server %s is deleted.", uuid)}
	}
	if err := c.config.Store.CheckAbility(x.requestContext(), server, rule.Ability); err != nil {
		return nil, err
	}
	if !server.HostUp {
		return nil, &cellwire.Error{Status: http.StatusConflict, Code: cellwire.CodeConflict,
			Message: fmt.Sprintf("The host of instance %s is down.", uuid)}
	}
	return c.connect(x, server.Host, what, rule)
}

// streamSource opens a stream from a host to the source of the migration in which a server arrives
// there.
func (c *Cell) streamSource(x *exchange) (any, error) {
	host := x.R.PathValue("host")
	if err := serverstate.CheckHost(host); err != nil {
		return nil, err
	}
	uuid, err := pathUUID(x)
	if err != nil {
		return nil, err
	}
	if _, err := readQuery(x); err != nil {
		return nil, err
	}
	source, err := c.sourceOf(x.requestContext(), host, uuid)
	if err != nil {
		return nil, err
	}
	rule, err := cellwire.PurposeDisk.Rule()
	if err != nil {
		return nil, err
	}
	return c.connect(x, source, cellwire.StreamOffer{Purpose: cellwire.PurposeDisk, UUID: uuid}, rule)
}

// sourceOf is the host from which a server arrives at another one, by what that one has to do. The
// answer to a host at which it does not arrive is the same whether there is such a server or not.
func (c *Cell) sourceOf(ctx context.Context, host, uuid string) (string, error) {
	source, err := c.arrivesFrom(ctx, host, uuid)
	if missing := new(cellwire.Error); source == "" && err == nil || errors.As(err, &missing) &&
		missing.Code == cellwire.CodeNotFound {
		return "", &cellwire.Error{
			Status: http.StatusNotFound, Code: cellwire.CodeNotFound,
			Message: fmt.Sprintf("Server %s does not arrive at host %s in a migration.", uuid, host),
		}
	}
	return source, err
}

// arrivesFrom is sourceOf, with "" or a refusal (not found) for a server that does not arrive.
func (c *Cell) arrivesFrom(ctx context.Context, host, uuid string) (string, error) {
	server, err := c.config.Store.Server(ctx, uuid, c.moment())
	if err != nil {
		return "", err
	}
	info, err := c.config.Store.Info(ctx)
	if err != nil {
		return "", err
	}
	work, _, err := c.config.Store.Work(ctx, host, server.Revision-1, info.Epoch, c.moment())
	if err != nil {
		return "", err
	}
	for _, item := range work.Items {
		if m := item.Migration; item.Server.UUID == uuid &&
			item.Want == cellwire.WantArriving && m != nil && m.Type == cellwire.MigrationCold {
			return m.SourceHost, nil
		}
	}
	return "", nil
}

// connect offers a stream to a host, waits for the host's end, and joins it to that of the sender
// of the request, whose connection is upgraded. Who may ask for it is the caller's to know.
func (c *Cell) connect(x *exchange, host string, what cellwire.StreamOffer, rule cellwire.StreamRule) (any, error) {
	if err := x.CheckUpgrade(cellwire.StreamProtocol); err != nil {
		return nil, err
	}
	if err := c.awaitHost(x.requestContext(), host); err != nil {
		return nil, err
	}
	o, err := c.streams.offer(host, what)
	if err != nil {
		return nil, err
	}
	end, err := c.awaitEnd(x.requestContext(), o)
	if err != nil {
		c.streams.remove(o)
		return nil, err
	}
	conn, from, err := x.Upgrade(cellwire.StreamProtocol)
	if err != nil {
		end.Abort(streamGone("The other end of the stream is gone."))
		c.streams.remove(o)
		return nil, err
	}
	go func() {
		defer c.streams.remove(o)
		relay(c.streams.stopped, cellwire.NewStream(conn, from), end, rule, c.config.RecheckInterval,
			x.recheckAccess, o.checkAccess)
	}()
	return nil, errAnswered
}

// errAnswered says that a handler has answered its request.
var errAnswered = errors.New("the request is answered")

// awaitHost waits for the host to ask for work here. While it asks another process of the cell,
// that one has to be asked for the stream: clients try all processes when one answers 503.
func (c *Cell) awaitHost(ctx context.Context, host string) error {
	late := time.NewTimer(c.config.StreamWait)
	defer late.Stop()
	for {
		polls, polled := c.streams.polling(host, c.config.Now())
		if polls {
			return nil
		}
		select {
		case <-polled:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return osapi.Unavailable(
				"The agent of host %s does not ask this process of the cell for work: it may be restarting, or ask "+
					"another one.", host)
		}
	}
}

// awaitEnd waits for the agent to open its end.
func (c *Cell) awaitEnd(ctx context.Context, o *offer) (*cellwire.Stream, error) {
	c.broadcasts.notify(o.host)
	late := time.NewTimer(acceptTime)
	defer late.Stop()
	select {
	case end := <-o.agentEnd:
		return end, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.streams.stopped.Done():
		return nil, osapi.Unavailable("The cell is stopping.")
	case <-late.C:
		return nil, osapi.Unavailable("The agent of host %s did not open its end of a stream within %v.",
			o.host, acceptTime)
	}
}

// acceptStream takes the agent's end of a stream.
func (c *Cell) acceptStream(x *exchange) (any, error) {
	if _, err := readQuery(x); err != nil {
		return nil, err
	}
	// The host may ask again as soon as the connection is upgraded.
	o, err := c.streams.claim(x.R.PathValue("host"), x.R.PathValue("id"))
	if err != nil {
		return nil, err
	}
	conn, from, err := x.Upgrade(cellwire.StreamProtocol)
	if err != nil {
		c.streams.release(o)
		return nil, err
	}
	c.streams.accept(o, cellwire.NewStream(conn, from), x.recheckAccess)
	return nil, errAnswered
}

// relay carries bytes between two ends until both have ended, one is lost or aborted, nothing
// happens for too long, an end sends too much, one is not let in any more, or the context ends.
// Then both are closed.
func relay(
	ctx context.Context, a, b *cellwire.Stream, rule cellwire.StreamRule, every time.Duration,
	checkAccess ...func() error,
) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(rule.Idle, func() { cancel(streamGone(fmt.Sprintf("Nothing was sent for %v.", rule.Idle))) })
	defer idle.Stop()
	ended := context.AfterFunc(ctx, func() {
		why := streamGone("The cell is stopping.")
		_ = errors.As(context.Cause(ctx), &why)
		a.Abort(why)
		b.Abort(why)
	})
	var both sync.WaitGroup
	for _, way := range []struct{ from, to *cellwire.Stream }{{a, b}, {b, a}} {
		both.Go(func() {
			if err := copyFrames(way.to, way.from, rule.MaxBytes, func() { idle.Reset(rule.Idle) }); err != nil {
				why := streamGone("The other end of the stream is gone.")
				_ = errors.As(err, &why)
				cancel(why)
			}
		})
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		recheck := time.NewTicker(every)
		defer recheck.Stop()
		for {
			select {
			case <-done:
				return
			case <-recheck.C:
			}
			for _, check := range checkAccess {
				if err := check(); err != nil {
					cancel(&cellwire.Error{Status: http.StatusForbidden, Code: cellwire.CodeForbidden,
						Message: "An end of the stream is not let in any more."})
				}
			}
		}
	})
	both.Wait()
	close(done)
	watch.Wait()
	if ended() { // in good order
		_, _ = a.Close(), b.Close()
	}
}

// copyFrames copies from one end to another until the first one has ended.
func copyFrames(to, from *cellwire.Stream, maxBytes int64, onRead func()) error {
	buffer, sent := make([]byte, 32<<10), int64(0)
	for {
		n, err := from.Read(buffer)
		onRead()
		if sent += int64(n); maxBytes > 0 && sent > maxBytes {
			return &cellwire.Error{
				Status:  http.StatusRequestEntityTooLarge,
				Code:    cellwire.CodeTooLarge,
				Message: fmt.Sprintf("An end of the stream sent more than %d bytes.", maxBytes),
			}
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return to.CloseWrite()
		case err != nil:
			return err
		}
	}
}
