// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var errKind = errors.New("it went wrong")

func TestError(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for want, e := range map[string]*Error{
		"GET /usages: it went wrong":                           {},
		"GET /usages: it went wrong (status 500)":              {Status: 500},
		"GET /usages: it went wrong (status 409, placement.x)": {Status: 409, Code: "placement.x"},
		"GET /usages: it went wrong: so it was":                {Detail: "so it was"},
		"GET /usages: it went wrong [req-1]":                   {RequestID: "req-1"},
		"GET /usages: it went wrong [req-2]": {RequestID: "req-1",
			ServerRequestID: "req-2"},
		"GET /usages: it went wrong (status 409, placement.x): so it was [req-2]": {Status: 409, Code: "placement.x",
			Detail: "so it was", ServerRequestID: "req-2"},
	} {
		e.Method, e.Path, e.Kind = "GET", "/usages", errKind
		testproc.Equal(t, e.Error(), want, "%s")
		if !errors.Is(e, errKind) || errors.Is(e, io.EOF) {
			t.Errorf("%v is not of its kind", e)
		}
		e.Cause = fmt.Errorf("reading: %w", io.EOF)
		if !errors.Is(e, errKind) || !errors.Is(e, io.EOF) {
			t.Errorf("%v hides its kind or its cause", e)
		}
	}
}

// TestUnanswered: only what failed before there was a connection is known not to have arrived.
func TestUnanswered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err    error
		detail string
		unsent bool
	}{
		{refused, "dial: connection refused", true},
		{&url.Error{Op: "Get", URL: "http://u:p@placement/", Err: refused}, "dial: connection refused", true},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "dial: context deadline exceeded", true},
		{syscall.ECONNREFUSED, "connection refused", true}, // of a transport that does not use net
		{&url.Error{Op: "Put", URL: "http://placement/", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}},
			"read: connection reset by peer", false},
		{context.DeadlineExceeded, "context deadline exceeded", false},
		{io.ErrUnexpectedEOF, "unexpected EOF", false},
	} {
		var e Error
		e.setUnanswered(c.err)
		if diff := cmp.Diff(Error{Detail: c.detail, Unsent: c.unsent, Kind: ErrUnavailable, Cause: c.err}, e,
			cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.err, diff)
		}
		if unsent(c.err) != c.unsent {
			t.Errorf("Unsent(%v) is not %v", c.err, c.unsent)
		}
	}
	var e Error
	e.setCutShort(&url.Error{Op: "Get", URL: "http://placement/", Err: io.ErrUnexpectedEOF})
	if e.Detail != "the answer was cut short: unexpected EOF" || !errors.Is(e.Cause, io.ErrUnexpectedEOF) || e.Unsent {
		t.Errorf("an answer that broke off: got %+v, want its cause, and that it was sent", e)
	}
}

func TestRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	long := strings.Repeat("é", 2001)
	for _, c := range []struct{ content, code, detail string }{
		{`{"errors": [{"status": 409, "code": "placement.concurrent_update", "detail": "it\n  moved"}]}`,
			"placement.concurrent_update", "it moved"},
		{`{"errors": [{"status": 400, "detail": "before 1.23"}]}`, "", "before 1.23"},
		{`{"errors": [{"detail": "first"}, {"detail": "second"}]}`, "", "first"},
		{`{"errors": [{"detail": "` + long[:4000] + `"}]}`, "", long[:4000]},
		{`{"errors": [{"detail": "` + long + `"}]}`, "", long[:4000] + "..."},
		{`{"errors": []}`, "", `{"errors": []}`},
		{"<html>\n <h1>502</h1>", "", "<html> <h1>502</h1>"},
		{"\xff\xfe", "", "?"},
		{"", "", ""},
	} {
		var e Error
		e.setRefusal([]byte(c.content))
		if e.Code != c.code || e.Detail != c.detail {
			t.Errorf("%.80q: code %q, detail %.80q", c.content, e.Code, e.Detail)
		}
	}
}

// TestOutcomeUnknown: a read, a request that never left, and what Placement itself turned down did
// not happen; a proxy's 404 says nothing about what Placement did with a write.
func TestOutcomeUnknown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		status int
		code   string
		want   bool
	}{
		{0, "", true}, {200, "", true}, {401, "", false}, {403, "", false}, {404, "", true}, {409, "", true},
		{409, "placement.undefined_code", false},
		{499, "placement.undefined_code", false}, {500, "placement.undefined_code", true}, {502, "", true},
	} {
		e := &Error{Method: http.MethodPut, Status: c.status, Code: c.code, Kind: ErrUnavailable}
		if e.OutcomeUnknown() != c.want || errors.Is(e, ErrOutcomeUnknown) != c.want ||
			strings.Contains(e.Error(), ErrOutcomeUnknown.Error()) != c.want {
			t.Errorf("the outcome of PUT with the status %d %q: got %v", c.status, c.code, e)
		}
		if e.Method = http.MethodGet; e.OutcomeUnknown() {
			t.Errorf("a read, %d %q: %v", c.status, c.code, e)
		}
	}
	if e := (&Error{Method: http.MethodPut, Unsent: true, Kind: ErrUnavailable}); e.OutcomeUnknown() ||
		errors.Is(e, ErrOutcomeUnknown) {
		t.Errorf("a write that was not sent: %v", e)
	}
}

// TestLongQuery: a query is shown up to a length, and the mark says that there was more.
func TestLongQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	query := strings.Repeat("a", 500)
	e := Error{Method: "GET", Path: "/traits?" + query, Kind: errKind}
	if got, want := e.Error(), "GET /traits?"+query[:maxQuery]+"...: it went wrong"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
