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
	for _, chapter := range []func(context.Context){t.asNovaLeftIt, t.newDriver, t.cells,
		t.request, t.back, t.servers} {
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
		`cn1 has two sockets, each with 8 CPUs, 16 GiB and a GPU for up to 8 virtual GPUs. Its /sys is made up; libvirtd and the guests
		are real. Three guests have a virtual GPU; the end of its name is the address of the GPU.`)
	t.running = t.types(ctx, "virsh list")
	t.types(ctx, "virsh nodedev-list --cap mdev")
	t.say(`Placement is compute-agent's own (OpenStack's works as well). It has only what an early nova-compute wrote:
		the host has 16 VGPU, and three guests have one each, of any GPU.`)
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
		`The agent gets the identity that nova-compute gave the host. Its libvirt driver reports one resource provider for each GPU, so the
		allocations have to move: a reshape. libvirt knows which guest uses which GPU. A plan shows what the agent is going to write:`)
	t.try(func() error {
		if err := os.WriteFile(filepath.Join(home, "state", "compute_id"), []byte(rootUUID+"\n"), 0o600); err != nil {
			return err
		}
		return t.configure()
	})
	t.types(ctx, "head -3 "+configFile)
	t.types(ctx, "compute-agent plan --reshape --config "+configFile)
	t.say("So far nothing is written. The allocations move when the agent starts:")
	t.starts(ctx, doings)
	t.flat = t.types(ctx, "compute-agent tree")
	t.held = t.allocations(ctx)
	t.checks(func() error {
		return errors.Join(t.held.complete(), t.held.at(gpu0, "VGPU", "render"),
			t.held.at(gpu1, "VGPU", "train", "infer"))
	}, "Each guest holds what it held, and its VGPU on the GPU that it uses.")
}

// cells has processors and memory move to NUMA cells.
func (t *teller) cells(ctx context.Context) {
	t.chapter(ctx, "NUMA cells",
		`One word in the configuration, and a restart of the agent: processors and memory are reported for each NUMA cell, and each GPU is below
		its cell. Pinned guests move to their cell; web is not pinned, and moves to the cell with most free capacity.`)
	t.stops(ctx)
	t.types(ctx, `sed -i 's/numa = "flat"/numa = "nested"/' `+configFile)
	t.starts(ctx, doings)
	t.types(ctx, "compute-agent tree")
	held := t.allocations(ctx)
	t.checks(func() error {
		return errors.Join(held.complete(), held.at(gpu0, "VGPU", "render"), held.at(gpu1, "VGPU", "train", "infer"),
			held.at(cell0, "VCPU", "render"), held.at(cell0, "MEMORY_MB", "render"),
			held.at(cell1, "VCPU", "train", "infer"), held.at(cell1, "MEMORY_MB", "train", "infer"))
	}, "Each guest holds what it held, on the NUMA cell to which it is pinned.")
}

// request asks for what no flat tree can express.
func (t *teller) request(ctx context.Context) {
	const query = "resources_vm=VCPU:4,MEMORY_MB:4096&resources_gpu=VGPU:1&group_policy=none"
	t.chapter(ctx, "A guest with its processors, memory and GPU in one cell",
		"Asked for 4 VCPU, 4 GiB and a VGPU, Placement may take the processors from one socket and the GPU "+
			"from the other:")
	apart := t.candidates(ctx, query)
	t.say("With same_subtree it must not. The two remaining candidates have everything below one NUMA cell:")
	together := t.candidates(ctx, query+"&same_subtree=_vm,_gpu")
	t.checks(func() error {
		vm, gpu := map[string]int64{"VCPU": 4, "MEMORY_MB": 4096}, map[string]int64{"VGPU": 1}
		want := []candidate{{cell0: vm, gpu0: gpu}, {cell1: vm, gpu1: gpu}}
		if len(apart) != 4 || !reflect.DeepEqual(together, want) {
			return fmt.Errorf("of %d candidates these are left: %v", len(apart), together)
		}
		return nil
	}, "Two of four candidates remain, one in each cell.")
}

// back undoes the second reshape.
func (t *teller) back(ctx context.Context) {
	t.chapter(ctx, "And back",
		`The journal has every reshape with the state before it. As long as no other client has written to the same providers since, it can be
		undone. The agent is stopped and its configuration restored first; otherwise its next start would repeat the reshape.`)
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
	}, "All allocations are what they were before.")
	t.say("The providers of the cells have no inventory any more. The agent removes them when it starts:")
	t.starts(ctx, doings)
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
	}, "The guests ran all the time.")
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

// types runs a command that must succeed, shows it and its output, and returns that.
func (t *teller) types(ctx context.Context, line string) (out string) {
	return t.typesAs(ctx, line, "")
}

// typesAs is types with something before the line that is not shown.
func (t *teller) typesAs(ctx context.Context, line, before string) (out string) {
	t.try(func() error {
		var err error
		if out, err = t.typed(ctx, before+line); err == nil {
			t.show(line, out)
		}
		return err
	})
	return out
}

// checks checks a condition, and prints it.
func (t *teller) checks(f func() error, words string) {
	t.try(func() error {
		if err := f(); err != nil {
			return fmt.Errorf("this does not hold: %s %w", words, err)
		}
		t.found(words)
		return nil
	})
}

// starts starts the agent, shows the log of its writes, and checks that it is healthy.
func (t *teller) starts(ctx context.Context, of func(log string) string) {
	line := "compute-agent run --config " + configFile
	t.try(func() (err error) {
		if t.agent, err = t.serve(ctx, line); err != nil {
			return err
		}
		log := t.agent.log.String()
		t.show(line+" &", of(log))
		if _, err = t.typed(ctx, "compute-agent status"); err != nil {
			err = fmt.Errorf("the agent has errors: %w\n%s", err, log)
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
// their fields. The host's discrepancies depend on this machine's processor.
func doings(log string) string {
	fields := regexp.MustCompile(` [a-z_]+=.*`)
	var b strings.Builder
	for line := range strings.Lines(log) {
		if strings.Contains(line, " WRN Host discrepancy") {
			continue
		}
		for _, of := range []string{"reshape", "Reshape",
			"layout version", " operation=", "Allocations move", " WRN ", " ERR "} {
			if strings.Contains(line, of) {
				b.WriteString(fields.ReplaceAllString(strings.TrimSpace(line), " …") + "\n")
				break
			}
		}
	}
	return b.String()
}

// reshapes are those of the doings that moved allocations.
func reshapes(log string) string {
	var b strings.Builder
	for line := range strings.Lines(doings(log)) {
		if strings.Contains(line, " Reshaped ") {
			b.WriteString(line)
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
