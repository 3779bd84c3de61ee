// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

//go:embed console.html
var consolePage []byte

// Bounds of consoles.
const (
	// maxConsoles is how many are open at the same time.
	maxConsoles = 256
	// consolePing is how often a browser has to show that it is there, and how long it may take.
	consolePing = 30 * time.Second
	// maxTyped is how much one message of the browser may have, in bytes.
	maxTyped = 64 << 10
)

// consolePolicy lets the page run only what it has itself, and connect only to where it comes from.
var consolePolicy = fmt.Sprintf(
	"default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'",
	sourceOf("script"), sourceOf("style"))

// sourceOf is what a policy calls an element of the page.
func sourceOf(element string) string {
	_, rest, _ := strings.Cut(string(consolePage), "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// ConsoleSessions are the consoles that are open.
type ConsoleSessions struct {
	mu      sync.Mutex
	open    int
	running sync.WaitGroup
	stopped context.Context // ends all sessions
	stop    context.CancelFunc
}

// NewConsoleSessions makes them, without one.
func NewConsoleSessions() *ConsoleSessions {
	s := &ConsoleSessions{}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s
}

// begin counts a console, until end is called.
func (s *ConsoleSessions) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Err() != nil {
		return osapi.Unavailable("The compute API is stopping.")
	}
	if s.open >= maxConsoles {
		return osapi.Unavailable("There are %d consoles open already, the most that there may be.", s.open)
	}
	s.open++
	s.running.Add(1)
	return nil
}

func (s *ConsoleSessions) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.running.Done()
}

// Close ends all consoles and waits for that. Call it when no request is answered any more.
func (s *ConsoleSessions) Close() {
	s.mu.Lock()
	s.stop() // with the lock: none is added any more
	s.mu.Unlock()
	s.running.Wait()
}

// ServeConsole answers a request for the page of a console, or for its websocket. The token in the
// URL is all that the client needs.
func (d *Deps) ServeConsole(x *api.Exchange) error {
	x.Route = ConsolePath
	query, err := x.Values()
	x.R = x.R.Clone(x.Context())
	x.R.URL.RawQuery = "token=***" // it is not logged
	switch {
	case err != nil:
		return err
	case x.R.Method != http.MethodGet:
		e := osapi.Errorf(http.StatusMethodNotAllowed, "Consoles are read with GET.")
		e.Allow = http.MethodGet
		return e
	}
	if !strings.EqualFold(x.R.Header.Get("Upgrade"), "websocket") {
		h := x.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", consolePolicy)
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		x.Send(http.StatusOK, consolePage)
		return nil
	}
	if err := d.checkOrigin(x); err != nil {
		return err
	}
	uuid, err := d.Store.ConsoleToken(x.Context(), query.Get("token"))
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return osapi.Errorf(http.StatusUnauthorized,
			"The token of the console is unknown, or has expired. Ask for another URL.")
	case err != nil:
		return err
	}
	m, err := d.Store.Mapping(x.Context(), uuid)
	if err != nil {
		return api.RefuseIf(err, apidb.ErrNotFound, serverview.NotFound(uuid))
	}
	_, client, err := d.hosted(x, m)
	if err != nil {
		return err
	}
	return d.upgradeConsole(x, uuid, client)
}

// upgradeConsole makes a websocket of the connection, which is served when the request has ended.
func (d *Deps) upgradeConsole(x *api.Exchange, uuid string, client *cellclient.Client) error {
	if err := d.Consoles.begin(); err != nil {
		return err
	}
	accepted := &statusWriter{ResponseWriter: x.W}
	// see checkOrigin
	socket, err := websocket.Accept(accepted, x.R,
		&websocket.AcceptOptions{Subprotocols: []string{"binary"}, InsecureSkipVerify: true})
	x.Status = accepted.status
	if err != nil {
		d.Consoles.end()
		return osapi.BadRequest("This is no request for a websocket: %s.", osapi.Shortened(err.Error()))
	}
	log := x.Service.Logger.With().Str("request_id", x.ID).Str("instance", uuid).Logger()
	go func() {
		defer d.Consoles.end()
		log.Info().Str("remote", x.R.RemoteAddr).Msg("A user opened a console.")
		err := joinConsole(d.Consoles.stopped, socket, uuid, client)
		log.Info().AnErr("cause", err).Msg("A console was closed.")
	}()
	return nil
}

