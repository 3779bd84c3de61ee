// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Names of providers, as Nova and the driver give them.
const (
	gpu0, gpu1   = hostName + "_pci_0000_05_00_0", hostName + "_pci_0000_82_00_0"
	cell0, cell1 = hostName + "_numa_0", hostName + "_numa_1"
)

// teller tells the story: it types commands, shows what they say, and stops at the first thing that
// is not as it should be.
type teller struct {
	*world
	*stage
	err error
	// running is what virsh says of the guests at the beginning, flat the tree and held the
	// allocations before there were NUMA cells in it.
	running, flat string
	held          holdings
}

// tell runs the demonstration. An error says what was not as described.
func tell(ctx context.Context, w *world, s *stage) error {
	t := &teller{world: w, stage: s}
	for _, chapter := range []func(context.Context){t.asNovaLeftIt, t.newDriver, t.cells, t.request, t.back} {
		chapter(ctx)
		if t.err != nil {
			return t.err
		}
	}
	return s.err
}

// asNovaLeftIt begins with everything on one provider.
func (t *teller) asNovaLeftIt(ctx context.Context) {
	t.chapter(ctx, "A GPU host, as nova-compute left it",
		`cn1 has two sockets, each with 8 CPUs, 16 GiB and a GPU that makes up to 8 virtual ones. Its /sys is made up; libvirtd and the guests
		that run on it are real. Three of them have a virtual GPU, and the end of its name says of which GPU.`)
	t.running = t.types(ctx, "virsh list")
	t.types(ctx, "virsh nodedev-list --cap mdev")
	t.say(`Placement is compute-agent's own (OpenStack's would do as well). All that it knows is what nova-compute told it in its early days:
		the host has 16 VGPU, and three guests have one each, whichever it may be.`)
	t.try(func() (err error) {
		if t.placement, err = t.serve(ctx, "compute-agent placement serve"); err != nil {
			return err
		}
		if err := writeAsNova(ctx); err != nil {
			return err
		}
		inventory, err := readInventory(ctx)
		if err != nil {
			return err
		}
		t.asks("/resource_providers/"+rootUUID+"/inventories", hostName+": "+inventory)
		return nil
	})
	t.allocations(ctx)
}

// newDriver has the VGPU move to the GPUs that make them.
func (t *teller) newDriver(ctx context.Context) {
	t.chapter(ctx, "compute-agent takes over",
		`The agent gets the identity that nova-compute gave the host. Its libvirt driver has one resource provider for each GPU, so what is
		allocated has to move: a reshape. Which guest has its VGPU of which GPU is known to libvirt. What is going to happen can be seen before:`)
	t.try(func() error {
		if err := os.WriteFile(filepath.Join(home, "state", "compute_id"), []byte(rootUUID+"\n"), 0o600); err != nil {
			return err
		}
		return t.configure()
	})
	t.types(ctx, "head -3 "+configFile)
	t.types(ctx, "compute-agent plan --reshape --config "+configFile)
	t.say("Nothing has been written so far. The move takes place when the agent starts:")
	t.starts(ctx)
	t.flat = t.types(ctx, "compute-agent tree")
	t.held = t.allocations(ctx)
	t.checks(func() error {
		return errors.Join(t.held.complete(), t.held.at(gpu0, "VGPU", "render"), t.held.at(gpu1, "VGPU", "train", "infer"))
	}, "Each guest holds what it held, and its VGPU of the GPU that it has.")
}

// cells has processors and memory move to NUMA cells.
func (t *teller) cells(ctx context.Context) {
	t.chapter(ctx, "NUMA cells",
		`One word in the configuration, and a restart of the agent: processors and memory are told by NUMA cell, and each GPU is below the cell
		that it is plugged into. Guests that are pinned go to their cell; web is not pinned, and goes where most room is.`)
	t.stops(ctx)
	t.types(ctx, `sed -i 's/numa = "flat"/numa = "nested"/' `+configFile)
	t.starts(ctx)
	t.types(ctx, "compute-agent tree")
	held := t.allocations(ctx)
	t.checks(func() error {
		return errors.Join(held.complete(), held.at(gpu0, "VGPU", "render"), held.at(gpu1, "VGPU", "train", "infer"),
			held.at(cell0, "VCPU", "render"), held.at(cell0, "MEMORY_MB", "render"), held.at(cell1, "VCPU", "train", "infer"), held.at(cell1, "MEMORY_MB", "train", "infer"))
	}, "Each guest holds what it held, of the NUMA cell to which it is pinned.")
}

// request asks for what no flat tree can promise.
func (t *teller) request(ctx context.Context) {
	const query = "resources_vm=VCPU:4,MEMORY_MB:4096&resources_gpu=VGPU:1&group_policy=none"
	t.chapter(ctx, "A guest with its processors, memory and GPU in one cell",
		"Asked for 4 VCPU, 4 GiB and a VGPU, Placement may take the processors from one socket and the GPU from the other:")
	apart := t.candidates(ctx, query)
	t.say("With same_subtree it may not. Both answers left have everything below one NUMA cell:")
	together := t.candidates(ctx, query+"&same_subtree=_vm,_gpu")
	t.checks(func() error {
		vm, gpu := map[string]int64{"VCPU": 4, "MEMORY_MB": 4096}, map[string]int64{"VGPU": 1}
		want := []candidate{{cell0: vm, gpu0: gpu}, {cell1: vm, gpu1: gpu}}
		if len(apart) != 4 || !reflect.DeepEqual(together, want) {
			return fmt.Errorf("of %d candidates these are left: %v", len(apart), together)
		}
		return nil
	}, "Two of four candidates are left, one in each cell.")
}

