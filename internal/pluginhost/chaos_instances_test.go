// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const chaoticInstance = "99999999-2222-3333-4444-555555555555"

// instanceOrders is a spec of the chaos driver, whose instances outlive it. With hasty, little time
// is left for an answer: for faults that give none, and then it does not matter if an answer that
// would have come is not awaited.
func instanceOrders(t *testing.T, stateDir string, config map[string]string, hasty bool) Spec {
	t.Helper()
	spec := orders(t, "", config)
	spec.Timeouts.Instance = 300 * time.Millisecond
	if !hasty {
		spec.Timeouts.Instance, spec.Timeouts.Update, spec.Timeouts.Health = patience/2, patience/2, patience/2
	}
	spec.Timeouts.Configure = patience / 2
	spec.HostInfo = plugins.HostInfo{StateDir: stateDir}
	return spec
}

// onCN1 is an instance, and the tree of the node that it is for.
func onCN1(t *testing.T) (plugins.InstanceSpec, *providertree.Tree) {
	t.Helper()
	tree := &providertree.Tree{}
	err := tree.AddRoot(rootUUID, "cn1")
	if err == nil {
		_, err = tree.SetInventory(rootUUID, "VCPU", providertree.Inventory{Total: 8})
	}
	testproc.Check(t, err)
	return plugins.InstanceSpec{UUID: chaoticInstance,
		Name: "web", Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 2}}}, tree
}

// TestHostSurvivesInstanceFaults: whatever a driver does in a call about instances, the call ends
// by its deadline with an error that names the cause, and another driver is served meanwhile. Once
// the faults are configured away, a repeated request is done once.
func TestHostSurvivesInstanceFaults(t *testing.T) {
	t.Parallel()
	unknown := []error{ErrOutcomeUnknown}
	for call, faults := range map[string]map[string][]error{
		"list": {
			"twice": {driverclient.ErrBadReply}, "nameless": {driverclient.ErrBadReply},
			"strange-power": {driverclient.ErrBadReply},
			"crowd":         {driverclient.ErrBadReply}, "essay": nil,
			"hang": {driverclient.ErrNoAnswer}, "late": {driverclient.ErrNoAnswer},
			"crash": {driverclient.ErrUnavailable}, "not-ready": {plugins.ErrNotReady},
			"garbage storm long-line": nil,
		},
		"spawn": {
			"other":   {driverclient.ErrBadReply, ErrOutcomeUnknown},
			"blank":   {driverclient.ErrBadReply, ErrOutcomeUnknown},
			"unheard": {driverclient.ErrBadReply, ErrOutcomeUnknown},
			"hang":    {driverclient.ErrNoAnswer, ErrOutcomeUnknown},
			"late":    {driverclient.ErrNoAnswer, ErrOutcomeUnknown}, "stop": unknown,
			"crash":           {driverclient.ErrUnavailable, ErrOutcomeUnknown},
			"exit":            {driverclient.ErrUnavailable, ErrOutcomeUnknown},
			"abort":           {driverclient.ErrUnavailable, ErrOutcomeUnknown},
			"panic-elsewhere": {driverclient.ErrUnavailable, ErrOutcomeUnknown}, "panic": unknown,
			"error": unknown, "refuse": unknown,
			"not-ready": {plugins.ErrNotReady}, "tidy-socket": nil, "grandchild": nil, "leak": nil,
			"garbage storm long-line": nil,
		},
		"destroy": {
			"hang":  {driverclient.ErrNoAnswer, ErrOutcomeUnknown},
			"crash": {driverclient.ErrUnavailable, ErrOutcomeUnknown},
			"panic": unknown, "error": unknown,
			"not-ready": {plugins.ErrNotReady}, "raw-stdout garbage print": nil,
		},
		"power": {
			"other":   {driverclient.ErrBadReply, ErrOutcomeUnknown},
			"blank":   {driverclient.ErrBadReply, ErrOutcomeUnknown},
			"unheard": {driverclient.ErrBadReply, ErrOutcomeUnknown},
			"hang":    {driverclient.ErrNoAnswer, ErrOutcomeUnknown},
			"crash":   {driverclient.ErrUnavailable, ErrOutcomeUnknown}, "panic": unknown, "storm": nil,
		},
	} {
		for fault, want := range faults {
			t.Run(call+"/"+strings.ReplaceAll(fault, " ", "+"), func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				r := newRig(t)
				other := r.mustStart(Spec{Name: "fake", Timeouts: answersLate(),
					Config: []byte(`{"nodes":[{"name":"cn1","inventories":{"VCPU":{"total":8}}}],"instances":{}}`)})
				dir := t.TempDir()
				hasty := fault == "stop" || slices.Contains(want, driverclient.ErrNoAnswer)
				spec := instanceOrders(t, dir, map[string]string{call: fault}, hasty)
				if fault != "stop" { // it answers health checks: none is to end it before the call's own limit
					spec.Timeouts.Health = patience / 2
				}
				p := r.mustStart(spec)
				err := asked(t, p, call)
				if fault == "late" && err == nil { // by a hair
					want = nil
				}
				for _, kind := range want {
					testproc.ErrorIs(t, err, kind, "want %v, got %v", kind)
				}
				if want == nil && err != nil {
					t.Error(err)
				}
				if len(want) == 1 && !errors.Is(want[0], ErrOutcomeUnknown) && errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("nothing was begun, and yet: %v", err)
				}
				testproc.NoErrorf(t, madeAndRemoved(t, other), "another driver")
				r.eventually("an instance of the driver that behaves now", func() error {
					if err := p.Reconfigure(context.Background(), instanceOrders(t, dir, nil, hasty)); err != nil {
						return err
					}
					return madeAndRemoved(t, p)
				})
				if s := other.Status(); s.Restarts != 0 || s.State != Healthy {
					t.Errorf("another driver: %+v", s)
				}
				r.log.records(t) // whatever it wrote, our log is one record a line
			})
		}
	}
}

