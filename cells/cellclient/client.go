// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

const (
	// maxAnswer bounds the bytes of an answer. Pages and work of cells are far smaller.
	maxAnswer = 64 << 20
	// maxRequest is what a cell takes.
	maxRequest = 4 << 20
	// maxSnippet bounds what errors show of an answer, in characters.
	maxSnippet = 200
	// maxCall bounds a call whose caller gave it no deadline.
	maxCall = time.Minute
)

// MinTLS is the oldest version of TLS that cells and their clients speak.
const MinTLS = tls.VersionTLS13

// Config says which cell, and as whom.
type Config struct {
	// URL is http://, https:// or unix:///PATH, perhaps with a path before /v1; nothing else may be
	// in it. Several, with commas in between, are of processes that serve the same cell.
	URL string
	// Cell is the expected name of the cell: an answer of another cell is an error. "" accepts any
	// cell.
	Cell string
	// Authorize puts what proves the client's identity into the headers of a request. Nil: nothing.
	Authorize func(http.Header) error
	// Files names the files of TLS, for https://. They are read again when they change. The oldest
	// version of TLS is MinTLS in any case.
	Files pki.ClientTLS
	// TLS goes before Files.
	TLS *tls.Config
	// Logger is for files that cannot be used when they change.
	Logger zerolog.Logger
	// Transport carries the requests instead of connections of the client's own.
	Transport http.RoundTripper
}

// Client asks one cell. It is safe for concurrent use.
type Client struct {
	places    []*place
	lastPlace atomic.Int64 // the number of the place that answered last, counted on after the last
	name      string       // in errors
	cell      string       // that is meant, escaped
	authorize func(http.Header) error
}

// New makes a client; nothing is sent yet.
func New(c Config) (*Client, error) {
	client := &Client{name: c.URL, cell: url.PathEscape(c.Cell), authorize: c.Authorize}
	for text := range strings.SplitSeq(c.URL, ",") {
		p, err := newPlace(strings.TrimSpace(text), c)
		if err != nil {
			return nil, err
		}
		client.places = append(client.places, p)
	}
	return client, nil
}

// withoutURL is the reason of an error of url.Parse without the URL, which may hold a password.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// CloseIdle closes connections that are not in use. The client can be used on.
func (c *Client) CloseIdle() {
	for _, p := range c.places {
		if t, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
			t.CloseIdleConnections()
		}
	}
}

// call sends one request and reads its answer into out, or, if out is nil, takes an answer without
// content; check looks at it then. Body and check may be nil.
func (c *Client) call(ctx context.Context, method, path string, body, out any, check func() error) error {
	err := c.exchange(ctx, method, path, body, out)
	if err == nil && check != nil {
		err = check()
	}
	if err != nil {
		return fmt.Errorf("%s %s of the cell at %s: %w", method, strings.SplitN(path, "?", 2)[0], c.name, err)
	}
	return nil
}

func (c *Client) exchange(ctx context.Context, method, path string, body, out any) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxCall)
		defer cancel()
	}
	return c.tryPlaces(ctx, func(p *place) error { return c.send(ctx, p, method, path, body, out) })
}

// send sends the request to one place.
func (c *Client) send(ctx context.Context, p *place, method, path string, body, out any) error {
	sent := new(reach)
	req, err := c.request(bound(sent.watch(ctx)), p, method, path, body)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &Failure{Kind: kindOf(err), Err: err}
	}
	if !tracing.Within(ctx) {
		_, err = c.roundTrip(ctx, p, req, sent, out)
		return err
	}
	ended := tracing.Outgoing(ctx, req, route(path))
	status, err := c.roundTrip(ctx, p, req, sent, out)
	ended(status, err)
	return err
}

