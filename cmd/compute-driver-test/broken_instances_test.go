// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

type (
	listIs    = *driverv1.ListInstancesResponse
	spawnReq  = *driverv1.SpawnInstanceRequest
	spawnIs   = *driverv1.SpawnInstanceResponse
	destroyIs = *driverv1.DestroyInstanceRequest
	powerReq  = *driverv1.SetInstancePowerRequest
)

var _ = broken(map[string]brokenPlugin{
	"lists an instance twice": {check: "instances/list", breakage: after("List", func(_ *raw, _ any, r listIs) {
		r.Instances = append(r.Instances, &driverv1.Instance{Uuid: chance}, &driverv1.Instance{Uuid: chance})
	})},
	"has power states of its own": {check: "instances/list", breakage: after("List", func(_ *raw, _ any, r listIs) {
		r.Instances = append(r.Instances, &driverv1.Instance{Uuid: chance, PowerState: 42})
	})},
	"makes instances that do not run": {check: "instances/spawn",
		breakage: after("Spawn", func(_ *raw, _ any, r spawnIs) { r.Instance.PowerState = shutdown })},
	"does not list what it made": {check: "instances/spawn",
		breakage: after("List", func(_ *raw, _ any, r listIs) { r.Instances = nil })},
	"calls instances by other names": {check: "instances/spawn",
		breakage: after("Spawn", func(_ *raw, _ any, r spawnIs) { r.Instance.Name = "vm-1" })},
	"finds its own instance in the way": {check: "instances/spawn-again",
		breakage: around("Spawn", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			if s.has(ctx, req.(spawnReq).GetSpec().GetUuid()) {
				return nil, errors.New("there is a domain of that name")
			}
			return next()
		})},
	"starts whatever it is asked to make": {check: "instances/spawn-stopped",
		breakage: around("Spawn", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			reply, err := next()
			if err == nil {
				_, err = s.fake.SetPower(ctx, req.(spawnReq).GetNode(),
					req.(spawnReq).GetSpec().GetUuid(), plugins.PowerRunning, true)
			}
			return reply, err
		})},
	"ends its instances when it starts": {check: "instances/restart",
		breakage: around("Configure", func(s *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
			if !s.configured.Load() {
				_ = os.RemoveAll(filepath.Join(req.(configReq).GetHost().GetStateDir(), "machines"))
			}
			return next()
		})},
	"removes nothing": {check: "instances/destroy", breakage: instead("Destroy", &driverv1.DestroyInstanceResponse{})},
	"misses what it is to remove": {check: "instances/destroy-unknown",
		breakage: around("Destroy", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			if !s.has(ctx, req.(destroyIs).GetUuid()) {
				return nil, plugins.ErrInstanceNotFound
			}
			return next()
		})},
	"keeps the disks of what it removed": {check: "instances/remake", breakage: breakage{around: keepsDisks}},
	"cannot stop what is stopped": {check: "instances/power",
		breakage: around("SetPower", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			list, err := s.fake.Instances(ctx, req.(powerReq).GetNode())
			for _, i := range list {
				if i.UUID == req.(powerReq).GetUuid() &&
					driverv1.PowerState(i.Power) == req.(powerReq).GetPowerState() {
					return nil, errors.New("the domain is not running")
				}
			}
			if err != nil {
				return nil, err
			}
			return next()
		})},
	"ignores what it is to stop": {check: "instances/power",
		breakage: instead(
			"SetPower", &driverv1.SetInstancePowerResponse{Instance: &driverv1.Instance{PowerState: shutdown}})},
	"does not know what a guest does that starts": {check: "instances/power-known",
		breakage: breakage{around: statelessWhileItStarts()}},
	"lists nothing while a guest changes": {check: "instances/power-known", passes: true,
		breakage: breakage{around: failsOnceDuring()}},
	"does not say that it is the instance that is missing": {check: "instances/power-unknown",
		breakage: fails("SetPower", errors.New("no such domain"))},
	"sends all of a log": {check: "console-log/bounded",
		breakage: after("ConsoleLog", func(_ *raw, _ any, r *driverv1.ConsoleLogResponse) {
			r.Log = []byte("more than one byte")
		})},
	"shows a log to those who ask only": {check: "console-log/bounded",
		breakage: fails("ConsoleLog", errors.New("permission denied"))},
	"has a log of everything": {check: "console-log/unknown",
		breakage: instead("ConsoleLog", &driverv1.ConsoleLogResponse{})},
	"promises what it cannot make": {check: "instances/check-spawn",
		breakage: instead("CheckSpawn", &driverv1.CheckSpawnResponse{})},
	"finds the instance in the way of a check": {check: "instances/check-spawn",
		breakage: fails("CheckSpawn", &plugins.InstanceFault{Reason: "there is a domain of that name"})},
	"makes the instance that it is to check": {check: "instances/check-spawn",
		breakage: around("CheckSpawn",
			func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
				reply, err := next()
				if check := req.(*driverv1.CheckSpawnRequest); err == nil && !s.has(ctx, check.GetSpec().GetUuid()) {
					_, err = s.regardless(ctx,
						&driverv1.SpawnInstanceRequest{Node: check.GetNode(),
							Spec: check.GetSpec(), Tree: check.GetTree()})
				}
				return reply, err
			})},
	"starts the instance that it is to check": {check: "instances/check-spawn",
		breakage: around("CheckSpawn",
			func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
				if check := req.(*driverv1.CheckSpawnRequest); s.has(ctx, check.GetSpec().GetUuid()) {
					_, _ = s.fake.SetPower(ctx, check.GetNode(), check.GetSpec().GetUuid(), plugins.PowerRunning, true)
				}
				return next()
			})},
	"makes disks again that are lost": {check: "instances/restore",
		breakage: around("Restore", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			again := req.(*driverv1.RestoreInstanceRequest)
			if !s.has(ctx, again.GetSpec().GetUuid()) {
				is, err := s.fake.Spawn(ctx, again.GetNode(),
					plugins.InstanceSpec{UUID: again.GetSpec().GetUuid(), Name: again.GetSpec().GetName()}, nil)
				return &driverv1.RestoreInstanceResponse{Instance: rawInstance(is)}, err
			}
			return next()
		})},
	"cannot restore what exists": {check: "instances/restore",
		breakage: fails("Restore", &plugins.InstanceFault{Reason: "there is a domain of that name"})},
	"starts what it restores": {check: "instances/restore",
		breakage: around("Restore", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			if again := req.(*driverv1.RestoreInstanceRequest); s.has(ctx, again.GetSpec().GetUuid()) {
				_, _ = s.fake.SetPower(ctx, again.GetNode(), again.GetSpec().GetUuid(), plugins.PowerRunning, true)
			}
			return next()
		})},
	"keeps a console that is given back": {check: "console/open",
		breakage: around("Console", func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
			console, err := next()
			return struct{ kept any }{console}, err
		})},
	"has a console of everything": {check: "console/refused", breakage: instead[any]("Console", nil)},
	"makes instances of nothing": {check: "instances/unknown-provider",
		breakage: around("Spawn", func(s *raw, ctx context.Context, req any, _ func() (any, error)) (any, error) {
			return s.regardless(ctx, req.(spawnReq))
		})},
	"leaves what it refuses": {check: "instances/unknown-provider",
		breakage: around("Spawn", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			reply, err := next()
			if err != nil {
				_, _ = s.regardless(ctx, req.(spawnReq))
			}
			return reply, err
		})},
	"cannot go on with half an instance": {check: "instances/cancelled", hangs: true,
		breakage: around("Spawn", func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
			if s.has(ctx, req.(spawnReq).GetSpec().GetUuid()) {
				return nil, errors.New("there is a disk in the way")
			}
			reply, err := next()
			<-ctx.Done()
			return reply, errors.Join(err, ctx.Err())
		})},
	"leaves locks when it dies":         {check: "instances/killed", breakage: breakage{around: locksInstances}},
	"makes one instance at a time":      {check: "instances/parallel", breakage: around("Spawn", oneAtATime)},
	"makes no instance while it counts": {check: "instances/beside-pass", breakage: breakage{around: busyWithPasses}},
	"reports what is left": {check: "instances/inventory",
		breakage: after("UpdateProviderTree", func(s *raw, req updateReq, r *driverv1.UpdateProviderTreeResponse) {
			list, _ := s.fake.Instances(context.Background(), req.GetNode())
			for _, p := range r.GetTree().GetProviders() {
				if inv := p.GetInventories()["VCPU"]; inv != nil {
					inv.Total -= int64(len(list))
				}
			}
		})},
	"gets more memory while it makes an instance, as the machine does": {check: "instances/inventory",
		passes: true, breakage: growing()},
	"gets more memory while it counts, as the machine does": {check: "instances/beside-pass",
		passes: true, breakage: growing()},
	"does not count its instances among the guests": {check: "instances/guests",
		breakage: after("Guests", func(_ *raw, _ any, r *driverv1.GuestsResponse) { r.Guests = nil })},
	"tells half of what a guest has": {check: "instances/guests",
		breakage: after("Guests", func(_ *raw, _ any, r *driverv1.GuestsResponse) {
			for _, g := range r.GetGuests() {
				for _, resources := range g.GetResources().GetResources() {
					delete(resources.GetAmounts(), "VCPU")
				}
			}
		})},
	"tidies up guests of others": {
		check: "instances/others",
		config: `{` + machine +
			`, "instances": {}, "guest_list": [{"uuid": "6c6a2b6e-6d3b-4c5e-9a55-9a2c2f1f7a03"}]}`,
		breakage: breakage{around: tidiesGuests},
	},
	"watches no instances": {check: "instances/events", hangs: true,
		breakage: breakage{events: func(ctx context.Context, beat func() error, interval time.Duration) error {
			for ctx.Err() == nil {
				if err := beat(); err != nil {
					return err
				}
				time.Sleep(interval)
			}
			return nil
		}}},
	"has silent events": {check: "instances/events-alive", hangs: true,
		breakage: breakage{events: func(ctx context.Context, beat func() error, _ time.Duration) error {
			err := beat()
			<-ctx.Done()
			return err
		}}},
})

