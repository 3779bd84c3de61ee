// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// formerRelease is the fake driver as another program, which stands for its last release.
func formerRelease(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "compute-driver-former")
	testproc.Check(t, testproc.WriteExecutable(name, []byte("#!/bin/sh\nexec '"+fakePath+"'\n")))
	return name
}

// outcomes runs checks and returns their results by ID.
func outcomes(t *testing.T, opts drivertest.Options, run string) map[string]drivertest.Result {
	t.Helper()
	opts.Select = regexp.MustCompile(run)
	report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
	out := map[string]drivertest.Result{}
	for _, r := range report.Results {
		out[r.ID] = r
	}
	return out
}

// TestReshapeFromFormerRelease: the tree to reshape is the one that the last release's program
// makes.
func TestReshapeFromFormerRelease(t *testing.T) {
	t.Parallel()
	opts := drivertest.Options{
		Path: fakePath, Config: json.RawMessage(layoutConfig("numa")), Former: json.RawMessage(layoutConfig("flat")),
		FormerPath: formerRelease(t),
		Instances:  &drivertest.InstanceTemplate{},
	}
	for id, r := range outcomes(t, opts, "^(reshape|layouts)/") {
		if r.Outcome == drivertest.Failed || strings.HasPrefix(id, "reshape/") && r.Outcome != drivertest.Passed {
			t.Errorf("%s: %s %s\n%s", id, r.Outcome, r.Why, r.Explain())
		}
	}
	opts.Config = json.RawMessage(withFault("lose"))
	if r := outcomes(t, opts, "^reshape/conserves$")["reshape/conserves"]; r.Outcome != drivertest.Failed ||
		!strings.Contains(r.Sent, "the tree of the former release") {
		t.Errorf("%+v", r)
	}
}

// TestUpgradeWithoutReshape: most releases need none. What becomes of the former release's tree is
// compared all the same.
func TestUpgradeWithoutReshape(t *testing.T) {
	t.Parallel()
	opts := drivertest.Options{Path: fakePath, Config: json.RawMessage(layoutConfig("numa")),
		FormerPath: formerRelease(t)}
	got := outcomes(t, opts, "^reshape/")
	if r := got["reshape/complete"]; r.Outcome != drivertest.Passed {
		t.Errorf("complete: %s\n%s", r.Outcome, r.Explain())
	}
	if r := got["reshape/needed"]; r.Outcome != drivertest.NotRun || !strings.Contains(r.Why, "needs no reshape") {
		t.Errorf("needed: %s %s", r.Outcome, r.Why)
	}
	opts.Former = json.RawMessage(strings.Replace(layoutConfig("numa"), "HW_CPU_X86_AVX2", "HW_CPU_X86_AVX", 1))
	if r := outcomes(t, opts, "^reshape/")["reshape/complete"]; r.Outcome != drivertest.Failed ||
		!strings.Contains(r.Came, "cn1: trait HW_CPU_X86_AVX added") {
		t.Errorf("a trait of the former release is left behind: %s\n%s", r.Outcome, r.Explain())
	}
}

// shapesOnly announces layout versions by the name that plugins of releases up to 0.2.0 know.
const shapesOnly = "announces shapes"

func announcesShapes() breakage {
	former := slices.Clone(allCapabilities)
	former[slices.Index(former, protocol.CapabilityLayouts)] = "shapes"
	return breakage{capabilities: former}
}

// TestPluginThatAnnouncesShapesHasLayouts: the checks of layouts apply to it, by the names that
// they had then too.
func TestPluginThatAnnouncesShapesHasLayouts(t *testing.T) {
	t.Parallel()
	opts := alone[shapesOnly].options(writeScript(t), shapesOnly)
	opts.Limits = patient
	got := outcomes(t, opts, "^shapes/")
	testproc.Equal(t, len(got), 5, "%d checks are selected")
	for _, id := range []string{"layouts/version", "layouts/present", "layouts/empty",
		"layouts/bounds", "layouts/steps"} {
		if r := got[id]; r.Outcome != drivertest.Passed {
			t.Errorf("%s: %s %s\n%s", id, r.Outcome, r.Why, r.Explain())
		}
	}
}

// TestUnusableFormerReleaseIsAnError: what is wrong with --former is not the driver's fault.
func TestUnusableFormerReleaseIsAnError(t *testing.T) {
	t.Parallel()
	release := formerRelease(t)
	for name, c := range map[string]struct {
		opts drivertest.Options
		want string
	}{
		"the same program": {drivertest.Options{FormerPath: fakePath}, "is the same program as"},
		"no file":          {drivertest.Options{FormerPath: "/nonexistent/driver"}, "cannot be read"},
		"no plugin":        {drivertest.Options{FormerPath: "/bin/true"}, "does not start"},
		"another driver": {drivertest.Options{FormerPath: writeScript(t), Env: map[string]string{brokenKey: ""}},
			`is the driver "raw"`},
		"another protocol": {drivertest.Options{FormerPath: otherProtocol(t)}, "incompatible plugin"},
		"no node": {drivertest.Options{FormerPath: release,
			Former: json.RawMessage(`{"nodes": [{"name": "cn2"}]}`)},
			`has no node "drivertest-host": its nodes are "cn2"`},
		"a refused config": {drivertest.Options{FormerPath: release, Former: json.RawMessage(`{"gpus": -1}`)},
			"rejects its configuration: ConfigError: gpus"},
		"a node not ready": {drivertest.Options{FormerPath: release,
			Former: json.RawMessage(`{"not_ready": "no daemon"}`)}, "no daemon"},
		"of a later release": {drivertest.Options{FormerPath: release, Config: json.RawMessage(numbered(1)),
			Former: json.RawMessage(numbered(4))}, "has layout version 4, which is newer than version 1"},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.Path = fakePath
			_, err := drivertest.Execute(t.Context(), c.opts)
			var wrong *drivertest.FormerError
			if !errors.As(err, &wrong) || wrong.Path != c.opts.FormerPath || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q: %v", c.want, err)
			}
		})
	}
}