// statusWriter notes the status that websocket.Accept sends.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// checkOrigin refuses websockets that pages of others open, as Nova does: the host has to be that
// of the request or of the URL of consoles, and the scheme that of the latter. Other clients than
// browsers send no origin.
func (d *Deps) checkOrigin(x *api.Exchange) error {
	sent := x.R.Header.Get("Origin")
	if sent == "" {
		return nil
	}
	refused := func(what string) error { return osapi.Errorf(http.StatusForbidden, "%s", what) }
	origin, err := url.Parse(sent)
	if err != nil || origin.Hostname() == "" || origin.Scheme == "" {
		return refused("Origin header not valid.")
	}
	base, err := url.Parse(d.consoleBase(x))
	if err != nil {
		return refused("The URL of consoles is not valid.")
	}
	own := url.URL{Host: x.R.Host}
	if !strings.EqualFold(origin.Hostname(), own.Hostname()) && !strings.EqualFold(origin.Hostname(), base.Hostname()) {
		return refused("Origin header does not match this host.")
	}
	scheme := origin.Scheme
	if forwarded := x.R.Header.Get("X-Forwarded-Proto"); forwarded != "" {
		scheme = forwarded
	}
	if scheme != strings.Replace(base.Scheme, "ws", "http", 1) {
		return refused("Origin header protocol does not match this host.")
	}
	return nil
}

// joinConsole joins a websocket to the console of a server until one of them ends. The other end
// learns why.
func joinConsole(ctx context.Context, socket *websocket.Conn, uuid string, client *cellclient.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = socket.CloseNow() }() // it may be closed by then
	stream, err := client.OpenStream(ctx, uuid, cellwire.PurposeConsole, 0)
	if err != nil {
		return errors.Join(err, socket.Close(websocket.StatusInternalError, reasonOf(err, uuid)))
	}
	defer func() { _ = stream.Close() }() // it may be closed by then
	socket.SetReadLimit(maxTyped)
	var both sync.WaitGroup
	both.Go(func() {
		defer cancel()
		for {
			_, typed, err := socket.Read(ctx)
			if err == nil {
				_, err = stream.Write(typed)
			}
			if err != nil {
				_ = stream.CloseWrite() // it may be lost
				return
			}
		}
	})
	both.Go(func() {
		ticker := time.NewTicker(consolePing)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			waits, enough := context.WithTimeout(ctx, consolePing)
			err := socket.Ping(waits)
			enough()
			if err != nil {
				cancel()
				return
			}
		}
	})
	err = showConsole(ctx, socket, stream)
	status, reason := websocket.StatusNormalClosure, "The console has ended: the guest is off."
	if !errors.Is(err, io.EOF) {
		status, reason = websocket.StatusInternalError, reasonOf(err, uuid)
	}
	_ = socket.Close(status, reason) // the browser may be gone
	cancel()
	both.Wait()
	return err
}

// showConsole passes on what the guest writes until its console ends ([io.EOF]).
func showConsole(ctx context.Context, socket *websocket.Conn, stream io.Reader) error {
	buffer := make([]byte, 16<<10)
	for {
		n, err := stream.Read(buffer)
		if n > 0 {
			waits, enough := context.WithTimeout(ctx, consolePing)
			err := socket.Write(waits, websocket.MessageBinary, buffer[:n])
			enough()
			if err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// maxReason is how long the reason of a websocket's end may be, in bytes.
const maxReason = 120

// reasonOf is why a console ended, for its user.
func reasonOf(err error, uuid string) string {
	text := consoleFault(err, uuid).Error()
	var e *osapi.Error
	if errors.As(consoleFault(err, uuid), &e) {
		text = e.Message
	}
	text = strings.ToValidUTF8(text, "?")
	for len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}
