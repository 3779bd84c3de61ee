// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// victim is something that can be disturbed. What has begun a disturbance ends it.
type victim struct {
	name string
	// kill ends it, and the function that it returns starts it again; stop has it hang, and the
	// function has it go on.
	kill, stop func() (undo func())
}

// victims are all processes of a world, and its database servers. r is for what happens within a
// disturbance.
func (w *deployment) victims(t *testing.T, r *rand.Rand) []victim {
	t.Helper()
	var out []victim
	if w.servers != nil && w.servers.server != nil {
		out = w.servers.victims(t, r)
	}
	for _, p := range w.processes {
		out = append(out, victim{
			p.name,
			func() func() { p.kill(); return p.restart },
			func() func() { p.signal(syscall.SIGSTOP); return func() { p.signal(syscall.SIGCONT) } },
		})
	}
	for _, h := range w.hosts {
		each := func(sig, undo syscall.Signal) func() func() {
			return func() func() {
				all := h.children()
				for _, pid := range all {
					_ = syscall.Kill(pid, sig) // it may have ended
				}
				return func() {
					for _, pid := range all {
						if undo != 0 {
							_ = syscall.Kill(pid, undo)
						}
					}
				}
			}
		}
		out = append(out, victim{"driver of " + h.name, each(syscall.SIGKILL, 0), each(syscall.SIGSTOP, syscall.SIGCONT)})
		// Libvirt's daemon is ended in good order: killed in the middle of a start, it comes back
		// with a job without an owner, and refuses all calls for that domain ("cannot acquire state
		// change lock").
		if h.sim != nil {
			out = append(out, victim{
				"libvirtd of " + h.name,
				func() func() {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					_ = h.sim.Stop(ctx)
					return func() {
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						defer cancel()
						_ = h.sim.Launch(ctx) // if it does not come back, nothing agrees in the end
					}
				},
				func() func() { _ = h.sim.Freeze(); return func() { _ = h.sim.Thaw() } },
			})
		}
	}
	return out
}

// restart starts a process that was killed.
func (p *process) restart() {
	if err := p.start(); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.died = append(p.died, err.Error())
	}
}

// moments are what logs say in the middle of something: a good time to disturb the process that the
// line is about. Cells log nothing of that kind.
var moments = []string{
	`"method":"POST","path":"/v2.1/servers","status":202`, // to be scheduled
	`"method":"GET","path":"/allocation_candidates`,
	`"method":"PUT","path":"/allocations/`, // claimed, or removed
	`"method":"GET","path":"/allocations/`, // about to be made, or removed
	`"message":"made an instance"`,
	`"message":"Created the guest of a server."`,
	`"message":"Removed a server and its allocations."`,
	`"method":"DELETE","path":"/v2.1/servers/`,
	`/action","status":202`,
}

// await waits until some log says something, but not for long.
func (w *deployment) await(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	from := map[string]int64{}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, p := range w.processes {
			if p.logged(from, text) {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// logged reports whether the log has a text since the last look; at the first look nothing is new.
func (p *process) logged(from map[string]int64, text string) bool {
	info, err := os.Stat(p.log)
	before, looked := from[p.log]
	if err != nil || info.Size() == before {
		return false
	}
	from[p.log] = info.Size()
	if !looked {
		return false
	}
	file, err := os.Open(p.log)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	said := make([]byte, info.Size()-before)
	n, _ := file.ReadAt(said, before)
	return bytes.Contains(said[:n], []byte(text))
}

// atOnce is how many things are disturbed at the same time.
const atOnce = 4

// chaos disturbs one thing after the other until the context ends; when it returns, all is as it
// was. It returns how often what was done.
func (w *deployment) chaos(ctx context.Context, t *testing.T, r *rand.Rand) map[string]int {
	t.Helper()
	all := w.victims(t, rand.New(rand.NewPCG(r.Uint64(), 0)))
	counts := map[string]int{}
	var mu sync.Mutex
	busy := map[int]bool{}
	var under sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		// Everything by chance is drawn here, in one order.
		i, kill, moment := r.IntN(len(all)), r.IntN(2) == 0, r.IntN(2*len(moments))
		pause := time.Duration(20+r.IntN(600)) * time.Millisecond
		lasts := time.Duration(r.IntN(2000)) * time.Millisecond
		if r.IntN(4) == 0 { // long enough for hosts to be down, and for requests to be given up
			lasts = time.Duration(4000+r.IntN(5000)) * time.Millisecond
		}
		select {
		case <-ctx.Done():
			continue
		case <-time.After(pause):
		}
		if moment < len(moments) {
			w.await(ctx, moments[moment])
		}
		mu.Lock()
		taken := busy[i]
		busy[i] = true
		mu.Unlock()
		if taken {
			continue
		}
		what, do := "stopped "+all[i].name, all[i].stop
		if kill {
			what, do = "killed "+all[i].name, all[i].kill
		}
		counts[what]++
		slots <- struct{}{}
		under.Go(func() {
			defer func() { <-slots }()
			undo := do()
			select {
			case <-ctx.Done():
			case <-time.After(lasts):
			}
			undo()
			mu.Lock()
			defer mu.Unlock()
			busy[i] = false
		})
	}
	under.Wait()
	return counts
}
