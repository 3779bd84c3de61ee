// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestAllocations: a consumer that holds nothing has no generation; an answer without allocations is none.
func TestAllocations(t *testing.T) {
	const provider = "00000000-0000-4000-8000-000000000001"
	server := &answers{list: []answer{
		{status: 200, body: `{"allocations": {"` + provider + `": {"resources": {"VCPU": 2}}}, "consumer_generation": 3, "project_id": "p", "user_id": "u"}`,
			header: http.Header{"Last-Modified": {"Sun, 22 Nov 2026 13:00:00 GMT"}, "Date": {"Sun, 22 Nov 2026 14:00:00 GMT"}}},
		{status: 200, body: `{"allocations": {}, "consumer_generation": 3}`},
		{status: 200, body: `{}`},
		{status: 200, body: `{"allocations": {"../traits": {}}}`},
	}}
	client := newClient(t, server)
	a, err := client.Allocations(t.Context(), "c")
	if err != nil || a.Allocations[provider].Resources["VCPU"] != 2 || a.ConsumerGeneration == nil || *a.ConsumerGeneration != 3 || a.Date.Sub(a.Written) != time.Hour {
		t.Errorf("%+v %v", a, err)
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

// TestPutAllocations: what a 409 means depends on its code, and done is only 204.
func TestPutAllocations(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		kind   error
	}{
		"done":               {answer{status: 204}, nil},
		"another page":       {answer{status: 200, body: "<html>"}, ErrUnexpected},
		"somebody was first": {answer{status: 409, body: `{"errors": [{"code": "placement.concurrent_update", "detail": "x"}]}`}, ErrConflict},
		"it does not fit":    {answer{status: 409, body: `{"errors": [{"code": "placement.undefined_code", "detail": "x"}]}`}, ErrNoRoom},
		"no such provider":   {answer{status: 400, body: `{"errors": [{"code": "placement.undefined_code", "detail": "x"}]}`}, ErrInvalid},
		"lost":               {answer{status: 502}, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			var all ConsumerAllocations
			err := newClient(t, &answers{list: []answer{c.answer}}).PutAllocations(t.Context(), "c", all.ConsumerAllocations)
			if !errors.Is(err, c.kind) {
				t.Errorf("%v, want %v", err, c.kind)
			}
			if errors.Is(err, ErrOutcomeUnknown) != (name == "lost" || name == "another page") {
				t.Errorf("whether it happened: %v", err)
			}
		})
	}
}

// TestDown: what is about one request is not about Placement as a whole.
func TestDown(t *testing.T) {
	for _, err := range []error{ErrUnavailable, ErrOutcomeUnknown, ErrRefused, ErrUnexpected, ErrNotFound, ErrTooOld} {
		if !Down(fmt.Errorf("asking: %w", err)) {
			t.Errorf("%v is about one request", err)
		}
	}
	for _, err := range []error{nil, ErrConflict, ErrNoRoom, ErrInvalid, ErrInventoryInUse, ErrProviderInUse, ErrDuplicate, io.EOF} {
		if Down(err) {
			t.Errorf("%v is about all of Placement", err)
		}
	}
}
