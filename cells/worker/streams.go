// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// maxStreams is how many streams are served at the same time.
const maxStreams = 64

// streamer serves the agent's end of a stream about a server on a node. It ends what it writes with
// CloseWrite; its error is for the other end.
type streamer func(ctx context.Context, node Node, offer cellwire.StreamOffer, end *cellwire.Stream) error

// streamers has the function for each purpose that this agent serves.
var streamers = map[cellwire.Purpose]streamer{
	cellwire.PurposeDisk:       sendDisk,
	cellwire.PurposeConsoleLog: sendConsoleLog,
	cellwire.PurposeConsole:    joinConsole,
}

// sendConsoleLog sends the end of a server's console log.
func sendConsoleLog(ctx context.Context, node Node, offer cellwire.StreamOffer, end *cellwire.Stream) error {
	logger, can := node.Manager.(plugins.ConsoleLogger)
	if !can {
		return cellwire.Unable(offer.UUID, plugins.AbilityConsoleLog)
	}
	most := plugins.MaxConsoleLog
	if offer.Length > 0 {
		most = int(min(offer.Length, plugins.MaxConsoleLog))
	}
	log, err := logger.ConsoleLog(ctx, node.Name, offer.UUID, most)
	if err == nil {
		_, err = end.Write(log)
	}
	if err == nil {
		err = end.CloseWrite()
	}
	if err == nil {
		_, err = io.Copy(io.Discard, end) // until the other end has it all
	}
	return err
}

// joinConsole joins the other end to a server's serial console until one of them ends.
func joinConsole(ctx context.Context, node Node, offer cellwire.StreamOffer, end *cellwire.Stream) error {
	opener, can := node.Manager.(plugins.ConsoleOpener)
	if !can {
		return cellwire.Unable(offer.UUID, plugins.AbilityConsole)
	}
	console, err := opener.OpenConsole(ctx, node.Name, offer.UUID)
	if err != nil {
		return err
	}
	var (
		typing sync.WaitGroup
		left   atomic.Bool // the other end has
	)
	typing.Go(func() {
		if _, err := io.Copy(console, end); err == nil || errors.Is(err, cellwire.ErrStreamLost) {
			left.Store(true)
		}
		_ = console.Close() // which ends what is shown
	})
	if _, err = io.Copy(end, console); err == nil || left.Load() {
		err = end.CloseWrite()
	} else {
		end.Abort(refusal(offer, err))
	}
	_, _ = console.Close(), end.Close() // either may be closed by then
	typing.Wait()
	return err
}

// refusal is what the other end of a stream learns of an error.
func refusal(offer cellwire.StreamOffer, err error) *cellwire.Error {
	if refused := wireError(offer, err); refused != nil {
		return refused
	}
	return &cellwire.Error{Status: http.StatusInternalServerError, Code: cellwire.CodeInternal,
		Message: clipMiddle(err.Error())}
}

// wireError is the refusal that an error of a driver is to the other end of a stream, or nil.
func wireError(offer cellwire.StreamOffer, err error) *cellwire.Error {
	var (
		refused *cellwire.Error
		fault   *plugins.InstanceFault
	)
	conflict := func(format string, args ...any) *cellwire.Error {
		return &cellwire.Error{Status: http.StatusConflict,
			Code: cellwire.CodeConflict, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &fault):
		return conflict("Instance %s: %s", offer.UUID, fault.Reason)
	case errors.Is(err, plugins.ErrInstanceNotFound):
		return conflict("Instance %s is not ready", offer.UUID)
	case errors.Is(err, plugins.ErrUnsupported):
		return cellwire.Unable(offer.UUID, string(offer.Purpose))
	case errors.Is(err, plugins.ErrNotReady), errors.Is(err, errNodeAway):
		return &cellwire.Error{Status: http.StatusServiceUnavailable, Code: cellwire.CodeUnavailable,
			Message: fmt.Sprintf("The host of instance %s is not ready.", offer.UUID)}
	}
	return nil
}

// serveStreams opens this end of the streams that the cell offers, each once, and reports whether
// there was a new one.
func (w *Worker) serveStreams(ctx context.Context, offers []cellwire.StreamOffer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	added := false
	offered := make(map[string]bool, len(offers))
	for _, offer := range offers {
		offered[offer.ID] = true
		if _, known := w.streams[offer.ID]; known || len(w.streams) >= maxStreams || ctx.Err() != nil {
			continue
		}
		added = true
		w.streams[offer.ID] = true
		w.tasks.Go(func() { w.serveStream(ctx, offer) })
	}
	for id, open := range w.streams {
		if !open && !offered[id] { // the cell does not offer it any more
			delete(w.streams, id)
		}
	}
	return added
}

// serveStream serves one stream. One that cannot be served is opened all the same, to say why.
func (w *Worker) serveStream(ctx context.Context, offer cellwire.StreamOffer) {
	defer func() {
		w.mu.Lock()
		w.streams[offer.ID] = false
		w.mu.Unlock()
	}()
	log := w.log.With().Str("instance", offer.UUID).Str("purpose", string(offer.Purpose)).Logger()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end, err := w.cfg.Cell.AcceptStream(ctx, w.cfg.Host, offer.ID)
	if err != nil {
		log.Info().Err(err).Msg("Could not open a stream that the cell asked for. Its client may have gone away.")
		return
	}
	defer func() { _ = end.Close() }() // it may be closed by then
	node, serve, err := w.streamerOf(offer)
	if err == nil {
		err = serve(ctx, node, offer, end)
	}
	switch {
	case err == nil:
	case wireError(offer, err) != nil:
		end.Abort(refusal(offer, err))
	case errors.Is(err, cellwire.ErrStreamLost), ctx.Err() != nil:
		log.Debug().Err(err).Msg("A stream ended early.")
	default:
		log.Warn().Err(err).Msg("A stream about a server failed.")
		end.Abort(refusal(offer, err))
	}
}

// streamerOf finds who serves a stream, and on which node.
func (w *Worker) streamerOf(offer cellwire.StreamOffer) (Node, streamer, error) {
	serve := streamers[offer.Purpose]
	w.mu.Lock()
	s := w.servers[offer.UUID]
	var item cellwire.WorkItem
	known := s != nil && s.known && s.item.Want != cellwire.WantGone
	if known {
		item = s.item
	}
	w.mu.Unlock()
	if !known {
		return Node{}, nil, &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound,
			Message: "The host does not have the server " + offer.UUID + "."}
	}
	if serve == nil {
		return Node{}, nil, cellwire.Unable(offer.UUID, string(offer.Purpose))
	}
	if offer.Purpose == cellwire.PurposeDisk && item.Want != cellwire.WantDeparting {
		return Node{}, nil, &cellwire.Error{
			Status: http.StatusServiceUnavailable, Code: cellwire.CodeUnavailable, Message: "The server " + offer.UUID +
				" does not depart from this host.",
		}
	}
	node, err := w.lookupNode(w.nodeRef(item))
	return node, serve, err
}