func (c *Client) roundTrip(
	ctx context.Context, p *place, req *http.Request, sent *reach, out any,
) (status int, err error) {
	// The transport itself and no http.Client: that would follow redirects.
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return 0, &Failure{Kind: kindIn(ctx, err), Sent: sent.possible(err), Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, read(ctx, resp, out)
}

func (c *Client) request(ctx context.Context, p *place, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, &Failure{Kind: Broken, Err: fmt.Errorf("the request cannot be written as JSON: %w", err)}
		}
		if len(data) > maxRequest {
			return nil, &cellwire.Error{Status: http.StatusRequestEntityTooLarge, Code: cellwire.CodeTooLarge,
				Message: fmt.Sprintf("The request has %d bytes and a cell takes at most %d. It was not sent.",
					len(data), maxRequest)}
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, content)
	if err != nil {
		return nil, &Failure{Kind: Broken, Err: err}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "compute-agent")
	if c.cell != "" {
		req.Header.Set(cellwire.HeaderCell, c.cell)
	}
	if term := cellwire.TermOf(ctx); term > 0 {
		req.Header.Set(cellwire.HeaderTerm, strconv.FormatInt(term, 10))
	}
	if origin := cellwire.OriginOf(ctx).String(); origin != "" && method != http.MethodGet {
		req.Header.Set(cellwire.HeaderOrigin, origin)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.authorize != nil {
		if err := c.authorize(req.Header); err != nil {
			return nil, &Failure{Kind: Broken, Err: fmt.Errorf("the credentials for the cell: %w", err)}
		}
	}
	return req, nil
}

// read makes an answer of a response, or the error that it is.
func read(ctx context.Context, resp *http.Response, out any) error {
	if resp.ContentLength > maxAnswer {
		return broken("an answer of %d bytes, more than the %d that are read", resp.ContentLength, maxAnswer)
	}
	data, err := readAll(resp)
	if err != nil {
		return &Failure{Kind: kindIn(ctx, err), Sent: true,
			Err: fmt.Errorf("reading the answer, after %d bytes: %w", len(data), err)}
	}
	if len(data) > maxAnswer {
		return broken("an answer of more than the %d bytes that are read", maxAnswer)
	}
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return readAnswer(resp, data, out)
	case status >= 400 && status < 500:
		return readRefusal(resp, data)
	}
	if err := checkService(resp, data); err != nil {
		return err
	}
	switch status := resp.StatusCode; {
	case status >= 500:
		// As text: what is within a Failure must not look like a refusal.
		return broken("status %d: %q", status, textutil.Line(data, maxSnippet))
	case status >= 300:
		return broken("status %d, to %q: a cell does not redirect, something else answers at its address",
			status, resp.Header.Get("Location"))
	default:
		return broken("status %d", status)
	}
}

// maxInitialBuffer bounds the buffer that is allocated by an answer's Content-Length.
const maxInitialBuffer = 1 << 20

// readAll reads a body, of which a little more than maxAnswer at most.
func readAll(resp *http.Response) ([]byte, error) {
	var data bytes.Buffer
	if resp.ContentLength > 0 {
		data.Grow(int(min(resp.ContentLength, maxInitialBuffer)) + bytes.MinRead) // with space to read its end
	}
	_, err := data.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1))
	return data.Bytes(), err
}

func readAnswer(resp *http.Response, data []byte, out any) error {
	if len(data) == 0 {
		if out == nil {
			return nil
		}
		return broken("status %d without an answer", resp.StatusCode)
	}
	if err := checkJSON(resp); err != nil {
		return err
	}
	if out == nil {
		var anything json.RawMessage
		out = &anything
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return broken("the answer is null")
	}
	if err := json.Unmarshal(data, out); err != nil {
		return broken("the answer of %d bytes is not what a cell answers: %w", len(data), err)
	}
	return nil
}

// maxRetryAfter bounds what a cell may ask a client to wait.
const maxRetryAfter = 5 * time.Minute

// plainToTLS is the whole answer of a server of net/http that speaks TLS to a request without; that
// of others is of no use either.
const plainToTLS = "Client sent an HTTP request to an HTTPS server.\n"

