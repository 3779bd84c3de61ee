// SPDX-License-Identifier: Apache-2.0

package request_test

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
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/request"
)

var errKind = errors.New("it went wrong")

func TestError(t *testing.T) {
	for want, e := range map[string]*request.Error{
		"GET /usages: it went wrong":                                              {},
		"GET /usages: it went wrong (status 500)":                                 {Status: 500},
		"GET /usages: it went wrong (status 409, placement.x)":                    {Status: 409, Code: "placement.x"},
		"GET /usages: it went wrong: so it was":                                   {Detail: "so it was"},
		"GET /usages: it went wrong [req-1]":                                      {RequestID: "req-1"},
		"GET /usages: it went wrong [req-2]":                                      {RequestID: "req-1", ServerRequestID: "req-2"},
		"GET /usages: it went wrong (status 409, placement.x): so it was [req-2]": {Status: 409, Code: "placement.x", Detail: "so it was", ServerRequestID: "req-2"},
	} {
		e.Method, e.Path, e.Kind = "GET", "/usages", errKind
		if e.Error() != want {
			t.Errorf("%s, not %s", e.Error(), want)
		}
		if !errors.Is(e, errKind) || errors.Is(e, io.EOF) {
			t.Errorf("%v is not of its kind", e)
		}
		e.Cause = fmt.Errorf("reading: %w", io.EOF)
		if !errors.Is(e, errKind) || !errors.Is(e, io.EOF) {
			t.Errorf("%v hides its kind or its cause", e)
		}
	}
}

func TestNew(t *testing.T) {
	a, b := request.New(http.MethodPut, "/traits"), request.New(http.MethodPut, "/traits")
	if a.Method != http.MethodPut || a.Path != "/traits" || !strings.HasPrefix(a.RequestID, "req-") || len(a.RequestID) != 40 || a.RequestID == b.RequestID {
		t.Errorf("%+v and %+v", a, b)
	}
}

// TestUnanswered: only what failed before there was a connection is known not to have arrived.
func TestUnanswered(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err    error
		detail string
		unsent bool
	}{
		{refused, "dial: connection refused", true},
		{&url.Error{Op: "Get", URL: "http://u:p@placement/", Err: refused}, "dial: connection refused", true},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "dial: context deadline exceeded", true},
		{syscall.ECONNREFUSED, "connection refused", true}, // of a transport that is none of net's
		{&url.Error{Op: "Put", URL: "http://placement/", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, "read: connection reset by peer", false},
		{context.DeadlineExceeded, "context deadline exceeded", false},
		{io.ErrUnexpectedEOF, "unexpected EOF", false},
	} {
		var e request.Error
		e.Unanswered(c.err)
		if diff := cmp.Diff(request.Error{Detail: c.detail, Unsent: c.unsent, Cause: c.err}, e, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.err, diff)
		}
		if request.Unsent(c.err) != c.unsent {
			t.Errorf("Unsent(%v) is not %v", c.err, c.unsent)
		}
	}
	var e request.Error
	e.BrokeOff(&url.Error{Op: "Get", URL: "http://placement/", Err: io.ErrUnexpectedEOF})
	if e.Detail != "the answer broke off: unexpected EOF" || !errors.Is(e.Cause, io.ErrUnexpectedEOF) || e.Unsent {
		t.Errorf("%+v", e)
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("é", 2001)
	for _, c := range []struct{ content, code, detail string }{
		{`{"errors": [{"status": 409, "code": "placement.concurrent_update", "detail": "it\n  moved"}]}`, "placement.concurrent_update", "it moved"},
		{`{"errors": [{"status": 400, "detail": "before 1.23"}]}`, "", "before 1.23"},
		{`{"errors": [{"detail": "first"}, {"detail": "second"}]}`, "", "first"},
		{`{"errors": [{"detail": "` + long[:4000] + `"}]}`, "", long[:4000]},
		{`{"errors": [{"detail": "` + long + `"}]}`, "", long[:4000] + "..."},
		{`{"errors": []}`, "", `{"errors": []}`},
		{"<html>\n <h1>502</h1>", "", "<html> <h1>502</h1>"},
		{"\xff\xfe", "", "?"},
		{"", "", ""},
	} {
		var e request.Error
		e.Refused([]byte(c.content))
		if e.Code != c.code || e.Detail != c.detail {
			t.Errorf("%.80q: code %q, detail %.80q", c.content, e.Code, e.Detail)
		}
	}
}

// TestByPlacement: a proxy's 404 says nothing about what Placement did.
func TestByPlacement(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   bool
	}{
		{0, "", false}, {200, "", false}, {401, "", true}, {403, "", true}, {404, "", false}, {409, "", false}, {409, "placement.undefined_code", true},
		{499, "placement.undefined_code", true}, {500, "placement.undefined_code", false}, {502, "", false},
	} {
		if e := (&request.Error{Status: c.status, Code: c.code}); e.ByPlacement() != c.want {
			t.Errorf("%d %q: %v", c.status, c.code, e.ByPlacement())
		}
	}
}

// TestExcerpt: whatever comes, it becomes one short line, and what is left out is not passed over in silence.
func TestExcerpt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := []byte(strings.Repeat(rapid.String().Draw(t, "text"), rapid.IntRange(0, 300).Draw(t, "times")) + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		got := request.Excerpt(content)
		whole := strings.Join(strings.Fields(strings.ToValidUTF8(string(content), "?")), " ")
		begin, cut := strings.CutSuffix(got, "...")
		switch {
		case !utf8.ValidString(got), strings.ContainsAny(got, "\n\r\t"), utf8.RuneCountInString(got) > 303:
			t.Errorf("%q", got)
		case got == whole:
		case !cut:
			t.Errorf("%q became %q", whole, got)
		case !strings.HasPrefix(whole, strings.TrimRight(begin, "?")):
			t.Errorf("%q does not begin with %q", whole, begin)
		}
	})
}
