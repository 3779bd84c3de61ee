// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// mostRead is how many bytes of an answer a client reads.
const mostRead = 64 << 20

// heavy is a server with as much as an owner may say, and of the kind that is longest in JSON.
func heavy(n int) cellwire.Server {
	s := building(n)
	s.UserData = strings.Repeat("QUJD", 65532/4)
	s.Metadata = map[string]string{}
	for i := range 128 {
		s.Metadata[fmt.Sprintf("%0255d", i)] = strings.Repeat("<", 255)
	}
	return s
}

func size(t *testing.T, answer any) int {
	t.Helper()
	text := testproc.Try(json.Marshal(answer)).Or(t)
	return len(text)
}

// TestWorkInPages: all that is wanted on a host comes in answers that can be read, whatever owners
// said. What changes in between comes again.
func TestWorkInPages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, workInPages)
}

func workInPages(t *testing.T, s *celldb.DB) {
	t.Helper()
	const count = 80
	if _, _, err := s.Report(
		ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{Version: "1"}, moment,
	); err != nil {
		t.Fatal(err)
	}
	for n := range count {
		release(t, s, heavy(n+1))
	}
	info := testproc.Try(s.Info(ctx)).Or(t)
	had := map[string]cellwire.Want{}
	after, answers := int64(0), 0
	for more := true; more; answers++ {
		work, changed, err := s.Work(ctx, "h1", after, info.Epoch, moment)
		if err != nil || !changed || len(work.Items) == 0 {
			t.Fatalf("answer %d has %d items, changed %v: %v", answers, len(work.Items), changed, err)
		}
		if n := size(t, work); n > mostRead {
			t.Fatalf("answer %d has %d bytes", answers, n)
		}
		if work.Complete != (answers == 0) || work.Revision <= after {
			t.Fatalf("answer %d, after %d: complete is %v, revision %d", answers, after, work.Complete, work.Revision)
		}
		for _, item := range work.Items {
			if item.Server.Revision <= after || item.Server.Revision > work.Revision {
				t.Fatalf("answer %d, after %d up to %d, has revision %d",
					answers, after, work.Revision, item.Server.Revision)
			}
			had[item.Server.UUID] = item.Want
		}
		if answers == 0 {
			// One that was sent, one that was not, and one that is gone before it is sent.
			for _, n := range []int{1, count} {
				testproc.Try(s.Delete(ctx, sid(n), cellwire.DeleteNormal, moment)).Or(t)
			}
			testproc.Try(s.Delete(ctx, sid(count-1), cellwire.DeleteNormal, moment)).Or(t)
			testproc.Try(s.Apply(ctx, "h1", []cellwire.Report{{UUID: sid(count - 1), Kind: cellwire.ReportGone}},
				moment)).Or(t)
		}
		after, more = work.Revision, work.More
	}
	if answers < 2 || len(had) != count-1 || had[sid(1)] != cellwire.WantGone || had[sid(count)] != cellwire.WantGone ||
		had[sid(2)] != cellwire.WantPresent {
		t.Errorf("%d answers had %d servers: 1 %q, 2 %q, the last %q",
			answers, len(had), had[sid(1)], had[sid(2)], had[sid(count)])
	}
	if now, err := s.Info(ctx); err != nil || after != now.Revision {
		t.Errorf("in the end the host knows revision %d of %d (%v)", after, now.Revision, err)
	}
}

// TestPagesCanBeRead: a page has what can be read of it, and the next goes on from there.
func TestPagesCanBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, pagesCanBeRead)
}

func pagesCanBeRead(t *testing.T, s *celldb.DB) {
	t.Helper()
	const count = 80
	for n := range count {
		release(t, s, heavy(n+1))
	}
	q := cellwire.ServerQuery{Limit: 1000, Sort: []cellwire.SortKey{{Key: "created_at", Desc: true}}}
	seen := 0
	for more := true; more; {
		page, err := s.Servers(ctx, q, moment)
		if err != nil || len(page.Rows) == 0 {
			t.Fatalf("after %d servers: %d rows, %v", seen, len(page.Rows), err)
		}
		if n := size(t, page); n > mostRead || len(page.Rows) == count {
			t.Fatalf("a page of %d servers has %d bytes", len(page.Rows), n)
		}
		for i, row := range page.Rows {
			if want := sid(count - seen - i); row.Server.UUID != want {
				t.Fatalf("server %d is %s, want %s", seen+i, row.Server.UUID, want)
			}
		}
		seen += len(page.Rows)
		more, q.After = page.More, page.Rows[len(page.Rows)-1].Key
	}
	testproc.Equal(t, seen, count, "the pages had %d servers")
	q.After, q.Brief = nil, true
	if page, err := s.Servers(ctx, q, moment); err != nil || len(page.Rows) != count || page.More {
		t.Errorf("of names alone a page has %d rows, more %v: %v", len(page.Rows), page.More, err)
	}
}

// TestServerLargerThanAnAnswerIsReturned: a server that is larger than the bound of an answer is
// returned all the same.
func TestServerLargerThanAnAnswerIsReturned(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, serverLargerThanAnAnswerIsReturned)
}

func serverLargerThanAnAnswerIsReturned(t *testing.T, s *celldb.DB) {
	t.Helper()
	if _, _, err := s.Report(
		ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{Version: "1"}, moment,
	); err != nil {
		t.Fatal(err)
	}
	huge := building(1)
	huge.UserData = strings.Repeat("A", celldb.MaxAnswer+1)
	release(t, s, huge)
	release(t, s, building(2))
	if work, _, err := s.Work(ctx, "h1", 0, "", moment); err != nil || len(work.Items) != 1 || !work.More {
		t.Errorf("%d items, more %v: %v", len(work.Items), work.More, err)
	}
	if page, err := s.Servers(ctx, cellwire.ServerQuery{Limit: 10, Sort: []cellwire.SortKey{{Key: "created_at"}}},
		moment); err != nil || len(page.Rows) != 1 || !page.More {
		t.Errorf("%d rows, more %v: %v", len(page.Rows), page.More, err)
	}
}