// has says whether there is an instance of the uuid on the first node.
func (r *raw) has(ctx context.Context, uuid string) bool {
	nodes, err := r.fake.AvailableNodes(ctx)
	if err != nil {
		return false
	}
	list, _ := r.fake.Instances(ctx, nodes[0].Name)
	for _, i := range list {
		if i.UUID == uuid {
			return true
		}
	}
	return false
}

// regardless makes an instance whatever was granted.
func (r *raw) regardless(ctx context.Context, req spawnReq) (any, error) {
	is, err := r.fake.Spawn(ctx, req.GetNode(),
		plugins.InstanceSpec{UUID: req.GetSpec().GetUuid(), Name: req.GetSpec().GetName()}, nil)
	return &driverv1.SpawnInstanceResponse{Instance: rawInstance(is)}, err
}

var disks sync.Map

func keepsDisks(_ *raw, _ context.Context, call string, req any, next func() (any, error)) (any, error) {
	switch call {
	case "Destroy":
		disks.Store(req.(destroyIs).GetUuid(), true)
	case "Spawn":
		if _, kept := disks.Load(req.(spawnReq).GetSpec().GetUuid()); kept {
			return nil, errors.New("there is a disk in the way")
		}
	}
	return next()
}

var lockDir atomic.Value

func locksInstances(_ *raw, _ context.Context, call string, req any, next func() (any, error)) (any, error) {
	switch call {
	case "Configure":
		lockDir.Store(req.(configReq).GetHost().GetStateDir())
	case "Spawn":
		lock := filepath.Join(lockDir.Load().(string), req.(spawnReq).GetSpec().GetUuid()+".lock")
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, errors.New("another process makes it")
		}
		_ = f.Close()
		time.Sleep(300 * time.Millisecond)
		defer func() { _ = os.Remove(lock) }()
	}
	return next()
}

