// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// failingLedger reads as ever, and cannot write.
type failingLedger struct {
	*transactor.Ledger
	err error
}

func (l *failingLedger) Update(context.Context, func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	return nil, l.err
}

// TestStorageThatFails: what the storage cannot do now is a 503 that says when to come back; a
// write with an unknown outcome is a 500 that says to read first. Reads go on, and no
// answer shows a path or what SQLite said.
func TestStorageThatFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cause := errors.New("disk I/O error in /var/lib/secret/placement.db")
	for _, c := range []struct {
		err    error
		status int
		retry  bool
		says   string
	}{
		{ledger.ErrFull, 503, true, "full"},
		{ledger.ErrUnavailable, 503, true, "cannot be used now"},
		{ledger.ErrReplaced, 503, true, "has to be restarted"},
		{ledger.ErrOutcomeUnknown, 500, false, "Read before you repeat"},
		{fmt.Errorf("%w: %w", ledger.ErrOutcomeUnknown, ledger.ErrFull), 500, false, "Read before you repeat"},
		{ledger.ErrRow, 400, false, "character set"},
		{ledger.ErrClosed, 503, true, "shutting down"},
		{ledger.ErrBusy, 409, true, "Read again"},
		{errors.New("a riddle"), 500, false, "Its log has the reason"},
	} {
		broken := &failingLedger{Ledger: openLedger(t)}
		h := newAPI(t, func(cfg *api.Config) { cfg.Ledger = broken })
		broken.err = fmt.Errorf("writing to the store: %w: %w", c.err, cause)
		w := call{method: "POST", path: "/resource_providers", version: "1.39",
			body: `{"name":"node"}`, status: c.status}.do(t, h)
		if e := errorOf(t, w); !strings.Contains(e.Detail, c.says) || strings.Contains(w.Body.String(), "secret") ||
			(w.Header().Get("Retry-After") != "") != c.retry {
			t.Errorf("%v: Retry-After %q, %s", c.err, w.Header().Get("Retry-After"), w.Body)
		}
		calls(t, h, call{method: "GET", path: "/resource_providers", version: "1.39", status: 200})
	}
}
