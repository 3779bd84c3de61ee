// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBareServer: a bare server answers with the status, the headers and the bytes of the answers
// that were recorded, and has each body of a write in its file before it answers.
func TestBareServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	recorded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Openstack-Api-Version", "placement 1.37")
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write([]byte("the answer to " + r.URL.RequestURI()))
	}))
	defer recorded.Close()
	answers := newRecording(http.DefaultTransport)
	c := NewClientOver(answers, recorded.URL)
	for _, path := range []string{"/a/1/b", "/a/2/b", "/c?limit=1"} {
		testproc.Try(c.Send(t.Context(), http.MethodGet, path, nil)).Or(t)
	}
	testproc.Try(c.Send(t.Context(), http.MethodPut, "/a/1/b", object{})).Or(t)

	log := testproc.Try(os.Create(filepath.Join(t.TempDir(), "log"))).Or(t)
	t.Cleanup(func() { _ = log.Close() })
	bare := httptest.NewServer(newBareServer(t.Context(), answers.answers, log))
	defer bare.Close()
	c = NewClient(bare.URL, several)
	for path, want := range map[string]string{
		"/a/1/b": "the answer to /a/1/b", "/a/2/b": "the answer to /a/2/b", "/a/3/b": "the answer to /a/2/b",
		"/c?limit=1": "the answer to /c?limit=1",
	} {
		got, err := c.Send(t.Context(), http.MethodGet, path, nil)
		if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got:\n%s", path, err, diff)
		}
	}
	if _, err := c.Send(t.Context(), http.MethodGet, "/d", nil); err == nil {
		t.Error("a request without a recorded answer has one")
	}
	resp := testproc.Try(http.Get(bare.URL + "/a/1/b")).Or(t)
	if err := resp.Body.Close(); err != nil || resp.Header.Get("Openstack-Api-Version") != "placement 1.37" {
		t.Errorf("the headers are %v, %v", resp.Header, err)
	}
	var writing sync.WaitGroup
	for range several {
		writing.Go(func() {
			if _, err := c.Send(t.Context(), http.MethodPut, "/a/9/b", []byte("{one}")); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(log.Name())
			if err != nil || !strings.Contains(string(text), "{one}") {
				t.Errorf("answered before the body is in the file: %q, %v", text, err)
			}
		})
	}
	writing.Wait()
	text, err := os.ReadFile(log.Name())
	if diff := cmp.Diff(strings.Repeat("{one}", several), string(text)); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// TestRecordOperations: what is recorded of our service answers all operations on a bare server.
func TestRecordOperations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	service, data := inProcess(t, several)
	answers := newRecording(service.http.Transport)
	c := NewClientOver(answers, "http://placement")
	ops := data.optimumOperations()
	for _, op := range ops {
		testproc.Checkf(t, record(t.Context(), c, op), "%s", op.name)
	}
	log := testproc.Try(os.Create(filepath.Join(t.TempDir(), "log"))).Or(t)
	t.Cleanup(func() { _ = log.Close() })
	bare := httptest.NewServer(newBareServer(t.Context(), answers.answers, log))
	defer bare.Close()
	for _, op := range ops {
		testproc.NoErrorf(t, record(t.Context(), NewClient(bare.URL, 1), op), "%s", op.name)
	}
}
