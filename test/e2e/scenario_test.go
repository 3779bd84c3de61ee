// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestScenarios plays testdata/scenarios/*.txt against the bundled Placement and OpenStack's own. A
// scenario is a list of steps, each a line that begins with ">" and the lines up to the next empty
// one:
//
//	> others              what other clients write to Placement: providers in the notation,
//	                      "claim CONSUMER AMOUNTS", "free CONSUMER", "delete PROVIDER"
//	> meanwhile           the same, just before the agent's next write
//	> driver [careless]   what the driver reports from now on: providers, and "move", "home",
//	                      "strict", "reshape", "rename" (see dictate)
//	> start               the agent starts; its writes and reads follow, and the outcome
//	> pass                the running agent makes a pass
//	> later               as pass, when its view of the tree is old enough to be verified
//	> tree                what Placement has then
//	> quiet               nothing is left to do: a pass sends no request, another start no write
//	> new state           the agent's state directory is lost, but for its identity
//
// What start, pass and tree say is compared, and rewritten with -update: read it then. Whatever
// they do, no consumer may hold more or less than before.
func TestScenarios(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	files := testproc.Try(filepath.Glob("testdata/scenarios/*.txt")).Or(t)
	if len(files) == 0 {
		t.Fatal("there are no scenarios")
	}
	for kind, empty := range placements(t) {
		for _, file := range files {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				want := testproc.Try(os.ReadFile(file)).Or(t)
				p := newPlay(t, empty(t))
				got := p.perform(string(want))
				golden.Text(t, file, got)
			})
		}
	}
}

// play is a running scenario.
type play struct {
	*world
	driver    *dictated
	meanwhile []string
	names     map[string]string // of consumers and aggregates, by uuid
	consumers []string

	// The agent that is up.
	client  *reportclient.Client
	journal *journal.Journal
	wire    *observedWire
	now     time.Duration
}

func newPlay(t *testing.T, url string) *play {
	w := newWorld(t, url)
	w.uuids["cn1"] = nodeUUID
	return &play{world: w, names: map[string]string{}}
}

// perform plays a scenario and returns it with what happened.
func (p *play) perform(text string) string {
	p.t.Helper()
	var out []string
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		lines := strings.Split(block, "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, ">") })
		if at < 0 {
			out = append(out, block)
			continue
		}
		step, body := strings.TrimSpace(lines[at][1:]), lines[at+1:]
		if said, speaks := p.step(step, body); speaks {
			body = said
		}
		out = append(out, strings.Join(append(lines[:at+1:at+1], body...), "\n"))
		if p.t.Failed() {
			p.t.Logf("at: > %s", step)
		}
	}
	return strings.Join(out, "\n\n") + "\n"
}

// step runs one step. If speaks, what it returns must be what the scenario says.
func (p *play) step(step string, body []string) (said []string, speaks bool) {
	p.t.Helper()
	switch step {
	case "others":
		p.others(body)
	case "meanwhile":
		p.meanwhile = body
	case "driver", "driver careless":
		d := testproc.Try(dictate(body, step != "driver", p.driver)).Or(p.t)
		p.driver = d
		for _, provider := range d.providers {
			p.nameFor(provider.aggregates...)
		}
	case "start":
		p.boot()
		return p.pass(false), true
	case "pass":
		return p.pass(true), true
	case "later":
		p.now += time.Hour
		return p.pass(true), true
	case "tree":
		return p.look().draw(p.names), true
	case "quiet":
		p.checkQuiet()
	case "new state":
		check(p.t, os.RemoveAll(p.state()))
	default:
		p.t.Fatalf("there is no step %q", step)
	}
	return nil, false
}

func (p *play) state() string { return filepath.Join(p.dir, "state") }

// boot makes an agent that has only its state directory.
func (p *play) boot() {
	p.t.Helper()
	check(p.t, os.MkdirAll(p.state(), 0o700))
	p.journal = journal.New(p.state())
	testproc.Try(p.journal.Load()).Or(p.t)
	p.wire = &observedWire{asks: make(chan chan struct{})}
	begin := time.Now()
	p.client = testproc.Try(reportclient.New(reportclient.Config{
		Config: placementclient.Config{
			URL: p.url, Transport: p.wire, Logger: zerolog.Nop(),
			Now: func() time.Time { return begin.Add(p.now) }, Authorize: asService,
		},
		RefreshInterval: time.Minute, ReshapeLog: p.journal, Jitter: func() float64 { return 0 },
	})).Or(p.t)
}