// asked makes the call that the driver has orders for, with what must come before it.
func asked(t *testing.T, p *Plugin, call string) error {
	t.Helper()
	ctx := context.Background()
	spec, tree := onCN1(t)
	if call == "list" {
		list, err := p.Instances(ctx, "cn1")
		for _, i := range list {
			if len(i.Name) > protocol.MaxName+len("...") {
				t.Errorf("an instance has a name of %d bytes", len(i.Name))
			}
		}
		return err
	}
	_, err := p.Spawn(ctx, "cn1", spec, tree)
	switch {
	case call == "spawn" || err != nil:
	case call == "destroy":
		err = p.Destroy(ctx, "cn1", chaoticInstance)
	case call == "power":
		_, err = p.SetPower(ctx, "cn1", chaoticInstance, plugins.PowerShutdown, true)
	}
	return err
}

// madeAndRemoved asks for an instance, whether or not it is there already, and for its end.
func madeAndRemoved(t *testing.T, p *Plugin) error {
	t.Helper()
	ctx := context.Background()
	spec, tree := onCN1(t)
	if _, err := p.Spawn(ctx, "cn1", spec, tree); err != nil {
		return err
	}
	if list, err := p.Instances(ctx, "cn1"); err != nil || len(list) != 1 || list[0].UUID != chaoticInstance {
		return fmt.Errorf("after Spawn: %v, %w", list, err)
	}
	if is, err := p.SetPower(ctx, "cn1", chaoticInstance, plugins.PowerRunning, false); err != nil ||
		is.Power != plugins.PowerRunning {
		return fmt.Errorf("after SetPower: %v, %w", is, err)
	}
	if err := p.Destroy(ctx, "cn1", chaoticInstance); err != nil {
		return err
	}
	if list, err := p.Instances(ctx, "cn1"); err != nil || len(list) != 0 {
		return fmt.Errorf("after Destroy: %v, %w", list, err)
	}
	return nil
}

// TestHostSurvivesFaultyInstanceEvents: each event that arrives is about one instance or about all,
// and calls are answered meanwhile.
func TestHostSurvivesFaultyInstanceEvents(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"storm", "garbled",
		"hang", "late", "crash", "error", "panic", "garbled storm hang"} {
		t.Run(strings.ReplaceAll(fault, " ", "+"), func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			r := newRig(t)
			dir := t.TempDir()
			var mu sync.Mutex
			var wrong []string
			alive := make(chan struct{}, 1)
			spec := instanceOrders(t, dir, map[string]string{"events": fault}, true)
			spec.InstanceChanged = func(node, uuid string) {
				mu.Lock()
				defer mu.Unlock()
				if canonical, err := providertree.CanonicalUUID(uuid); uuid != "" &&
					(err != nil || canonical != uuid) || node != "" && node != "cn1" {
					wrong = append(wrong, fmt.Sprintf("%.100q of node %.100q", uuid, node))
				}
				select {
				case alive <- struct{}{}:
				default:
				}
			}
			p := r.mustStart(spec)
			<-alive
			r.eventually("an instance of the driver that behaves now", func() error {
				behaves := instanceOrders(t, dir, nil, true)
				behaves.InstanceChanged = spec.InstanceChanged
				if err := p.Reconfigure(context.Background(), behaves); err != nil {
					return err
				}
				return madeAndRemoved(t, p)
			})
			mu.Lock()
			defer mu.Unlock()
			if len(wrong) > 0 {
				t.Errorf("received %d invalid events, such as %s", len(wrong), wrong[0])
			}
			r.log.records(t)
		})
	}
}
