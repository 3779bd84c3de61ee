// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAllocations: a consumer that holds nothing has no generation; an answer without allocations
// is an error.
func TestAllocations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const provider = "00000000-0000-4000-8000-000000000001"
	server := &answers{list: []answer{
		{status: 200, body: `{"allocations": {"` +
			provider + `": {"resources": {"VCPU": 2}}}, "consumer_generation": 3, "project_id": "p", "user_id": "u"}`,
			header: http.Header{"Last-Modified": {"Sun, 22 Nov 2026 13:00:00 GMT"},
				"Date": {"Sun, 22 Nov 2026 14:00:00 GMT"}}},
		{status: 200, body: `{"allocations": {}, "consumer_generation": 3}`},
		{status: 200, body: `{}`},
		{status: 200, body: `{"allocations": {"../traits": {}}}`},
	}}
	client := newClient(t, server)
	a, err := client.Allocations(t.Context(), "c")
	if err != nil || a.Allocations[provider]["VCPU"] != 2 || a.ConsumerGeneration == nil ||
		*a.ConsumerGeneration != 3 || a.Date.Sub(a.Written) != time.Hour {
		t.Errorf("Allocations: got %+v, %v, want 2 VCPU of generation 3, written an hour ago", a, err)
	}
	if a, err = client.Allocations(t.Context(), "c"); err != nil || a.ConsumerGeneration != nil || !a.Written.IsZero() {
		t.Errorf("nothing: %+v %v", a, err)
	}
	for range 2 {
		if _, err = client.Allocations(t.Context(), "c"); !errors.Is(err, ErrUnexpected) {
			t.Errorf("no answer of Placement's: %v", err)
		}
	}
}

// TestLists: an error is not an empty list, and an answer as long as an answer may be is read.
func TestLists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const id = "00000000-0000-4000-8000-000000000001"
	server := &answers{list: []answer{
		{status: 200, body: `{"resource_providers": [{"uuid": "` + id + `", "name": "a"}]}`}, {status: 404},
		{status: 200, body: `{"allocations": {"` + id +
			`": {"resources": {"VCPU": 2}}}, "resource_provider_generation": 1}`}, {status: 404},
		{status: 200, body: strings.Repeat(" ", maxAnswer)},
	}}
	client := newClient(t, server)
	if list, err := client.ProvidersInTree(t.Context(), id); err != nil || len(list) != 1 || list[0].Name != "a" {
		t.Errorf("ProvidersInTree: got %+v, %v, want the provider a", list, err)
	}
	if list, err := client.ProvidersInTree(t.Context(), id); !errors.Is(err, ErrNotFound) {
		t.Errorf("ProvidersInTree of an unknown provider: got %+v, %v, want ErrNotFound", list, err)
	}
	if held, err := client.AllocationsOf(t.Context(), id); err != nil || held[id].Resources["VCPU"] != 2 {
		t.Errorf("AllocationsOf: got %+v, %v, want 2 VCPU", held, err)
	}
	if held, err := client.AllocationsOf(t.Context(), id); !errors.Is(err, ErrNotFound) {
		t.Errorf("AllocationsOf an unknown provider: got %+v, %v, want ErrNotFound", held, err)
	}
	testproc.NoError(t, client.Do(t.Context(), http.MethodGet, "/usages", nil, nil))
}

// TestPutAllocations: the code of a 409 decides what it means, and only 204 is success.
func TestPutAllocations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		answer answer
		kind   error
	}{
		"done":                    {answer{status: 204}, nil},
		"a proxy's conflict":      {answer{status: 409, body: "<html>"}, ErrConflict},
		"a conflict without code": {answer{status: 409, body: `{"errors": [{"detail": "x"}]}`}, ErrConflict},
		"inventory in use": {answer{status: 409,
			body: `{"errors": [{"code": "placement.inventory.inuse", "detail": "x"}]}`}, ErrInventoryInUse},
		"another page": {answer{status: 200, body: "<html>"}, ErrUnexpected},
		"another client was first": {answer{status: 409,
			body: `{"errors": [{"code": "placement.concurrent_update", "detail": "x"}]}`}, ErrConflict},
		"it does not fit": {answer{status: 409,
			body: `{"errors": [{"code": "placement.undefined_code", "detail": "x"}]}`}, ErrInsufficientCapacity},
		"no such provider": {answer{status: 400,
			body: `{"errors": [{"code": "placement.undefined_code", "detail": "x"}]}`}, ErrInvalid},
		"lost": {answer{status: 502}, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			var all ConsumerAllocations
			err := newClient(t, &answers{list: []answer{c.answer}}).
				PutAllocations(t.Context(), "c", all.ConsumerAllocations)
			testproc.ErrorIs(t, err, c.kind, "%v")
			if errors.Is(err, ErrInsufficientCapacity) != errors.Is(c.kind, ErrInsufficientCapacity) {
				t.Errorf("insufficient capacity: %v", err)
			}
			notPlacement := c.answer.status != 204 && !strings.Contains(c.answer.body, `"code"`)
			if errors.Is(err, ErrOutcomeUnknown) != notPlacement {
				t.Errorf("whether it happened: %v", err)
			}
		})
	}
}