var making atomic.Int32

func oneAtATime(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
	defer making.Add(-1)
	if making.Add(1) > 1 {
		return nil, errors.New("busy with another instance")
	}
	time.Sleep(300 * time.Millisecond)
	return next()
}

func busyWithPasses(_ *raw, _ context.Context, call string, _ any, next func() (any, error)) (any, error) {
	switch call {
	case "UpdateProviderTree":
		working.Add(1)
		defer working.Add(-1)
		defer time.Sleep(500 * time.Millisecond)
	case "Spawn":
		for range 500 { // until the passes have come
			if working.Load() > 0 {
				return nil, errors.New("busy with a pass")
			}
			time.Sleep(time.Millisecond)
		}
	}
	return next()
}

var tidied atomic.Bool

func tidiesGuests(_ *raw, _ context.Context, call string, _ any, next func() (any, error)) (any, error) {
	reply, err := next()
	switch call {
	case "Destroy":
		tidied.Store(true)
	case "Guests":
		if err == nil && tidied.Load() {
			reply.(*driverv1.GuestsResponse).Guests = nil
		}
	}
	return reply, err
}

// growing is a machine that gets more memory with its first instance, or with its first large tree.
func growing() breakage {
	return after("UpdateProviderTree", func(s *raw, req updateReq, r *driverv1.UpdateProviderTreeResponse) {
		// for all processes of the suite
		grown := filepath.Join(filepath.Dir(os.Getenv("PLUGIN_UNIX_SOCKET_DIR")), "grown")
		list, _ := s.fake.Instances(context.Background(), req.GetNode())
		if len(list) > 0 || len(r.GetTree().GetProviders()) > 1000 {
			_ = os.WriteFile(grown, nil, 0o600)
		}
		if _, err := os.Stat(grown); err != nil {
			return
		}
		for _, p := range r.GetTree().GetProviders() {
			if inv := p.GetInventories()["MEMORY_MB"]; inv != nil {
				inv.Total += 256
			}
		}
	})
}

