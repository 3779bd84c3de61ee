// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

type (
	updateReq = *driverv1.UpdateProviderTreeRequest
	updated   = *driverv1.UpdateProviderTreeResponse
	provider  = *driverv1.ResourceProvider
)

// edits changes the tree of every response.
func edits(change func(given, tree *driverv1.ProviderTree)) breakage {
	return after("UpdateProviderTree", func(_ *raw, req updateReq, r updated) { change(req.GetTree(), r.Tree) })
}

// editsRoot changes the root of every response.
func editsRoot(change func(p provider)) breakage {
	return edits(func(_, tree *driverv1.ProviderTree) { change(tree.Providers[0]) })
}

// known calls change for every provider that was in the request too.
func known(change func(was, is provider)) breakage {
	return edits(func(given, tree *driverv1.ProviderTree) {
		for _, is := range tree.GetProviders() {
			for _, was := range given.GetProviders() {
				if was.GetUuid() == is.GetUuid() && len(given.GetProviders()) > 1 {
					change(was, is)
				}
			}
		}
	})
}

// drops removes providers from every response.
func drops(which func(p provider) bool) breakage {
	return edits(func(_, tree *driverv1.ProviderTree) { tree.Providers = slices.DeleteFunc(tree.Providers, which) })
}

func called(suffix string) func(provider) bool {
	return func(p provider) bool { return strings.HasSuffix(p.GetName(), suffix) }
}