func otherProtocol(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "compute-driver-old")
	testproc.Check(t, testproc.WriteExecutable(name, []byte("#!/bin/sh\necho '1|99|unix|/nowhere|grpc|'\nsleep 300\n")))
	return name
}

// neverOnTheRoot is a correct driver that has had some classes on children since its first release,
// and leaves inventory of them that another client put on the root, with its allocations.
func neverOnTheRoot(classes ...string) breakage {
	return around("UpdateProviderTree",
		func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
			r := req.(updateReq)
			if len(r.GetTree().GetProviders()) == 0 {
				return next()
			}
			root := r.GetTree().GetProviders()[0]
			kept := map[string]*driverv1.Inventory{}
			held := providertree.ProviderResources{}
			for _, class := range classes {
				if inv := root.GetInventories()[class]; inv != nil {
					kept[class] = inv
					delete(root.Inventories, class)
				}
				for id, c := range r.GetAllocations().GetConsumers() {
					if n := c.GetResources()[root.GetUuid()].GetAmounts()[class]; n > 0 && kept[class] != nil {
						if held[id] == nil {
							held[id] = map[string]int64{}
						}
						held[id][class] = n
						delete(c.GetResources()[root.GetUuid()].Amounts, class)
					}
				}
			}
			reply, err := next()
			if err != nil {
				return nil, err
			}
			out := reply.(updated)
			for _, p := range out.GetTree().GetProviders() {
				if p.GetUuid() == root.GetUuid() {
					for class, inv := range kept {
						p.Inventories[class] = inv
					}
				}
			}
			for id, amounts := range held {
				c := out.GetAllocations().GetConsumers()[id]
				if c.Resources[root.GetUuid()] == nil {
					c.Resources[root.GetUuid()] = &driverv1.Resources{Amounts: map[string]int64{}}
				}
				for class, n := range amounts {
					c.Resources[root.GetUuid()].Amounts[class] = n
				}
			}
			return out, nil
		})
}

const movesNone = "refuses to reshape any consumer"

// refusesAll names every consumer as one that does not fit, and moves none.
var refusesAll = around("UpdateProviderTree",
	func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
		all := req.(updateReq).GetAllocations().GetConsumers()
		if len(all) == 0 {
			return next()
		}
		f := protocol.Failure{Kind: protocol.KindReshapeFailed, Words: "no capacity"}
		for id := range all {
			f.Violations = append(f.Violations, protocol.Violation{Consumer: id, Problem: "does not fit"})
		}
		return nil, f.Err()
	})

// TestRefusalOfAllIsNoPass: a driver that refuses each reshape with consumers may be
// right, because the suite made them up. Then nothing is known about how it moves them: no check
// of that passes. Guests that it lists it has to move.
func TestRefusalOfAllIsNoPass(t *testing.T) {
	t.Parallel()
	for config, guests := range map[string]drivertest.Outcome{layoutConfig("numa"): drivertest.NotRun,
		boundGuests: drivertest.Failed} {
		b := alone[movesNone]
		b.config = config
		opts := b.options(writeScript(t), movesNone)
		opts.Limits, opts.Instances = patient, nil
		got := outcomes(t, opts,
			"^reshape/(done|consumers|conserves|owners|housed|capacity|spread|too-full|repeatable|guests)$")
		if len(got) != 10 {
			t.Fatalf("%d checks", len(got))
		}
		for id, r := range got {
			want := drivertest.NotRun
			if id == "reshape/guests" {
				want = guests
			}
			if r.Outcome != want {
				t.Errorf("%s: %s, want %s: %s\n%s", id, r.Outcome, want, r.Why, r.Explain())
			}
		}
	}
}

// alone are plugins that have a test of their own.
var alone = map[string]brokenPlugin{
	"never had processors on the root": {breakage: neverOnTheRoot("VCPU", "MEMORY_MB")},
	movesNone:                          {former: layoutConfig("flat"), breakage: refusesAll},
	changesModes:                       {breakage: chmods},
	shapesOnly:                         {config: numbered(4), former: numbered(1), breakage: announcesShapes()},
	"starts a daemon with an environment of its own": {breakage: starts((*exec.Cmd).Run, &exec.Cmd{
		// The substitution ends once the daemon has a session of its own: before that it would be
		// killed with the group.
		Path: "/bin/sh", Args: []string{"sh", "-c", ": $(setsid sh -c 'sleep 30 </dev/null >/dev/null 2>&1 &')"},
		Env: []string{"PATH=/usr/bin:/bin"},
	})},
}

// TestCorrectDriverWithAnotherPast: a former tree that the suite made up is not held against a
// driver that never made such a one.
func TestCorrectDriverWithAnotherPast(t *testing.T) {
	t.Parallel()
	const name = "never had processors on the root"
	opts := alone[name].options(writeScript(t), name)
	opts.Limits = patient
	opts.Select = regexp.MustCompile("^(tree|reshape|layouts|abilities)/") // what asks for the past
	report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
	for _, r := range report.Results {
		if r.Outcome == drivertest.Failed {
			t.Errorf("%s\n%s", r.ID, r.Explain())
		}
	}
	for _, id := range []string{"reshape/complete", "reshape/spread", "reshape/conserves"} {
		if !slices.ContainsFunc(report.Results,
			func(r drivertest.Result) bool { return r.ID == id && r.Outcome == drivertest.Passed }) {
			t.Errorf("%s did not apply", id)
		}
	}
}
