// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Plan is what a run does.
type Plan struct {
	// Seed is that of the first world; the next ones have Seed+Stride, Seed+2*Stride and so on.
	Seed, Stride uint64
	Profile      Profile
	// Requests ends the run after so many; zero for no such end.
	Requests int
	// Until ends the run; the zero time for no such end.
	Until time.Time
	// Findings ends the run after so many different ones.
	Findings int
	// ShrinkRequests is how many requests the search for a short script may take; none for no
	// search.
	ShrinkRequests int
	// Found gets each different finding, as soon as its script is there.
	Found func(f *Finding)
	// Note gets a line of progress from time to time.
	Note func(format string, args ...any)
}

// Finding is a difference that no exception allows.
type Finding struct {
	Seed      uint64
	Signature string
	// Script is what to send to two empty services; the last step has the difference.
	Script  []Step
	Last    *Exchange
	refused []bool
	// Rendered is the script as requests, with the statuses of both.
	Rendered string
	// Times is how often the run met it; more often than that, when it was not looked at each time.
	Times int
}

// Result is what a run found, and what it did.
type Result struct {
	Worlds   int
	Findings []*Finding
	Counts   *Counts
}

// Run compares two services, world by world.
func Run(ctx context.Context, real, ours Service, plan Plan) (*Result, error) {
	r := &runner{real: real, ours: ours}
	result := &Result{Counts: NewCounts()}
	known := map[string]*sightings{}
	enough := func() bool {
		return ctx.Err() != nil || plan.Requests > 0 &&
			result.Counts.Requests >= plan.Requests || !plan.Until.IsZero() && !time.Now().Before(plan.Until) ||
			plan.Findings > 0 && len(result.Findings) >= plan.Findings
	}
	for seed := plan.Seed; !enough(); seed += plan.Stride {
		steps := World(seed, plan.Profile)
		if err := r.reset(ctx); err != nil {
			return result, err
		}
		if result.Worlds++; r.newer == nil {
			if err := r.learn(ctx); err != nil {
				return result, err
			}
		}
		var refused []bool
		for i := 0; i < len(steps) && !enough(); i++ {
			x, err := r.send(ctx, &steps[i])
			if err != nil {
				return result, fmt.Errorf("seed %d, step %d, %s %s: %w", seed, i, steps[i].Method, steps[i].Path, err)
			}
			result.Counts.add(x)
			refused = append(refused, x.Real.Status >= http.StatusBadRequest)
			if len(x.Differences) == 0 {
				if x.diverged() {
					break
				}
				continue
			}
			seen := known[x.signature()]
			if seen == nil {
				seen = &sightings{outlines: map[string]*Finding{}}
				known[x.signature()] = seen
			}
			if seen.times++; seen.worthAnother() {
				f := &Finding{Seed: seed, Signature: x.signature(), Script: steps[:i+1],
					refused: refused, Last: x, Times: 1}
				plan.note("Seed %d, step %d: a difference: %s", seed, i, f.Signature)
				if err := r.explain(ctx, f, plan); err != nil {
					return result, err
				}
				if same := seen.outlines[f.outline()]; same != nil {
					same.Times++
				} else {
					seen.outlines[f.outline()] = f
					result.Findings = append(result.Findings, f)
					if plan.Found != nil {
						plan.Found(f)
					}
				}
				break // The services were emptied.
			}
			if x.diverged() {
				break
			}
		}
	}
	return result, nil
}

// sightings are the differences with one signature. It may stand for several faults: so it is
// looked at again after some time, and kept as another finding when the shrunk request looks
// different.
type sightings struct {
	times    int
	outlines map[string]*Finding
}

func (s *sightings) worthAnother() bool { return s.times&(s.times-1) == 0 && s.times <= 64 }

// Step is which step of its world had the difference.
func (f *Finding) Step() int { return len(f.refused) - 1 }

// outline is which parameters the last request of the script has.
func (f *Finding) outline() string {
	var names []string
	last := f.Script[len(f.Script)-1]
	for _, p := range last.Query {
		names = append(names, groupSuffix.ReplaceAllString(p.Name, "${1}N"))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (p *Plan) note(format string, args ...any) {
	if p.Note != nil {
		p.Note(format, args...)
	}
}

// explain shrinks a finding and writes its script.
func (r *runner) explain(ctx context.Context, f *Finding, plan Plan) error {
	within, cancel := context.WithTimeout(ctx, shrinkFor)
	defer cancel()
	if plan.ShrinkRequests > 0 {
		script, last, err := r.shrink(within, f.Script, f.refused, f.Last, plan.ShrinkRequests)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		f.Script, f.Last = script, last
	}
	var err error
	f.Rendered, err = r.script(ctx, f)
	return err
}

// script sends the steps once more and writes down what is sent and answered.
func (r *runner) script(ctx context.Context, f *Finding) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# seed %d, %d requests to two empty services\n", f.Signature, f.Seed, len(f.Script))
	if err := r.reset(ctx); err != nil {
		return "", err
	}
	for i := range f.Script {
		x, err := r.send(ctx, &f.Script[i])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n%s", x.Request.script())
		if i < len(f.Script)-1 {
			fmt.Fprintf(&b, "# both: %d\n", x.Real.Status)
			if x.Real.Status != x.Ours.Status {
				fmt.Fprintf(&b, "# ours: %d\n", x.Ours.Status)
			}
			continue
		}
		fmt.Fprintf(&b, "# real: %s# ours: %s", x.Real.script(), x.Ours.script())
		for _, d := range x.Differences {
			fmt.Fprintf(&b, "# difference: %s\n", d)
		}
		if len(x.Differences) == 0 {
			b.WriteString("# This time there was no difference: it does not always come.\n")
		}
	}
	return b.String(), nil
}

// script is a request in readable form.
func (r *Request) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Method, r.Target)
	for _, name := range []string{"OpenStack-API-Version", "Accept", "Content-Type", "X-Auth-Token"} {
		usual := map[string]string{"Accept": "application/json", "X-Auth-Token": "admin"}[name]
		if r.HasBody && name == "Content-Type" {
			usual = "application/json"
		}
		if value := r.Header.Get(name); value != usual {
			fmt.Fprintf(&b, "  %s: %s", name, value)
		}
	}
	b.WriteByte('\n')
	if r.HasBody {
		fmt.Fprintf(&b, "  %s\n", r.Body)
	}
	return b.String()
}

// mostShown is how much of a body is shown, in bytes.
const mostShown = 6000

func (a *Answer) script() string {
	body := a.Body
	if len(body) > mostShown {
		body = body[:mostShown] + "…"
	}
	return fmt.Sprintf("%d %s\n", a.Status, strings.Join(strings.Fields(body), " "))
}