// back takes the second reshape back.
func (t *teller) back(ctx context.Context) {
	t.chapter(ctx, "And back",
		`Every reshape is in a journal, with what was there before. As long as nobody has written to the same providers since, it can be taken
		back. The agent is stopped and its configuration put back first, or its next start would do it again.`)
	t.stops(ctx)
	t.types(ctx, `sed -i 's/numa = "nested"/numa = "flat"/' `+configFile)
	t.types(ctx, "compute-agent reshape history")
	t.types(ctx, "compute-agent reshape undo 2")
	held := t.allocations(ctx)
	t.checks(func() error {
		if !reflect.DeepEqual(held, t.held) {
			return errors.New("the allocations are not what they were")
		}
		return held.complete()
	}, "The allocations are, each of them, what they were before.")
	t.say("What is left of the cells has no inventory. The agent, started again, clears it away:")
	t.starts(ctx)
	tree := t.types(ctx, "compute-agent tree")
	t.checks(func() error {
		if withoutGenerations(tree) != withoutGenerations(t.flat) {
			return errors.New("the tree is not what it was")
		}
		return nil
	}, "The tree is what it was, but for the generations.")
	running := t.types(ctx, "virsh list")
	t.checks(func() error {
		if running != t.running {
			return errors.New("other guests run than at the beginning")
		}
		return nil
	}, "All the time the guests ran on.")
}

func withoutGenerations(tree string) string {
	return regexp.MustCompile(`generation \d+`).ReplaceAllString(tree, "")
}

// try does something unless an earlier step failed or the user ended the demonstration.
func (t *teller) try(f func() error) {
	if t.err == nil {
		t.err = t.stage.err
	}
	if t.err == nil {
		t.err = f()
	}
}

// chapter begins one.
func (t *teller) chapter(ctx context.Context, title, words string) {
	t.try(func() error { return t.open(ctx, title, words) })
}

// say prints a paragraph between the commands.
func (t *teller) say(words string) {
	if t.err == nil {
		t.print("\n")
		t.stage.say(words)
	}
}

// types runs a command that must succeed, shows it and what it says, and returns that.
func (t *teller) types(ctx context.Context, line string) (out string) {
	t.try(func() error {
		var err error
		if out, err = t.typed(ctx, line); err == nil {
			t.show(line, out)
		}
		return err
	})
	return out
}

// checks looks whether something is so, and says that it is.
func (t *teller) checks(f func() error, words string) {
	t.try(func() error {
		if err := f(); err != nil {
			return fmt.Errorf("it is not so that: %s %w", words, err)
		}
		t.found(words)
		return nil
	})
}

// starts starts the agent, shows what it says of its writing, and checks that all is well with it.
func (t *teller) starts(ctx context.Context) {
	line := "compute-agent run --config " + configFile
	t.try(func() (err error) {
		if t.agent, err = t.serve(ctx, line); err != nil {
			return err
		}
		told := t.agent.log.String()
		t.show(line+" &", doings(told))
		if _, err = t.typed(ctx, "compute-agent status"); err != nil {
			err = fmt.Errorf("all is not well with the agent: %w\n%s", err, told)
		}
		return err
	})
}

// stops ends the agent in good order.
func (t *teller) stops(ctx context.Context) {
	t.try(func() error {
		agent := t.agent
		t.agent = nil
		return agent.stop(ctx)
	})
}

// doings are the lines of the agent's log about its writes to Placement, and why it wrote, without
// their fields. What the driver doubts depends on this machine's processor.
func doings(log string) string {
	fields := regexp.MustCompile(` [a-z_]+=.*`)
	var b strings.Builder
	for line := range strings.Lines(log) {
		if strings.Contains(line, " WRN Doubt about the host") {
			continue
		}
		for _, of := range []string{"shape", "Placement was told", "is allocated", " WRN ", " ERR "} {
			if strings.Contains(line, of) {
				b.WriteString(fields.ReplaceAllString(strings.TrimSpace(line), " …") + "\n")
				break
			}
		}
	}
	return b.String()
}

// allocations shows what each consumer holds.
func (t *teller) allocations(ctx context.Context) (h holdings) {
	t.try(func() (err error) {
		if h, err = readHoldings(ctx); err != nil {
			return err
		}
		t.asks("/allocations/{guest}, for each guest", h.String())
		return h.complete()
	})
	return h
}

// candidates shows what Placement answers to a request.
func (t *teller) candidates(ctx context.Context, query string) (found []candidate) {
	t.try(func() (err error) {
		if found, err = findCandidates(ctx, query); err != nil {
			return err
		}
		var lines strings.Builder
		for i, c := range found {
			fmt.Fprintf(&lines, "%d  %s\n", i+1, c)
		}
		t.asks("/allocation_candidates?"+query, lines.String())
		return nil
	})
	return slices.Clip(found)
}
