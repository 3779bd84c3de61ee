// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// handling is an exchange that a test handles. Errors are written as text.
type handling struct {
	Exchange
	do func(x *Exchange) error
}

func (h *handling) Handle() error { return h.do(&h.Exchange) }

func (h *handling) Explain(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Errorf(http.StatusInternalServerError, "explained").Because(err)
}

func (h *handling) Encode(e *Error) (string, []byte) { return "text/plain", []byte(e.Message) }

type observed []Answer

func (o *observed) Answered(a Answer) { *o = append(*o, a) }

func serve(s *Service, r *http.Request, do func(x *Exchange) error) *httptest.ResponseRecorder {
	w, h := httptest.NewRecorder(), &handling{do: do}
	s.Serve(w, r, &h.Exchange, h)
	return w
}

// TestSendInParts: a body that goes on is written whole, however large its parts are, after a
// Content-Length that is right.
func TestSendInParts(t *testing.T) {
	var answers observed
	s := NewService(Options{Observer: &answers})
	for _, sizes := range [][]int{{}, {0}, {1}, {100_000},
		{40_000, 40_000, 1, 70_000}, slices.Repeat([]int{1000}, 200)} {
		want := []byte("[")
		var parts [][]byte
		for i, size := range sizes {
			parts = append(parts, bytes.Repeat([]byte{byte('a' + i%26)}, size))
			want = append(want, parts[i]...)
		}
		w := serve(s, httptest.NewRequest(http.MethodGet, "/", nil), func(x *Exchange) error {
			x.Send(http.StatusOK, []byte("["), parts...)
			return nil
		})
		logged := answers[len(answers)-1].Sent
		if got := w.Body.Bytes(); !bytes.Equal(got, want) ||
			w.Header().Get("Content-Length") != strconv.Itoa(len(want)) || logged != len(want) {
			t.Errorf("parts of %v: %d bytes came, Content-Length %s, observed %d; want %d",
				sizes, len(got), w.Header().Get("Content-Length"), logged, len(want))
		}
	}
}

