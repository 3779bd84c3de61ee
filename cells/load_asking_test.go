// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asker asks a compute API and, when all have their answers, judges them: a client reads its answer
// in its own time, not in that of the service. It is for many goroutines.
type asker struct {
	model   model
	down    []int // the cells that are
	perhaps []int // those that may or may not be, as well
	url     string
	client  *http.Client
	dir     string // for answers

	mu      sync.Mutex
	answers []answer
	took    map[string][]time.Duration // by kind
}

// answer is one that came, to be judged.
type answer struct {
	path    string
	project int
	file    string // the body: together they may be large
	judge   func(body []byte) error
}

// newClient makes one that keeps connections for all that use it.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}}
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

var (
	kinds = []string{plain, detail, page, everyone, paging, services}
	// single are those that one answer is judged of: pages follow each other, and a cell may go
	// down between two of them.
	single = []string{plain, detail, page, everyone, services}
)

// pageSize is the limit of pages.
const pageSize = 100

// ask sends the n-th request of a kind, or the several that a walk through pages is.
func (a *asker) ask(ctx context.Context, kind string, n int) error {
	m, project := a.model, n%a.model.projects
	records := func(want func(down []int) []seen) func([]byte) error {
		return a.either(func(body []byte, down []int) error { return compare(body, want(down)) })
	}
	path := strings.TrimPrefix(kind, "GET ")
	switch kind {
	case plain:
		return a.send(ctx, kind, path, project,
			records(func(down []int) []seen { return m.list(project, down, maxLimit, false) }))
	case detail:
		return a.send(ctx, kind, path, project,
			records(func(down []int) []seen { return m.list(project, down, maxLimit, true) }))
	case page:
		return a.send(ctx, kind, path, project,
			records(func(down []int) []seen { return m.paged(project, down)[:pageSize] }))
	case everyone:
		return a.send(ctx, kind, path, everyProject,
			records(func(down []int) []seen { return m.paged(everyProject, down)[:pageSize] }))
	case services:
		return a.send(ctx, kind, path, everyProject,
			a.either(func(body []byte, down []int) error { return compareServices(body, m.services(down)) }))
	case paging:
		return a.walk(ctx, project)
	}
	return fmt.Errorf("there is no kind %q", kind)
}

// either judges an answer by the cells that are down, and if it is wrong, and there are some that
// may be, by these as well.
func (a *asker) either(judge func(body []byte, down []int) error) func([]byte) error {
	return func(body []byte) error {
		err := judge(body, a.down)
		if err != nil && len(a.perhaps) > 0 {
			if other := judge(body, slices.Concat(a.down, a.perhaps)); other != nil {
				return fmt.Errorf("with all cells that may be up: %w; without them: %w", err, other)
			}
			return nil
		}
		return err
	}
}

// paged are the records that pages show: those of cells that are up.
func (m model) paged(project int, down []int) []seen {
	return m.records(m.numbers(project, func(c int) bool { return !slices.Contains(down, c) }), true)
}

// walk follows the links to next pages to the end: each server of a cell that is up is there once.
func (a *asker) walk(ctx context.Context, project int) error {
	want := a.model.paged(project, a.down)
	path, most := fmt.Sprintf("/servers/detail?limit=%d", pageSize), len(want)/pageSize+1 // the last may be empty
	for pages := 0; path != ""; pages++ {
		if pages == most {
			return fmt.Errorf("walking through the pages of project %d does not end", project)
		}
		expected := want[:min(len(want), pageSize)]
		want = want[len(expected):]
		body, err := a.get(ctx, paging, path, project, func(body []byte) error { return compare(body, expected) })
		if err != nil {
			return err
		}
		next, err := nextOf(body)
		if err != nil {
			return err
		}
		path = strings.TrimPrefix(next, a.url)
	}
	if len(want) > 0 {
		return fmt.Errorf("the pages of project %d ended %d servers too early", project, len(want))
	}
	return nil
}

// send sends a request.
func (a *asker) send(ctx context.Context, kind, path string, project int, judge func([]byte) error) error {
	_, err := a.get(ctx, kind, path, project, judge)
	return err
}

// get sends a request and times it, its answer included, which is kept for [asker.judged].
func (a *asker) get(ctx context.Context, kind, path string, project int, judge func([]byte) error) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return nil, err
	}
	token := fmt.Sprintf("member:p%d", project)
	if project == everyProject {
		token = "admin:p0"
	}
	r.Header.Set("X-Auth-Token", token)
	r.Header.Set("OpenStack-API-Version", "compute 2.69")
	start := time.Now()
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body := make([]byte, max(0, resp.ContentLength))
	_, err = io.ReadFull(resp.Body, body)
	took := time.Since(start)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s of project %d: %d %.200s", path, project, resp.StatusCode, body)
	}
	file, err := os.CreateTemp(a.dir, "answer")
	if err != nil {
		return nil, err
	}
	_, err = file.Write(body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took[kind] = append(a.took[kind], took)
	a.answers = append(a.answers, answer{path: path, project: project, file: file.Name(), judge: judge})
	return body, errors.Join(err, file.Close())
}

// judged says what is wrong with the answers since the last time, at most a few.
func (a *asker) judged() (wrong []error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	right := map[string]bool{} // the same answer to the same question need not be read again
	for _, one := range a.answers {
		body, err := os.ReadFile(one.file)
		if asked := fmt.Sprint(one.path, one.project, sha256.Sum256(body)); err == nil && !right[asked] {
			err = one.judge(body)
			right[asked] = err == nil
		}
		if err = errors.Join(err, os.Remove(one.file)); err != nil && len(wrong) < few {
			wrong = append(wrong, fmt.Errorf("%s of project %d: %w", one.path, one.project, err))
		}
	}
	a.answers = nil
	return wrong
}

// few are the errors that are reported of many.
const few = 5

// nextOf is the link to the next page, which is the last member of a page.
func nextOf(page []byte) (string, error) {
	at := bytes.LastIndex(page, []byte(`,"servers_links":`))
	if at < 0 {
		return "", nil
	}
	var tail struct {
		Links []struct{ Rel, Href string } `json:"servers_links"`
	}
	if err := json.Unmarshal(append([]byte("{"), page[at+1:]...), &tail); err != nil {
		return "", err
	}
	for _, l := range tail.Links {
		if l.Rel == "next" {
			return l.Href, nil
		}
	}
	return "", nil
}

// compare compares a list with what it must be.
func compare(body []byte, want []seen) error {
	var list struct {
		Servers []struct{ ID, Name, Status string }
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	for i, s := range list.Servers {
		if i >= len(want) || (seen{s.ID, s.Name, s.Status}) != want[i] {
			return fmt.Errorf("record %d of %d is %v; the list should have %d, and there %v",
				i, len(list.Servers), s, len(want), want[min(i, len(want)):min(i+1, len(want))])
		}
	}
	if len(list.Servers) != len(want) {
		return fmt.Errorf("%d records, not %d", len(list.Servers), len(want))
	}
	return nil
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