// pass is one pass of the agent: at start-up, or, running, later.
func (p *play) pass(running bool) []string {
	p.t.Helper()
	before, meanwhile := p.held(), false
	placement := &erring{Client: p.client}
	tracker := resourcetracker.New(resourcetracker.Config{
		Name: "dictated", Driver: p.driver, Placement: placement, Identity: nodeUUID, Journal: p.journal,
		Records: ownership.Open(p.state()), Running: running,
		Timings: resourcetracker.Timings{Interval: time.Hour, PassDeadline: patience,
			BackoffMin: time.Hour, BackoffMax: time.Hour},
		Logger: zerolog.New(zerolog.NewTestWriter(p.t)).Level(zerolog.WarnLevel), Rand: func() float64 { return 0 },
	})
	ctx, stop := context.WithCancel(p.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- tracker.Run(ctx) }()
	p.wire.hold(p.meanwhile != nil)
	var err error
	for waiting := true; waiting; {
		select {
		case goOn := <-p.wire.asks:
			p.others(p.meanwhile)
			p.meanwhile, meanwhile = nil, true
			close(goOn)
		case <-tracker.Ready():
			stop()
			err, waiting = <-ended, false
		case err = <-ended:
			waiting = false
		case <-timeout():
			p.t.Fatalf("the pass does not end within %v", patience)
		}
	}
	after := p.held()
	if diff := cmp.Diff(before.sums(p.driver.renames), after.sums(p.driver.renames)); diff != "" && !meanwhile {
		p.t.Errorf("the agent has changed what consumers hold: %s", diff)
	}
	return append(p.wire.requestsSince(p.uuids), p.outcome(tracker, err, placement.err)...)
}

// outcome describes how a pass ended, in words that do not depend on the texts of errors.
func (p *play) outcome(tracker *resourcetracker.Tracker, fatal, applied error) []string {
	if fatal != nil {
		p.t.Logf("fatal: %v", fatal)
	}
	status := tracker.Status()
	var out []string
	for _, node := range status.Nodes {
		for _, n := range []struct {
			what  string
			items []string
		}{{"kept for others", node.Kept}, {"retiring", node.Draining}, {"against it", node.Violations}} {
			if len(n.items) > 0 {
				out = append(out, fmt.Sprintf("%s: %s", n.what, strings.Join(p.mentioned(n.items), " ")))
			}
		}
	}
	verdict := string(status.State)
	if fatal != nil {
		verdict = "fatal"
	}
	for _, kind := range []struct {
		name string
		err  error
	}{
		{"conflict", reportclient.ErrConflict}, {"inventory in use", reportclient.ErrInventoryInUse},
		{"provider in use", reportclient.ErrProviderInUse},
		{"duplicate", reportclient.ErrDuplicate}, {"invalid", reportclient.ErrInvalid},
		{"identity", reportclient.ErrIdentity}, {"reshape refused", reportclient.ErrReshapeRefused},
	} {
		if errors.Is(applied, kind.err) || errors.Is(fatal, kind.err) {
			verdict += ", " + kind.name
		}
	}
	return append(out, verdict)
}

// mentioned are the known names and uuids that texts mention, so that a scenario need not repeat
// their prose.
func (p *play) mentioned(texts []string) []string {
	all := strings.Join(texts, "\n")
	found := map[string]bool{}
	for id, name := range p.names {
		if strings.Contains(all, id) {
			found[name] = true
		}
	}
	for name, id := range p.uuids {
		if strings.Contains(all, id) {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// checkQuiet checks that nothing is left to do.
func (p *play) checkQuiet() {
	p.t.Helper()
	if said := p.pass(true); len(said) == 0 || said[0] != "no request" {
		p.t.Errorf("a pass over a tree that is as it should be: %q", said)
	}
	before := p.look()
	p.boot()
	for _, line := range p.pass(false) {
		if method, _, _ := strings.Cut(line, " "); method == http.MethodPut || method == http.MethodPost ||
			method == http.MethodDelete {
			p.t.Errorf("a start on a tree that is as it should be: %s", line)
		}
	}
	testproc.Samef(p.t, cmp.Diff(before, p.look()), "a start on a tree that is as it should be")
}

// erring keeps the last error.
type erring struct {
	*reportclient.Client
	err error
}

func (e *erring) Apply(ctx context.Context, root string, plan reportclient.Plan) error {
	e.err = e.Client.Apply(ctx, root, plan)
	return e.err
}

// asService gives the role service to the requests for a Placement without authentication.
func asService(_ context.Context, h http.Header) error {
	h.Set("X-Auth-Token", "admin")
	h.Set("X-Roles", "admin,service")
	return nil
}