// TestServeExplainsErrorsAndPanics: whatever a handler returns becomes one answer with its headers,
// and one line in the log with what the client does not get.
func TestServeExplainsErrorsAndPanics(t *testing.T) {
	refused := NoMethod("PUT", "GET, POST").Because(errors.New("the cause"))
	refused.Challenge, refused.Retry, refused.Hint = "Bearer", true, "do this"
	for name, c := range map[string]struct {
		do     func(x *Exchange) error
		status int
		body   string
		logs   []string
	}{
		"an Error": {func(*Exchange) error { return refused }, 405, refused.Message,
			[]string{`"level":"warn"`, `"hint":"do this"`}},
		"another error": {func(*Exchange) error { return errors.New("secret") }, 500,
			"explained", []string{`"level":"error"`, `"cause":"secret"`}},
		"a panic": {func(*Exchange) error { panic("oh") }, 500,
			"explained", []string{`"panic":"oh"`, "exchange_test.go", `"cause":"the server hit a bug"`}},
		"a late panic": {func(x *Exchange) error { x.Send(200, []byte("half")); panic("oh") }, 200,
			"half", []string{`"panic":"oh"`}},
		"a late error": {func(x *Exchange) error { x.Send(200, []byte("sent")); return errors.New("oh") }, 200,
			"sent", []string{`"level":"info"`}},
		"a routine read": {func(x *Exchange) error { x.Routine = true; x.Send(200, nil); return nil }, 200,
			"", []string{`"level":"debug"`}},
		"a routine 404": {func(x *Exchange) error { x.Routine = true; return NoRoute() }, 404,
			NoRoute().Message, []string{`"level":"info"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			s := NewService(Options{LogMessage: "request", Logger: zerolog.New(&log)})
			w := serve(s, httptest.NewRequest(http.MethodPut, "/", nil), c.do)
			if w.Code != c.status || w.Body.String() != c.body {
				t.Errorf("answered %d %q, want %d %q", w.Code, w.Body, c.status, c.body)
			}
			for _, part := range c.logs {
				if !strings.Contains(log.String(), part) {
					t.Errorf("the log has no %s:\n%s", part, &log)
				}
			}
			if n := strings.Count(log.String(), `"message":"request"`); n != 1 {
				t.Errorf("%d lines for the request:\n%s", n, &log)
			}
			for header, want := range map[string]string{"Allow": "GET, POST",
				"Www-Authenticate": "Bearer", "Retry-After": "1"} {
				if got := w.Header().Get(header); c.status == 405 && got != want {
					t.Errorf("%s: %q, want %q", header, got, want)
				}
			}
			testproc.Equal(t, s.Load(), Load{}, "%+v is left")
		})
	}
}

// TestServeBounds: a request beyond a bound is refused before it is handled, and a probe never is.
func TestServeBounds(t *testing.T) {
	s := NewService(Options{Limits: Limits{InFlight: 1, Query: 10}})
	handled := func(x *Exchange) error { x.Send(204, nil); return nil }
	get := func(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }
	testproc.Equal(t, serve(s, get("/?0123456789"), handled).Code, 204, "a query of 10 bytes: %d")
	testproc.Equal(t, serve(s, get("/?0123456789a"), handled).Code, 414, "a query of 11 bytes: %d")
	serve(s, get("/"), func(x *Exchange) error {
		if w := serve(s, get("/"), handled); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("a second request: %d %v", w.Code, w.Header())
		}
		w, h := httptest.NewRecorder(), &handling{do: handled}
		if s.ServeProbe(w, get("/"), &h.Exchange, h); w.Code != 204 {
			t.Errorf("a probe: %d", w.Code)
		}
		return handled(x)
	})
	unbounded := NewService(Options{Limits: Limits{InFlight: -1}})
	testproc.Equal(t, serve(unbounded, get("/"), handled).Code, 204, "without a bound: %d")
}

// TestRequestIDs: each answer has a new one, in all headers of the service; that of the client goes
// to the log if it is one.
func TestRequestIDs(t *testing.T) {
	var log strings.Builder
	s := NewService(Options{RequestIDs: []string{"X-Compute-Request-Id"},
		LogMessage: "request", Logger: zerolog.New(&log)})
	form := regexp.MustCompile(`^req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	theirs := "req-6f0d0d3c-0000-4000-8000-00000000000a"
	for _, sent := range []string{"", theirs, strings.ToUpper(theirs), theirs + "0", "req-\n"} {
		log.Reset()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(HeaderRequestID, sent)
		w := serve(s, r, func(x *Exchange) error { x.Send(204, nil); return nil })
		id := w.Header().Get(HeaderRequestID)
		if !form.MatchString(id) || seen[id] || w.Header().Get("X-Compute-Request-Id") != id {
			t.Errorf("request ids %v", w.Header())
		}
		seen[id] = true
		if strings.Contains(log.String(), "global_request_id") != (sent == theirs) {
			t.Errorf("sent %q: %s", sent, &log)
		}
	}
}

// TestWhoDecidesWhatIsTraced: hosts, services and administrators have their requests recorded and
// joined to their traces. Others do not, whatever they send.
func TestWhoDecidesWhatIsTraced(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	c := otlp.NewCollector(t)
	// records nothing by itself
	spans, err := tracing.New(t.Context(), tracing.Config{Endpoint: c.URL, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	for name, who := range map[string]Principal{
		"host": hostPrincipal(pki.Identity{Name: "cn1"}), "service": {User: "u", Roles: []string{"service"}},
		"admin":         {User: "u", Project: "p", Roles: []string{"admin"}},
		"member":        {User: "u", Project: "p", Roles: []string{"member", "reader", "manager"}},
		"system reader": {User: "u", Roles: []string{"reader"}, SystemScope: true}, "nobody": {},
	} {
		s := NewService(Options{Authenticator: Fixed{who}, Tracing: spans, Logger: zerolog.Nop()})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(tracing.HeaderTraceparent, "00-"+trace+"-b7ad6b7169203331-01")
		serve(s, r, func(x *Exchange) error {
			x.Route = "/" + name
			if err := x.Authenticate(); err != nil {
				return err
			}
			if !tracing.Within(x.R.Context()) {
				t.Errorf("%s: the request has no trace context", name)
			}
			x.Send(http.StatusOK, nil)
			return nil
		})
	}
	spans.Close(t.Context())
	for _, name := range []string{"host", "service", "admin"} {
		s := c.Named(t, "GET /"+name)
		if s.Trace != trace || s.Attributes[tracing.KeyHost] != map[string]string{"host": "cn1"}[name] {
			t.Errorf("the span: got %+v, want the trace of the request, and a host for hosts alone", s)
		}
	}
	if n := len(c.Spans()); n != 3 {
		t.Errorf("%d spans: %v", n, c.Tree())
	}
}
