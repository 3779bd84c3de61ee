// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHungCell: a list waits for it once, however much is asked of it, and loses none of the
// others' servers; a project that has nothing in it need not wait.
func TestHungCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		name, who, path string
		perProject      bool
		takes           time.Duration
		want            []string
	}{
		{name: "list", who: member, path: "/v2.1/servers", takes: cellTimeout, want: unknown},
		{name: "detail", who: member, path: "/v2.1/servers/detail", takes: cellTimeout, want: unknown},
		{name: "show", who: member, path: "/v2.1/servers/" + uuid(4), takes: cellTimeout},
		{name: "show of another cell", who: member, path: "/v2.1/servers/" + uuid(5), takes: 0},
		{name: "marker", who: member, path: "/v2.1/servers?marker=" + uuid(4), takes: cellTimeout},
		{name: "own cells alone", who: member3, path: "/v2.1/servers", perProject: true,
			takes: 0, want: []string{"c2-p3"}},
		{name: "own cells, for an administrator", who: administrator, path: "/v2.1/servers", perProject: true,
			takes: cellTimeout, want: unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := crowd(t, Options{ListSkipsDownCells: true, PerProjectCells: tt.perProject})
				s := server(30, "c2-p3")
				s.ProjectID = "p3"
				c.has(2, s)
				c.cell(1).fail = hung
				begun := time.Now()
				got := c.ask(tt.who, "2.69", tt.path)
				testproc.Equal(t, time.Since(begun), tt.takes, "it took %s")
				if tt.want != nil && !gocmp.Equal(tt.want, got.names()) {
					t.Errorf("%d %v, not %v", got.status, got.names(), tt.want)
				}
				if tt.name == "marker" && (got.status != 503 || got.header.Get("Retry-After") == "") {
					t.Errorf("the marker in a cell that hangs: got %d %s, want 503 with Retry-After",
						got.status, got.text)
				}
			})
		})
	}
}

// TestManyListsDuringAHang: all are answered when the cell's time is over, and nothing of them is
// left.
func TestManyListsDuringAHang(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) { // It fails if goroutines are left.
		c := crowd(t, Options{ListSkipsDownCells: true})
		c.cell(1).fail = hung
		begun := time.Now()
		var lists sync.WaitGroup
		for range 50 {
			lists.Go(func() {
				if got := c.ask(member, "2.69", "/v2.1/servers").names(); !gocmp.Equal(unknown, got) {
					t.Errorf("%v, not %v", got, unknown)
				}
			})
		}
		lists.Wait()
		testproc.Equal(t, time.Since(begun), cellTimeout, "they took %s")
		c.cell(1).fail = nil
		if got := c.ask(member, "2.69", "/v2.1/servers").names(); !gocmp.Equal(allUp, got) {
			t.Errorf("when it is back: %v", got)
		}
	})
}

// TestSlowCell: an answer just in time is an answer.
func TestSlowCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := crowd(t, Options{ListSkipsDownCells: true})
		c.cell(1).fail = func(r *http.Request, _ int) (*http.Response, error) {
			select {
			case <-time.After(cellTimeout - time.Millisecond):
				return nil, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		if got := c.ask(member, "2.69", "/v2.1/servers").names(); !gocmp.Equal(got, allUp) {
			t.Errorf("the list without the slow cell: got %v", got)
		}
	})
}