func readRefusal(resp *http.Response, data []byte) error {
	if resp.TLS == nil && resp.StatusCode == http.StatusBadRequest && string(data) == plainToTLS {
		return broken("it speaks TLS: use https:// in its URL")
	}
	if err := checkService(resp, data); err != nil {
		return err
	}
	if err := checkJSON(resp); err != nil {
		return err
	}
	refusal := new(cellwire.Error)
	if err := json.Unmarshal(data, refusal); err != nil {
		return broken("status %d with an error that cannot be read: %w", resp.StatusCode, err)
	}
	if refusal.Code == "" {
		return broken("status %d without a code: %q", resp.StatusCode, textutil.Line(data, maxSnippet))
	}
	switch refusal.Code {
	case cellwire.CodeAnotherCell:
		return broken("another cell answers at its address: %s", refusal.Message)
	case cellwire.CodeNoCall:
		return broken("%w", errNoCall)
	}
	refusal.Status = resp.StatusCode
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		refusal.RetryAfter = min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	return refusal
}

// checkService returns the failure that an answer is of a service which is no cell, nil if it may
// be one.
func checkService(resp *http.Response, data []byte) error {
	switch who := textutil.Answering(resp.Header, data); who {
	case "", "a cell of compute-agent":
		return nil
	default:
		const must = "cell_client.url of an agent, and the URL that `cells manage list` shows, must be that of a cell"
		return broken("status %d: %s answers there, and no cell: %s", resp.StatusCode, who, must)
	}
}

func checkJSON(resp *http.Response) error {
	content := resp.Header.Get("Content-Type")
	if content == "application/json" {
		return nil
	}
	media, _, err := mime.ParseMediaType(content)
	if err != nil || media != "application/json" {
		return broken("status %d with content of type %q, not application/json: is it a cell?",
			resp.StatusCode, content)
	}
	return nil
}

// kindIn returns the kind of an error of a request that ctx may have ended: a connection that is
// closed because of that reports it in many ways.
func kindIn(ctx context.Context, err error) Kind {
	if ended := ctx.Err(); ended != nil {
		return kindOf(ended)
	}
	return kindOf(err)
}

// reach notes how far a request got.
type reach struct{ asked, connected atomic.Bool }

func (r *reach) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { r.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { r.connected.Store(true) },
	})
}

// possible reports whether a part of the request may have been sent. A transport that got no
// connection has sent nothing. One that reports no connections, as others than net/http's, may have
// sent it, unless its error says that it could not dial.
func (r *reach) possible(err error) bool {
	if r.asked.Load() {
		return r.connected.Load()
	}
	return kindOf(err) != Refused
}

// fetch sends one request that is answered with a T, which check looks at. Check may be nil. With
// an error there is no T.
func fetch[T any](ctx context.Context, c *Client, method, path string, body any, check func(*T) error) (T, error) {
	var answer T
	return fetchInto(ctx, c, method, path, body, answer, check)
}

// fetchInto is fetch into an answer that holds something already.
func fetchInto[T any](
	ctx context.Context, c *Client, method, path string, body any, answer T, check func(*T) error,
) (T, error) {
	var none T
	err := c.call(ctx, method, path, body, &answer, func() error {
		if check == nil {
			return nil
		}
		return check(&answer)
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

// list is a list that has to be in an answer, be it empty or null: an object without it is
// something else's answer.
type list[T any] struct {
	items   []T
	present bool
}

// UnmarshalJSON reads the list.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	l.present = true
	return json.Unmarshal(data, &l.items)
}

// checkPresent checks that the list was in the answer, under that name.
func (l *list[T]) checkPresent(name string) error {
	if !l.present {
		return broken("an answer without %q", name)
	}
	return nil
}

// pathOf is a path with an untrusted name in it. Names that are empty, "." or ".." are rejected.
func pathOf(parent, name, rest string) (string, error) {
	if name == "" || name == "." || name == ".." {
		return "", &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound,
			Message: fmt.Sprintf("There is nothing named %q.", name)}
	}
	return parent + url.PathEscape(name) + rest, nil
}
