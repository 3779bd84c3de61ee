// SPDX-License-Identifier: Apache-2.0

package cellsload

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asker asks a world and judges the answers. It is for many goroutines.
type asker struct {
	w    *world
	down []int // the cells that are

	mu    sync.Mutex
	right map[string]map[[sha256.Size]byte]bool // bodies that were found right, by what was asked: the same again need not be read
	took  map[string][]time.Duration            // by kind
}

func newAsker(w *world, down ...int) *asker {
	return &asker{w: w, down: down, right: map[string]map[[sha256.Size]byte]bool{}, took: map[string][]time.Duration{}}
}

// The kinds of requests.
const (
	plain    = "GET /servers"
	detail   = "GET /servers/detail"
	page     = "GET /servers/detail?limit=100"
	everyone = "GET /servers/detail?limit=100&all_tenants=1"
	paging   = "next page of 100"
	services = "GET /os-services"
)

var kinds = []string{plain, detail, page, everyone, paging, services}

// pageSize is the limit of pages.
const pageSize = 100

// ask sends the n-th request of a kind, or the several that a walk through pages is, and says what is wrong with an answer.
func (a *asker) ask(kind string, n int) error {
	m, project := a.w.model, n%a.w.model.projects
	records := func(want func() []seen) func([]byte) error {
		return func(body []byte) error { _, err := compare(body, want()); return err }
	}
	path := strings.TrimPrefix(kind, "GET ")
	switch kind {
	case plain:
		return a.get(kind, path, project, records(func() []seen { return m.list(project, a.down, maxLimit, false) }))
	case detail:
		return a.get(kind, path, project, records(func() []seen { return m.list(project, a.down, maxLimit, true) }))
	case page:
		return a.get(kind, path, project, records(func() []seen { return m.paged(project, a.down)[:pageSize] }))
	case everyone:
		return a.get(kind, path, everyProject, records(func() []seen { return m.paged(everyProject, a.down)[:pageSize] }))
	case services:
		return a.get(kind, path, everyProject, func(body []byte) error { return compareServices(body, m.services(a.down)) })
	case paging:
		return a.walk(project)
	}
	return fmt.Errorf("there is no kind %q", kind)
}

// paged are the records that pages show: those of cells that are up.
func (m model) paged(project int, down []int) []seen {
	return m.records(m.numbers(project, func(c int) bool { return !slices.Contains(down, c) }), true)
}

// walk follows the links to next pages to the end: each server of a cell that is up is there once.
func (a *asker) walk(project int) error {
	want := a.w.model.paged(project, a.down)
	path, most := fmt.Sprintf("/servers/detail?limit=%d", pageSize), len(want)/pageSize+1 // the last may be empty
	for pages := 0; path != ""; pages++ {
		if pages == most {
			return fmt.Errorf("walking through the pages of project %d does not end", project)
		}
		expected := want[:min(len(want), pageSize)]
		want = want[len(expected):]
		next := ""
		// The body is read each time: what comes next is in it.
		if err := a.send(paging, path, project, func(body []byte) (err error) {
			next, err = compare(body, expected)
			return err
		}); err != nil {
			return err
		}
		path = strings.TrimPrefix(next, a.w.url)
	}
	if len(want) > 0 {
		return fmt.Errorf("the pages of project %d ended %d servers too early", project, len(want))
	}
	return nil
}

// get sends a request, and judges the answer unless the same one was found right before.
func (a *asker) get(kind, path string, project int, judge func([]byte) error) error {
	return a.send(kind, path, project, func(body []byte) error {
		asked, sum := fmt.Sprint(path, project), sha256.Sum256(body)
		a.mu.Lock()
		known := a.right[asked][sum]
		a.mu.Unlock()
		if known {
			return nil
		}
		if err := judge(body); err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.right[asked] == nil {
			a.right[asked] = map[[sha256.Size]byte]bool{}
		}
		a.right[asked][sum] = true
		return nil
	})
}

// send sends a request and times it, its answer included.
func (a *asker) send(kind, path string, project int, judge func([]byte) error) error {
	r, err := http.NewRequestWithContext(a.w.t.Context(), http.MethodGet, a.w.url+path, nil)
	if err != nil {
		return err
	}
	token := fmt.Sprintf("member:p%d", project)
	if project == everyProject {
		token = "admin:p0"
	}
	r.Header.Set("X-Auth-Token", token)
	r.Header.Set("OpenStack-API-Version", "compute 2.69")
	start := time.Now()
	resp, err := a.w.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	took := time.Since(start)
	a.mu.Lock()
	a.took[kind] = append(a.took[kind], took)
	a.mu.Unlock()
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s of project %d: %d %.200s", path, project, resp.StatusCode, body)
	}
	if err := judge(body); err != nil {
		return fmt.Errorf("%s of project %d: %w", path, project, err)
	}
	return nil
}

// compare compares a list with what it must be, and returns the link to the next page.
func compare(body []byte, want []seen) (next string, err error) {
	var list struct {
		Servers []struct{ ID, Name, Status string }
		Links   []struct{ Rel, Href string } `json:"servers_links"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", err
	}
	for i, s := range list.Servers {
		if i >= len(want) || (seen{s.ID, s.Name, s.Status}) != want[i] {
			return "", fmt.Errorf("record %d of %d is %v; the list should have %d, and there %v", i, len(list.Servers), s, len(want), want[min(i, len(want)):min(i+1, len(want))])
		}
	}
	if len(list.Servers) != len(want) {
		return "", fmt.Errorf("%d records, not %d", len(list.Servers), len(want))
	}
	for _, l := range list.Links {
		if l.Rel == "next" {
			next = l.Href
		}
	}
	return next, nil
}

func compareServices(body []byte, want map[string]string) error {
	var list struct {
		Services []struct{ Host, Status string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	got := map[string]string{}
	for _, s := range list.Services {
		got[s.Host] = s.Status
	}
	if diff := cmp.Diff(want, got); diff != "" || len(list.Services) != len(want) {
		return fmt.Errorf("%d services (-want +got):\n%s", len(list.Services), diff)
	}
	return nil
}

// crowd has clients send so many requests each, of all the kinds in turn, and returns what was wrong, at most a few.
func (a *asker) crowd(clients, each int) []error {
	var mu sync.Mutex
	var wrong []error
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := range each {
				if err := a.ask(kinds[(c+n)%len(kinds)], c*each+n); err != nil {
					mu.Lock()
					if len(wrong) < 5 {
						wrong = append(wrong, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return wrong
}

// quantile of the times of a kind; "" is all.
func (a *asker) quantile(kind string, q float64) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	var times []time.Duration
	for k, took := range a.took {
		if kind == "" || k == kind {
			times = append(times, took...)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(int(float64(len(times))*q), len(times)-1)]
}

// asked is how many requests were answered.
func (a *asker) asked() (n int) {
	for _, took := range a.took {
		n += len(took)
	}
	return n
}
