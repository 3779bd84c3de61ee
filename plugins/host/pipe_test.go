// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// TestCatchUp: it waits for what was written before it, as long as that is in the pipe or in the hands of whoever reads, and for no more.
func TestCatchUp(t *testing.T) {
	p, w, err := openPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closePipes([]*pipe{p})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.catchUp(ended); err != nil {
		t.Errorf("nothing was written: %v", err)
	}
	say := func(text string) {
		t.Helper()
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	say("one\ntwo\nhal")
	if err := p.catchUp(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it is in the pipe: %v", err)
	}
	lines, next := make(chan string), make(chan struct{})
	go func() {
		defer p.end()
		for in := bufio.NewScanner(p); in.Scan(); <-next {
			lines <- in.Text()
		}
	}()
	for _, want := range []string{"one", "two"} {
		if got := <-lines; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
		if err := p.catchUp(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("the line %q is being dealt with: %v", want, err)
		}
		next <- struct{}{}
	}
	if err := p.catchUp(t.Context()); err != nil {
		t.Errorf("both lines were dealt with: %v", err)
	}
	say("f")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-lines; got != "half" {
		t.Errorf("read %q", got)
	}
	next <- struct{}{}
	closePipes([]*pipe{p})
	if err := p.catchUp(t.Context()); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}

// TestLateReader: what a dead process has written is read, even if the time for that is over before anybody came to read it; what somebody
// else goes on writing is not.
func TestLateReader(t *testing.T) {
	p, w, err := openPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closePipes([]*pipe{p})
	defer func() { _ = w.Close() }()
	p.stopAt(time.Now())
	var got []string
	for _, line := range []string{"its last words", "somebody else's", "and more"} {
		if _, err := w.WriteString(line); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		n, err := p.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		got = append(got, string(buf[:n]))
	}
	if diff := cmp.Diff([]string{"its last w", "ords", ""}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := io.ReadAll(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// TestSessionCatchesUp: the lines that a process wrote before it answered are in the log after CatchUp.
func TestSessionCatchesUp(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	spec := chaosSpec("", nil)
	spec.Timeouts.Handshake = patience / 2
	s, err := r.Open(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	for n := 1; n <= 50; n++ {
		if _, err := s.Plugin().Configure(ctx, &driverv1.ConfigureRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := s.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		if told := strings.Count(r.log.String(), `"configuring"`); told != n {
			t.Fatalf("after %d calls that log a line each, %d lines were in the log", n, told)
		}
	}
}