var _ = broken(map[string]brokenPlugin{
	"makes no tree": {check: "tree/answers",
		breakage: fails("UpdateProviderTree", protocol.Failure{Kind: protocol.KindNotReady, Words: "soon"}.Err())},
	"reports nothing": {check: "tree/inventory", breakage: edits(func(_, tree *driverv1.ProviderTree) {
		tree.Providers = tree.Providers[:1]
		tree.Providers[0].Inventories = nil
	})},
	"lists children first": {check: "tree/order",
		breakage: edits(func(_, tree *driverv1.ProviderTree) { slices.Reverse(tree.Providers) })},
	"has two of a name": {check: "tree/unique",
		breakage: edits(func(_, tree *driverv1.ProviderTree) { tree.Providers[2].Name = tree.Providers[1].Name })},
	"reserves more than all": {check: "tree/inventories",
		breakage: editsRoot(func(p provider) { p.Inventories["DISK_GB"].Reserved = 101 })},
	"has a class without a name": {check: "tree/inventories",
		breakage: editsRoot(func(p provider) { p.Inventories["CUSTOM_"] = &driverv1.Inventory{Total: 1} })},
	"has a lower case trait": {check: "tree/traits",
		breakage: editsRoot(func(p provider) { p.Traits = append(p.Traits, "hw_fast") })},
	"has a trait twice": {check: "tree/traits",
		breakage: editsRoot(func(p provider) { p.Traits = append(p.Traits, p.Traits...) })},
	"has an aggregate of a name": {check: "tree/traits",
		breakage: editsRoot(func(p provider) { p.Aggregates = append(p.Aggregates, "rack-1") })},
	"has a negative generation": {check: "tree/well-formed",
		breakage: editsRoot(func(p provider) { p.Generation = new(int64); *p.Generation = -5 })},
	"counts generations": {check: "tree/generations", breakage: editsRoot(func(p provider) { *p.Generation++ })},
	"renames the root":   {check: "tree/root", breakage: editsRoot(func(p provider) { p.Name = "localhost" })},
	"makes a second root": {check: "tree/root", breakage: edits(func(_, tree *driverv1.ProviderTree) {
		tree.Providers = append(tree.Providers, &driverv1.ResourceProvider{Uuid: chance, Name: "cn1-storage"})
	})},
	"calls a GPU gpu_0": {check: "tree/child-names", breakage: edits(func(_, tree *driverv1.ProviderTree) {
		tree.Providers[1].Name = "gpu_0"
	})},
	"answers differently each time": {check: "tree/same-input",
		breakage: editsRoot(func(p provider) { p.Inventories["DISK_GB"].Total += counter.Add(1) })},
	"adds to what it finds": {check: "tree/idempotent", breakage: known(func(was, is provider) {
		is.Inventories["DISK_GB"] = &driverv1.Inventory{Total: was.GetInventories()["DISK_GB"].GetTotal() + 1}
	})},
	"has random child uuids": {check: "tree/restart", breakage: edits(chanceChildren)},
	"ignores existing children": {check: "tree/adopts",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				tree := req.(updateReq).GetTree()
				tree.Providers = slices.DeleteFunc(tree.Providers,
					func(p provider) bool { return p.GetParentUuid() != "" })
				return next()
			})},
	"has every node": {check: "tree/unknown-node",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				reply, err := next()
				if err != nil {
					tree := req.(updateReq).GetTree()
					tree.Providers[0].Inventories = map[string]*driverv1.Inventory{"VCPU": {Total: 4}}
					return &driverv1.UpdateProviderTreeResponse{Tree: tree}, nil
				}
				return reply, err
			})},
	"answers allocations unasked": {check: "tree/no-allocations",
		breakage: after("UpdateProviderTree",
			func(_ *raw, _ updateReq, r updated) { r.Allocations = &driverv1.Allocations{} })},
	"forgets projects": {check: "tree/allocations-back", breakage: after("UpdateProviderTree", noProjects)},
	"takes none for nil": {check: "tree/allocations-back",
		breakage: after("UpdateProviderTree", func(_ *raw, _ updateReq, r updated) {
			if len(r.GetAllocations().GetConsumers()) == 0 {
				r.Allocations = nil
			}
		})},

	"removes external children": {check: "foreign/provider", breakage: drops(called(externalName))},
	"removes nested external children": {check: "foreign/nested-provider",
		breakage: drops(called(externalName + "-nested"))},
	"removes sharing providers": {check: "foreign/sharing-provider", breakage: drops(called("storage"))},
	"replaces inventories": {check: "foreign/inventory",
		breakage: editsRoot(func(p provider) { delete(p.Inventories, externalClass) })},
	"replaces traits": {check: "foreign/trait",
		breakage: editsRoot(func(p provider) { p.Traits = []string{"HW_CPU_X86_AVX2"} })},
	"replaces aggregates": {check: "foreign/aggregate",
		breakage: editsRoot(func(p provider) { p.Aggregates = nil })},
	"calls itself COMPUTE_NODE": {check: "foreign/agent-traits",
		breakage: editsRoot(func(p provider) { p.Traits = append(p.Traits, "COMPUTE_NODE") })},
	"enables its node": {check: "foreign/agent-traits", breakage: editsRoot(func(p provider) {
		p.Traits = slices.DeleteFunc(p.Traits, func(t string) bool { return t == "COMPUTE_STATUS_DISABLED" })
	})},
	"leaves amounts as they are": {check: "repair/amount",
		breakage: known(func(was, is provider) { is.Inventories = was.GetInventories() })},
	"leaves out what is missing": {check: "repair/inventory",
		breakage: known(func(was, is provider) { is.Inventories = was.GetInventories() })},
	"sets traits once": {check: "repair/trait",
		breakage: known(func(was, is provider) { is.Traits = was.GetTraits() })},
	"makes providers once": {check: "repair/provider", breakage: edits(func(given, tree *driverv1.ProviderTree) {
		if len(given.GetProviders()) > 1 {
			tree.Providers = tree.Providers[:len(given.GetProviders())]
		}
	})},

	"does not survive cancellation": {check: "load/cancelled", hangs: true,
		breakage: around("UpdateProviderTree", stuckOnce(
			func(ctx context.Context, req updateReq) bool { return len(req.GetTree().GetProviders()) > 1000 }))},
	"does not survive a deadline": {check: "load/deadline", hangs: true,
		breakage: around("UpdateProviderTree", stuckOnce(func(ctx context.Context, _ updateReq) bool {
			end, ok := ctx.Deadline()
			return ok && time.Until(end) < time.Second // other calls have two
		}))},
	"does one thing at a time": {check: "load/parallel",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				defer working.Add(-1)
				if working.Add(1) > 1 {
					return nil, status.Error(codes.Aborted, "busy")
				}
				time.Sleep(50 * time.Millisecond)
				return next()
			})},
	"has a limit of providers": {check: "load/many-providers",
		breakage: edits(
			func(_, tree *driverv1.ProviderTree) { tree.Providers = tree.Providers[:min(5000, len(tree.Providers))] })},
	"has gRPC's usual limits": {check: "load/large-message", breakage: breakage{smallMessages: true}},
	"has a page of consumers": {check: "load/many-consumers",
		breakage: after("UpdateProviderTree", func(_ *raw, _ updateReq, r updated) {
			for _, id := range slices.Sorted(
				maps.Keys(r.GetAllocations().GetConsumers()))[min(1000, len(r.GetAllocations().GetConsumers())):] {
				delete(r.Allocations.Consumers, id)
			}
		})},
	"dies of no tree": {check: "load/malformed",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
				if req.(updateReq).GetTree() == nil {
					os.Exit(3)
				}
				return next()
			})},
	"leaks descriptors": {check: "load/descriptors",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				f, err := os.Open(os.DevNull)
				leaked = append(leaked, f)
				if err != nil {
					return nil, err
				}
				return next()
			})},
	"leaks threads": {check: "load/threads",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				go func() {
					runtime.LockOSThread()
					select {}
				}()
				return next()
			})},
	"leaks memory": {check: "load/memory",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				kept = append(kept, bytes.Repeat([]byte{1}, 400<<10))
				return next()
			})},
	"leaves a helper in a session of its own": {check: "shutdown/strays",
		breakage: starts((*exec.Cmd).Start,
			&exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "30"},
				SysProcAttr: &syscall.SysProcAttr{Setsid: true}})},
	"leaks processes": {check: "load/processes",
		breakage: around("UpdateProviderTree",
			func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
				if err := exec.Command("sleep", "600").Start(); err != nil {
					return nil, err
				}
				return next()
			})},
})

