// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A bare server is what a Placement service could cost at least: net/http, and for each write the
// fsync of an append to a file, which all writes that wait share. It answers as ours answered when
// its answers were recorded, with the same headers and the same bytes.

// recordedAnswer is an answer of ours.
type recordedAnswer struct {
	Status int
	Header http.Header
	Body   []byte
}

// recording is a transport that remembers answers by request: by method and URI, and by method and
// path with "*" for the second segment, which stands for all providers or consumers.
type recording struct {
	base http.RoundTripper

	mu      sync.Mutex
	answers map[string]recordedAnswer
}

func newRecording(base http.RoundTripper) *recording {
	return &recording{base: base, answers: map[string]recordedAnswer{}}
}

// RoundTrip implements http.RoundTripper.
func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	a := recordedAnswer{Status: resp.StatusCode, Header: resp.Header.Clone()}
	a.Header.Del("Date") // net/http's own
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(strings.NewReader(string(a.Body)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keysOf(req) {
		r.answers[key] = a
	}
	return resp, nil
}

// keysOf are the keys of a request's answer, the most specific one first.
func keysOf(req *http.Request) []string {
	exact := req.Method + " " + req.URL.RequestURI()
	segments := strings.Split(req.URL.Path, "/")
	if len(segments) < 3 {
		return []string{exact}
	}
	segments[2] = "*"
	return []string{exact, req.Method + " " + strings.Join(segments, "/")}
}

// save writes the answers to a file for a bare server.
func (r *recording) save(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.Marshal(r.answers)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// bareServer is a bare server. It is an http.Handler.
type bareServer struct {
	answers map[string]recordedAnswer
	log     *os.File
	queue   chan bareWrite
}

// bareWrite is a body to append, and where to answer when it is on the disk.
type bareWrite struct {
	body []byte
	done chan error
}

// newBareServer appends the bodies of writes to a file, until the context ends.
func newBareServer(ctx context.Context, answers map[string]recordedAnswer, log *os.File) *bareServer {
	s := &bareServer{answers: answers, log: log, queue: make(chan bareWrite, 256)}
	go s.run(ctx)
	return s
}

// run appends what is in the queue with one write and one fsync, as the ledger commits.
func (s *bareServer) run(ctx context.Context) {
	var together []byte
	var waiting []chan error
	for {
		var first bareWrite
		select {
		case <-ctx.Done():
			return
		case first = <-s.queue:
		}
		together, waiting = append(together[:0], first.body...), append(waiting[:0], first.done)
		for more := true; more; {
			select {
			case w := <-s.queue:
				together, waiting = append(together, w.body...), append(waiting, w.done)
			default:
				more = false
			}
		}
		_, err := s.log.Write(together)
		if err == nil {
			err = s.log.Sync()
		}
		for _, done := range waiting {
			done <- err
		}
	}
}

// ServeHTTP answers as recorded. A write is on the disk before.
func (s *bareServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a recordedAnswer
	found := false
	for _, key := range keysOf(r) {
		if a, found = s.answers[key]; found {
			break
		}
	}
	if !found {
		http.Error(w, "no answer was recorded for "+r.Method+" "+r.URL.RequestURI(), http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet {
		body := make([]byte, max(r.ContentLength, 1)) // a DELETE has no body, and is a record too
		_, err := io.ReadFull(r.Body, body[:max(r.ContentLength, 0)])
		if err == nil {
			write := bareWrite{body, make(chan error, 1)}
			s.queue <- write
			err = <-write.done
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // an error means that the client is gone
}

// bare is the process of a bare server: perf bare -listen ADDRESS -answers FILE -log FILE.
func bare(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("perf bare", flag.ContinueOnError)
	address := flags.String("listen", "", "the address to listen on")
	recorded := flags.String("answers", "", "the file of answers")
	logName := flags.String("log", "", "the file that writes are appended to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*recorded)
	if err != nil {
		return err
	}
	var answers map[string]recordedAnswer
	if err := json.Unmarshal(text, &answers); err != nil {
		return fmt.Errorf("read %s: %w", *recorded, err)
	}
	log, err := os.OpenFile(*logName, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	server := &http.Server{Handler: newBareServer(ctx,
		answers, log)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, log.Close())
	}
	return log.Close()
}

// startBare starts a bare server with answers, in a process of its own.
func startBare(ctx context.Context, dir string, answers *recording) (*peer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	recorded := filepath.Join(dir, "answers.json")
	if err := answers.save(recorded); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	p := &peer{Name: "a bare server", URL: "http://" + address, dir: dir}
	begin := time.Now()
	proc, err := p.start(ctx, "bare", nil, self, "bare",
		"-listen", address, "-answers", recorded, "-log", filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, proc, p.answers); err != nil {
		return nil, errors.Join(fmt.Errorf("start a bare server: %w", err), p.Close())
	}
	p.Startup = time.Since(begin)
	return p, nil
}
