// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBudget is what an agent's life costs Placement, by the size of the tree and the number of its
// consumers, with the default timings: nothing while nothing changes, one GET to verify, one PUT
// for one change, and so on.
func TestBudget(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	cfg := testproc.Try(config.Load(config.Options{Root: t.TempDir(), Environ: []string{}})).Or(t)
	for _, size := range []struct{ children, gpus, consumers int }{{0, 1, 0}, {2, 2, 5}, {20, 4, 40}} {
		t.Run(fmt.Sprintf("%d children, %d consumers", size.children, size.consumers), func(t *testing.T) {
			state := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				service, err := placement.NewDirect(t.Context(),
					placement.Config{StateDir: state, Logger: zerolog.Nop()})
				check(t, err)
				defer func() { check(t, service.Close()) }()
				b := &budget{t: t, cfg: cfg, hour: &hour{service: service, start: time.Now()},
					children: size.children, gpus: size.gpus}
				b.life(size.consumers)
			})
		})
	}
}

// budget is an agent whose requests are counted.
type budget struct {
	t              *testing.T
	cfg            *config.Config
	hour           *hour
	children, gpus int

	mu   sync.Mutex
	seen []string // since the last look
}

func (b *budget) life(consumers int) {
	t, providers := b.t, 1+b.children
	agent := b.start("flat", 8)
	b.want("a node that Placement does not know",
		3+1+2*providers+1, "PUT /resource_classes 1", "POST /resource_providers "+fmt.Sprint(providers))
	agent.stop()

	agent = b.start("flat", 8)
	b.want("a start on a tree that is there", 2+3*providers, "PUT 0", "POST 0", "DELETE 0")
	time.Sleep(b.cfg.Tracker.AssociationRefresh * 8 / 10)
	b.want("passes without a change", 0)
	time.Sleep(b.cfg.Tracker.AssociationRefresh * 4 / 10)
	b.want("a verification", 1, "GET /resource_providers 1")
	check(t, agent.driver.Configure(t.Context(), b.driver("flat", 9), plugins.HostInfo{}))
	agent.tracker.Refresh("the test")
	synctest.Wait()
	b.want("a change", 1, "PUT /resource_providers 1")
	agent.stop()

	for i := range consumers {
		s := claimingClient{client: http.Client{Transport: b.hour.service}}
		status := s.send(http.MethodPut, uuidFor(fmt.Sprint(i)), allocation{
			Allocations: map[string]resources{nodeUUID: {map[string]int64{"VGPU": 1}}}, Project: "p", User: "u",
		}, nil)
		if status != http.StatusNoContent {
			t.Fatalf("claim %d: status %d, %v", i, status, s.broken)
		}
	}
	agent = b.start("vgpu-children", 9)
	// Read all, gather, make the GPUs, reshape. Nova's report client, for comparison, reads a new
	// provider's content, and every provider's inventory after the reshape.
	nova := (1 + 3*providers) + providers + consumers + 2*b.gpus + 1 + providers + b.gpus
	ours := (2 + 3*providers) + providers + consumers + b.gpus + 1
	if ours > nova {
		t.Errorf("a reshape costs %d requests, and Nova %d", ours, nova)
	}
	b.want("a reshape", ours, "POST /reshaper 1", "PUT 0", "DELETE 0")
	time.Sleep(b.cfg.Tracker.AssociationRefresh * 8 / 10)
	b.want("passes after it", 0)
	agent.stop()
}

// driver is the configuration of a node with a child beside, some of which others.
func (b *budget) driver(layout string, vcpus int) json.RawMessage {
	var children []string
	for i := range b.children {
		children = append(children, fmt.Sprintf(`{"name": "fpga_%d", "inventories": {"FPGA": {"total": 1}}}`, i))
	}
	return json.RawMessage(fmt.Sprintf(`{"layout": %q, "gpus": %d, "nodes": [{"name": "cn1", "inventories": {"VCPU": {"total": %d}, "VGPU": {"total": 100}, "CUSTOM_A": {"total": 1}},
		"children": [%s]}]}`, layout, b.gpus, vcpus, strings.Join(children, ", ")))
}

type counted struct {
	member
	driver plugins.Driver
	stop   func()
}

// start starts an agent and waits for its first pass.
func (b *budget) start(layout string, vcpus int) counted {
	b.t.Helper()
	driver := configured(b.t, string(b.driver(layout, vcpus)))
	m := memberWith(b.t, b.cfg, b.hour, nodeUUID, driver)
	m.line.each = func(r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen = append(b.seen, r.Method+" "+r.URL.Path)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.tracker.Run(ctx) }()
	select {
	case <-m.tracker.Ready():
	case err := <-ended:
		b.t.Fatalf("the agent ended: %v", err)
	}
	synctest.Wait()
	return counted{m, driver, func() { cancel(); check(b.t, <-ended) }}
}

// want says how many requests there were since the last time, and of some of them how many begin
// so.
func (b *budget) want(what string, all int, some ...string) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) != all {
		b.t.Errorf("%s: %d requests, want %d: %q", what, len(b.seen), all, b.seen)
	}
	for _, s := range some {
		at := strings.LastIndex(s, " ")
		n := 0
		for _, seen := range b.seen {
			if strings.HasPrefix(seen, s[:at]) {
				n++
			}
		}
		if fmt.Sprint(n) != s[at+1:] {
			b.t.Errorf("%s: %d of the requests are %s, want %s: %q", what, n, s[:at], s[at+1:], b.seen)
		}
	}
	b.seen = nil
}