// TestAnswers: whatever answers in Placement's place, or nothing does: the error is one that a
// caller can act upon, and only a write that cannot have arrived, or that Placement itself turned
// down, is reported as not done.
func TestAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	coded := func(status int, code, detail string) answer {
		return answer{status: status,
			body: fmt.Sprintf(`{"errors": [{"status": %d, "code": %q, "detail": %q, "request_id": "req-x"}]}`,
				status, code, detail)}
	}
	const known, unknown = false, true
	for name, c := range map[string]struct {
		answer answer
		kind   error
		write  bool // whether the outcome of a write is unknown
		says   string
	}{
		"a generation conflict": {coded(409, "placement.concurrent_update", "generation"), ErrConflict, known,
			"placement.concurrent_update"},
		"a conflict without kind": {coded(409, "placement.undefined_code", "race"), ErrConflict, known, "race"},
		"inventory in use": {coded(409, "placement.inventory.inuse", "VCPU in use"),
			ErrInventoryInUse, known, "VCPU in use"},
		"a provider in use": {coded(409, "placement.resource_provider.inuse", "x"), ErrProviderInUse, known, ""},
		"a parent": {coded(409, "placement.resource_provider.cannot_delete_parent", "x"),
			ErrProviderInUse, known, ""},
		"a name that is taken": {coded(409, "placement.duplicate_name", "x"), ErrDuplicate, known, ""},
		"no such thing":        {coded(404, "placement.undefined_code", "no rp"), ErrNotFound, known, "no rp"},
		"a proxy's 404":        {answer{status: 404}, ErrNotFound, unknown, "404"},
		"no token": {answer{status: 401, body: "Authentication required"}, ErrRefused,
			known, "Authentication required"},
		"the wrong role":       {coded(403, "", "forbidden"), ErrRefused, known, "forbidden"},
		"a bad request":        {coded(400, "placement.undefined_code", "bad"), ErrInvalid, known, "bad"},
		"another microversion": {coded(406, "placement.undefined_code", "1.37"), ErrTooOld, known, "1.37"},
		"a broken server": {answer{status: 500, body: "<html>\n<h1>Oops</h1>"}, ErrUnavailable,
			unknown, "<html> <h1>Oops</h1>"},
		"an overloaded server": {answer{status: 503, body: "<html>"}, ErrUnavailable, unknown, "503"},
		"a login page": {answer{status: 200, body: "<html>please log in</html>"},
			ErrUnexpected, unknown, "please log in"},
		"a redirect": {answer{status: 302, header: http.Header{"Location": {"http://192.0.2.1/"}}},
			ErrUnexpected, unknown, "302"},
		"an error that is no text": {answer{status: 418, body: "\xff\xfe"}, ErrUnexpected, unknown, "418"},
		"half an answer": {answer{status: 200, broken: io.ErrUnexpectedEOF},
			ErrUnavailable, unknown, "cut short"},
		"half an error":         {answer{status: 500, broken: io.ErrUnexpectedEOF}, ErrUnavailable, unknown, "500"},
		"an answer without end": {answer{status: 200, endless: true}, ErrUnexpected, unknown, "longer than 64 MiB"},
		"nothing listens": {answer{err: &net.OpError{Op: "dial",
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}, ErrUnavailable, known, "refused"},
		"a time-out": {answer{err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}},
			ErrUnavailable, unknown, "timeout"},
		"cut off": {answer{err: io.ErrUnexpectedEOF}, ErrUnavailable, unknown, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, &answers{list: []answer{c.answer}}, func(cfg *Config) { cfg.Retries = 0 })
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
				var out any = &map[string]any{}
				if method != http.MethodGet {
					out = NoContent{}
				}
				if c.answer.endless && method == http.MethodPost {
					break // 64 MiB each
				}
				err := client.Do(t.Context(), method, "/usages?a=b", nil, out)
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) ||
					!strings.HasPrefix(err.Error(), method+" /usages?a=b: ") {
					t.Errorf("%s: %v, want %v and %q", method, err, c.kind, c.says)
				}
				if errors.Is(err, ErrOutcomeUnknown) != (c.write && method != http.MethodGet) {
					t.Errorf("%s: whether it happened: %v", method, err)
				}
			}
		})
	}
}

// TestDown: what is about one request is not about Placement as a whole.
func TestDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, err := range []error{ErrUnavailable, ErrOutcomeUnknown, ErrRefused, ErrUnexpected, ErrNotFound, ErrTooOld} {
		if !Down(fmt.Errorf("asking: %w", err)) {
			t.Errorf("%v is about one request", err)
		}
	}
	for _, err := range []error{nil, ErrConflict, ErrInsufficientCapacity, ErrInvalid, ErrInventoryInUse,
		ErrProviderInUse, ErrDuplicate, io.EOF} {
		if Down(err) {
			t.Errorf("%v is about all of Placement", err)
		}
	}
}