// failsOnceDuring fails one list while the power of an instance is changed for the first time.
func failsOnceDuring() func(s *raw, ctx context.Context, call string, req any, next func() (any, error)) (any, error) {
	var mu sync.Mutex
	var first sync.Once
	var changing chan struct{} // nil: it is not, or a list failed
	return func(_ *raw, ctx context.Context, call string, _ any, next func() (any, error)) (any, error) {
		switch call {
		case "SetPower":
			first.Do(func() {
				failed := make(chan struct{})
				mu.Lock()
				changing = failed
				mu.Unlock()
				select {
				case <-failed:
				case <-ctx.Done():
				}
			})
		case "List":
			mu.Lock()
			defer mu.Unlock()
			if changing != nil {
				close(changing)
				changing = nil
				return nil, errors.New("the domain changes")
			}
		}
		return next()
	}
}

// statelessWhileItStarts lists instances without a state while one is started, which it is until
// there was a list.
func statelessWhileItStarts() func(s *raw, ctx context.Context, call string, req any,
	next func() (any, error)) (any, error) {
	var mu sync.Mutex
	var starting chan struct{} // nil: none is
	return func(_ *raw, ctx context.Context, call string, req any, next func() (any, error)) (any, error) {
		switch {
		case call == "SetPower" && req.(powerReq).GetPowerState() == running:
			listed := make(chan struct{})
			mu.Lock()
			starting = listed
			mu.Unlock()
			select {
			case <-listed:
			case <-ctx.Done():
			}
			return next()
		case call == "List":
			reply, err := next()
			mu.Lock()
			defer mu.Unlock()
			if starting == nil || err != nil {
				return reply, err
			}
			for _, is := range reply.(listIs).GetInstances() {
				is.PowerState = driverv1.PowerState_POWER_STATE_NOSTATE
			}
			close(starting)
			starting = nil
			return reply, err
		}
		return next()
	}
}
