// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
)

// watcher finds processes that outlive the plugin which started them.
//
// It recognizes them by the socket directory in their environment, which each plugin process has
// for itself and its children inherit; as descendants of a plugin while that ran; and as children
// of this process, which adopts orphans meanwhile: daemons that left their parent and have their
// own environment.
type watcher struct {
	b        *Bench
	children map[processID]bool
	known    map[processID]bool // descendants of plugins, without the plugins themselves
	own      map[int]bool       // plugin processes
}

// processID identifies a process, also after its number is used again.
type processID struct {
	pid     int
	started uint64
}

func idOf(p processes.Process) processID { return processID{p.PID, p.Started} }

func (b *Bench) watchProcesses() (*watcher, error) {
	w := &watcher{b: b, children: map[processID]bool{}, known: map[processID]bool{}, own: map[int]bool{}}
	all, err := processes.All()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Parent == os.Getpid() {
			w.children[idOf(p)] = true
		}
	}
	return w, adopt(1)
}

// close stops adopting.
func (w *watcher) close() { _ = adopt(-1) }

// adopting counts the watchers: adopting orphans is a setting of the whole process.
var adopting struct {
	sync.Mutex
	n int
}

// adopt adds n to the number of watchers. Orphans are adopted while it is above 0.
func adopt(n int) error {
	adopting.Lock()
	defer adopting.Unlock()
	adopting.n += n
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(min(adopting.n, 1)), 0, 0, 0); err != nil {
		return fmt.Errorf("adopting orphans: %w", err)
	}
	return nil
}

// scan records the processes that a plugin has started so far.
func (w *watcher) scan(p *proc) error {
	all, err := processes.All()
	if err != nil {
		return err
	}
	w.own[p.PID()] = true
	for _, q := range processes.Family(all, p.PID()) {
		if q.PID != p.PID() {
			w.known[idOf(q)] = true
		}
	}
	return nil
}

// remaining returns the remaining processes of plugins that have all ended.
func (w *watcher) remaining() ([]processes.Process, error) {
	all, err := processes.All()
	if err != nil {
		return nil, err
	}
	session := 0
	if self, ok := processes.Lookup(os.Getpid()); ok {
		session = self.Session
	}
	var out []processes.Process
	for _, p := range all {
		if p.State == 'Z' || w.own[p.PID] {
			continue
		}
		orphan := p.Parent == os.Getpid() && !w.children[idOf(p)] && p.Session != session &&
			!processes.EnvironContains(p.PID, "PLUGIN_UNIX_SOCKET_DIR=")
		marked := processes.EnvironContains(p.PID, w.b.scratch+"/plugins/") ||
			processes.EnvironContains(p.PID, w.b.scratch+"/"+errorLevelDir+"/")
		if w.known[idOf(p)] || orphan || marked {
			out = append(out, p)
		}
	}
	return out, nil
}

// leftovers waits for the processes of ended plugins to end, kills those that do not, and describes
// them.
func (w *watcher) leftovers(ctx context.Context, after string) ([]string, error) {
	var left []processes.Process
	for range 20 { // one that was killed takes a moment to end
		var err error
		if left, err = w.remaining(); err != nil || len(left) == 0 {
			return nil, err
		}
		pause(ctx, 50*time.Millisecond)
	}
	var out []string
	for _, p := range left {
		if now, ok := processes.Lookup(p.PID); !ok || idOf(now) != idOf(p) {
			continue
		}
		out = append(out, fmt.Sprintf("process %d (%s) still runs after %s",
			p.PID, processes.CommandLine(p.PID), after))
		_ = unix.Kill(p.PID, unix.SIGKILL)
		if p.Parent == os.Getpid() { // adopted: no other part of this process waits for it
			_, _ = unix.Wait4(p.PID, nil, 0, nil)
		}
	}
	return out, nil
}

func checkLeftovers(ctx context.Context, b *Bench) error {
	w, err := b.watchProcesses()
	if err != nil {
		return err
	}
	defer w.close()
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	b.endOwn()
	b.discard()
	wrong, err := w.leftovers(ctx, "the checks before this one")
	if err != nil {
		return err
	}
	for _, way := range []struct {
		name string
		end  func(*proc)
	}{
		{"Shutdown and the end of the connection", func(p *proc) { _, _ = p.shutdown(ctx), p.End() }},
		{"the process was killed", func(p *proc) { p.Kill() }},
	} {
		p, err := b.configured(ctx)
		if err != nil {
			return err
		}
		if _, err := p.nodes(ctx); err != nil {
			return failf("AvailableNodes", "%s", describe(err))
		}
		if _, err := p.tree(ctx, base.bare, base.node); err != nil {
			return err
		}
		if err := w.scan(p); err != nil {
			return err
		}
		way.end(p)
		some, err := w.leftovers(ctx, way.name)
		if err != nil {
			return err
		}
		wrong = append(wrong, some...)
	}
	return failLines("Configure, one pass, then the end of the process: once by Shutdown, once killed", wrong)
}

// processCount counts a process, those of its group and those that it started.
func processCount(pid int) int {
	all, err := processes.All()
	if err != nil {
		return 0
	}
	return len(processes.Family(all, pid))
}

func threads(pid int) int {
	p, _ := processes.Lookup(pid)
	return p.Threads
}

func memory(pid int) int64 {
	all, err := processes.All()
	if err != nil {
		return 0
	}
	var sum int64
	for _, p := range processes.Family(all, pid) {
		sum += p.Memory
	}
	return sum
}

// checkMemory compares the resident memory after each of several rounds of passes. Caches and heaps
// reach their size in the first ones.
func checkMemory(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	const (
		rounds, passes = 5, 100
		longest        = 3 * time.Second // of a round of a slow driver, but for
		fewest         = 25
		each, all      = 1 << 20, 32 << 20
	)
	var sizes []int64
	made := 0
	for range rounds {
		began := time.Now()
		for i := 0; i < passes && (i < fewest || time.Since(began) < longest); i++ {
			if _, err := p.nodes(ctx); err != nil {
				return failf("AvailableNodes", "%s", describe(err))
			}
			if _, err := p.tree(ctx, base.stored, base.node); err != nil {
				return err
			}
			made++
		}
		sizes = append(sizes, memory(p.PID()))
	}
	grown := true
	var texts []string
	for i, size := range sizes {
		grown = grown && (i == 0 || size-sizes[i-1] >= each)
		texts = append(texts, fmt.Sprint(size>>20))
	}
	if grown && sizes[rounds-1]-sizes[0] >= all {
		return failf(fmt.Sprintf("%d passes in %d rounds", made, rounds),
			"resident memory grew in each: %s MiB", strings.Join(texts, ", "))
	}
	return nil
}
