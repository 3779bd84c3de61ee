// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// scene is a host with its worker.
type scene struct {
	*testing.T
	cell      *fakeCell
	driver    *fakeDriver
	placement *fakePlacement
	tree      *providertree.Tree
	log       testproc.Buffer
	spans     *tracing.Tracing // nil: none
	disables  []string

	buildTimeout time.Duration

	mu        sync.Mutex
	away      bool   // the node is
	held      string // the node is, for that reason
	abilities []string
	process   agentruns.Process
	// hypervisor is what the driver says of its node, address what is configured.
	hypervisor *plugins.Hypervisor
	address    string
	failing    error
	mute       bool // a driver has not said yet which nodes it has
	w          *worker.Worker
	stop       func()
}

func (s *scene) Nodes(context.Context) (nodes []worker.Node, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, !s.mute
	}
	if s.held != "" {
		return []worker.Node{{UUID: nodeUUID, Name: host, Held: s.held}}, !s.mute
	}
	return []worker.Node{{
		UUID: nodeUUID, Name: host, Manager: s.driver, Abilities: s.abilities, Hypervisor: s.hypervisor,
		Tree: func() *providertree.Tree { return s.tree },
	}}, !s.mute
}

// newScene has a cell, a driver and a Placement, and no worker yet.
func newScene(t *testing.T) *scene {
	s := &scene{T: t, cell: newCell(), driver: newDriver(), placement: newPlacement(), tree: &providertree.Tree{}}
	testproc.Check(t, s.tree.AddRoot(nodeUUID, host))
	t.Cleanup(func() {
		if s.stop != nil {
			s.stop()
		}
		for _, p := range s.driver.problems {
			t.Error(p)
		}
	})
	return s
}

// start begins a worker, after ending the one that there is.
func (s *scene) start() {
	if s.stop != nil {
		s.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.w = worker.New(worker.Config{
		Host: host, Version: "1", Process: s.process, Address: s.address, Cell: s.cell, Guests: s,
		Allocations: s.placement, Logger: zerolog.New(&s.log), Builds: 3, BuildTimeout: s.buildTimeout,
		Tracing: func() *tracing.Tracing { return s.spans },
		Disable: func(disabled bool, reason string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.disables = append(s.disables, fmt.Sprint(disabled, " ", reason))
			return s.failing
		},
	})
	ended := make(chan struct{})
	go func() { defer close(ended); s.w.Run(ctx) }()
	s.stop = func() { cancel(); <-ended; s.stop = nil }
}
