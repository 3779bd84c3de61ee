// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"context"
	"math/rand/v2"
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
func (d *deployment) victims(t *testing.T, r *rand.Rand) []victim {
	t.Helper()
	var out []victim
	if d.servers != nil && d.servers.server != nil {
		out = d.servers.victims(t, r)
	}
	for _, p := range d.processes {
		out = append(out, victim{
			p.Name(),
			func() func() { p.kill(); return func() { p.start(t) } },
			// It may have ended.
			func() func() { _ = p.Signal(syscall.SIGSTOP); return func() { _ = p.Signal(syscall.SIGCONT) } },
		})
	}
	for _, h := range d.hosts {
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
		out = append(out, victim{"driver of " + h.Host,
			each(syscall.SIGKILL, 0), each(syscall.SIGSTOP, syscall.SIGCONT)})
		// Libvirt's daemon is ended in good order: killed in the middle of a start, it comes back
		// with a job without an owner, and refuses all calls for that domain ("cannot acquire state
		// change lock").
		if h.sim != nil {
			out = append(out, victim{
				"libvirtd of " + h.Host,
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

// moments are what logs say in the middle of something: a good time to disturb the process that the
// line is about. Cells log nothing of that kind.
var moments = []string{
	`"method":"POST","path":"/v2.1/servers","status":202`, // to be scheduled
	`"method":"GET","path":"/allocation_candidates`,
	`"method":"PUT","path":"/allocations/`, // claimed, or removed
	`"method":"GET","path":"/allocations/`, // about to be made, or removed
	`"message":"Created the instance."`,
	`"message":"Created the guest of a server."`,
	`"message":"Removed a server and its allocations."`,
	`"method":"DELETE","path":"/v2.1/servers/`,
	`/action","status":202`,
}

// await waits until some log says something, but not for long.
func (d *deployment) await(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	marks := map[*process]int{}
	for _, p := range d.processes {
		marks[p] = p.Mark()
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for p, mark := range marks {
			if p.Count(mark, text) > 0 {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// atOnce is how many things are disturbed at the same time.
const atOnce = 4

// chaos disturbs one thing after the other until the context ends; when it returns, all is as it
// was. It returns how often what was done.
func (d *deployment) chaos(ctx context.Context, t *testing.T, r *rand.Rand) map[string]int {
	t.Helper()
	all := d.victims(t, rand.New(rand.NewPCG(r.Uint64(), 0)))
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
			d.await(ctx, moments[moment])
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
