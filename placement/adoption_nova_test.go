// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// nova is Nova's own client of Placement, which remembers what it read from one to the next step.
type nova struct {
	in  io.Writer
	out *bufio.Reader
}

// python is Debian's own, which has Debian's packages.
const python = "/usr/bin/python3"

// needNova skips a test without Debian's Nova, or has it fail where CI is set.
func needNova(t *testing.T) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import nova.scheduler.client.report").
		CombinedOutput(); err != nil {
		testproc.NotRun(t, "Debian's package python3-nova is not installed (tools/packages.sh databases): "+string(out))
	}
}

// startNova starts it for a Placement at an address.
func startNova(t *testing.T, address string) *nova {
	t.Helper()
	needNova(t)
	// It ends in order, by its standard input.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), python, "-W", "ignore",
		"testdata/nova_client.py", address)
	in := testproc.Try(cmd.StdinPipe()).Or(t)
	out := testproc.Try(cmd.StdoutPipe()).Or(t)
	var problems strings.Builder
	cmd.Stderr = &problems
	testproc.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("Nova's client: %v\n%s", err, problems.String())
		}
	})
	return &nova{in, bufio.NewReader(out)}
}

// step has Nova's client make a step of testdata/nova_client.py, and returns its answer.
func (n *nova) step(t *testing.T, name string) (answer any) {
	t.Helper()
	testproc.Try(fmt.Fprintln(n.in, name)).Or(t)
	line, err := n.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	testproc.Checkf(t, err, "the step %q of Nova's client", name)
	return unordered(answer)
}

// read reads what a Placement has at a path.
func read(t *testing.T, address, path string) (body map[string]any) {
	t.Helper()
	testproc.Send(t, nil, http.MethodGet, address+path, "placement 1.39", nil).Good(t).Into(t, &body)
	return body
}

// everything reads all that a Placement shows: each resource provider, consumer, trait and class,
// and what other paths have.
func everything(t *testing.T, address string, paths ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	get := func(path string) map[string]any {
		body := read(t, address, path)
		all[path] = body
		return body
	}
	for _, path := range append([]string{"/resource_classes", "/traits?associated=true",
		"/traits?name=startswith:CUSTOM_"}, paths...) {
		get(path)
	}
	consumers := map[string]bool{}
	for _, p := range get("/resource_providers")["resource_providers"].([]any) {
		path := "/resource_providers/" + p.(map[string]any)["uuid"].(string)
		for _, part := range []string{"", "/inventories", "/usages", "/traits", "/aggregates"} {
			get(path + part)
		}
		for consumer := range get(path + "/allocations")["allocations"].(map[string]any) {
			consumers[consumer] = true
		}
	}
	for consumer := range consumers {
		get("/allocations/" + consumer)
	}
	if len(consumers) == 0 {
		t.Fatal("there are no consumers")
	}
	return unordered(all).(map[string]any)
}

// front is an address at which one Placement takes the place of another.
type front struct {
	*httptest.Server
	behind atomic.Pointer[httputil.ReverseProxy] // nil: it refuses

	mu    sync.Mutex
	count map[string]int // of answers, by request, and of "failures"
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{count: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		behind := f.behind.Load()
		if behind == nil {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		behind.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// point has a Placement answer.
func (f *front) point(to http.RoundTripper, address string) {
	target, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	f.behind.Store(&httputil.ReverseProxy{
		Transport: to, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.StatusCode >= http.StatusInternalServerError {
				f.count["failures"]++
			} else {
				f.count[r.Request.Method+" "+r.Request.URL.Path]++
			}
			return nil
		},
	})
}

// refuse has none answer.
func (f *front) refuse() { f.behind.Store(nil) }

// answered is how often a request had an answer; "failures" are those that failed.
func (f *front) answered(request string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[request]
}

// adoptBehind adopts the database and serves it behind the front: no row of it is another one, and
// Placement's answers are those of before.
func adoptBehind(t *testing.T, f *front, dsn string, shown map[string]any, paths []string) *placement.Direct {
	t.Helper()
	rows := dump(t, dsn)
	if done := adoptDatabase(t, dsn); done.Rows != 5 || done.Guarded != 12 {
		t.Errorf("adopting: got %+v, want 5 rows and 12 guarded", done)
	}
	same(t, "the rows, adopted", rows, dump(t, dsn))
	direct := testproc.Try(placement.NewDirect(t.Context(),
		placement.Config{Database: dsn, Logger: zerolog.Nop()})).Or(t)
	f.point(direct, "http://placement")
	same(t, "Placement's answers, adopted", shown, everything(t, f.URL, paths...))
	return direct
}

// handBackWhole hands the database back: no row of it is another one.
func handBackWhole(t *testing.T, dsn string) {
	t.Helper()
	rows := dump(t, dsn)
	handDatabaseBack(t, dsn)
	same(t, "the rows, handed back", rows, dump(t, dsn))
}

// same expects that something did not change.
func same(t *testing.T, when string, want, got any) {
	t.Helper()
	testproc.Samef(t, cmp.Diff(want, got), "%s: before -, after +", when)
}

// TestDatabasesAdoptUnderNova: Nova's own client fills OpenStack's Placement, and works on without
// a restart while its database is adopted, served and handed back at the same address. Every answer
// is what it was before each of the two changes.
func TestDatabasesAdoptUnderNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	testproc.NeedPlacement(t)
	dsn := dbservers.MariaDB(t)
	f := newFront(t)
	paths := []string{
		"/usages?project_id=project0", "/usages?project_id=project1",
		"/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:5",
		"/allocation_candidates?resources=VCPU:1&resources_G=CUSTOM_GPU:1&group_policy=none",
	}
	client := startNova(t, f.URL)
	var shown map[string]any // by Placement
	var seen any             // by Nova
	t.Run("before", func(t *testing.T) {
		f.point(http.DefaultTransport, testproc.StartPlacementOn(t, dsn).URL)
		client.step(t, "build")
		shown, seen = everything(t, f.URL, paths...), client.step(t, "read")
		if _, err := placement.Adopt(t.Context(), placement.Config{Database: dsn},
			store.AdoptOptions{}); !errors.Is(err, store.ErrRefused) {
			t.Errorf("adopted beside OpenStack's Placement: %v", err)
		}
	})
	direct := adoptBehind(t, f, dsn, shown, paths)
	same(t, "Nova's, adopted", seen, client.step(t, "read"))
	client.step(t, "work")
	shown, seen = everything(t, f.URL, paths...), client.step(t, "read")
	testproc.Check(t, direct.Close())
	handBackWhole(t, dsn)
	t.Run("after", func(t *testing.T) {
		f.point(http.DefaultTransport, testproc.StartPlacementOn(t, dsn).URL)
		same(t, "Placement's answers, handed back", shown, everything(t, f.URL, paths...))
		same(t, "Nova's, handed back", seen, client.step(t, "read"))
		client.step(t, "work again")
		everything(t, f.URL, paths...)
	})
}