var (
	leaked []*os.File
	kept   [][]byte
)

// starts starts a command, by (*exec.Cmd).Start or Run, when the driver is configured.
func starts(run func(*exec.Cmd) error, cmd *exec.Cmd) breakage {
	return around("Configure", func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
		mine := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, SysProcAttr: cmd.SysProcAttr}
		if err := run(mine); err != nil {
			return nil, err
		}
		return next()
	})
}

func noProjects(_ *raw, _ updateReq, r updated) {
	for _, c := range r.GetAllocations().GetConsumers() {
		c.ProjectId = ""
	}
}

// chanceChildren gives new children a uuid that differs in each process.
func chanceChildren(given, tree *driverv1.ProviderTree) {
	ids := map[string]string{}
	for _, p := range tree.GetProviders() {
		if !slices.ContainsFunc(given.GetProviders(), func(was provider) bool { return was.GetUuid() == p.GetUuid() }) {
			ids[p.GetUuid()] = uuid.NewSHA1(uuid.MustParse(chance), []byte(p.GetUuid())).String()
			p.Uuid = ids[p.GetUuid()]
		}
		if id, ok := ids[p.GetParentUuid()]; ok {
			p.ParentUuid = id
		}
	}
}

// stuckOnce hangs forever after a call ended early.
func stuckOnce(
	trap func(context.Context, updateReq) bool,
) func(*raw, context.Context, any, func() (any, error)) (any, error) {
	stuck := make(chan struct{})
	return func(_ *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
		if trap(ctx, req.(updateReq)) {
			select {
			case <-stuck:
			default:
				close(stuck)
			}
		}
		select {
		case <-stuck:
			<-ctx.Done()
			return nil, fmt.Errorf("a lock was not given back: %w", ctx.Err())
		default:
			return next()
		}
	}
}
