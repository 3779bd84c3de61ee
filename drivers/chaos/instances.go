// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// machines configures the fake driver, which makes the instances that this one only spoils.
const machines = `{"nodes": [{"name": "` + onlyNode + `", "inventories": {"VCPU": {"total": 8}}}], "instances": {}}`

// The instances that are in answers and should not be.
const (
	inventedUUID = "00000000-dead-4bad-8bad-00000000beef"
	notAUUID     = "../../etc/passwd"
)

// garbled is the deed of events that are about nothing.
const garbled = "garbled"

// listDeed is something that a list of instances should not be.
type listDeed struct {
	says string
	do   func([]plugins.Instance) []plugins.Instance
}

// listDeeds are those of Instances alone.
var listDeeds = map[string]listDeed{
	"twice": {"lists an instance twice", func([]plugins.Instance) []plugins.Instance {
		return []plugins.Instance{{UUID: inventedUUID, Power: plugins.PowerRunning}, {UUID: strings.ToUpper(inventedUUID), Power: plugins.PowerShutdown}}
	}},
	"nameless": {"lists an instance whose uuid is none", func(is []plugins.Instance) []plugins.Instance {
		return append(is, plugins.Instance{UUID: notAUUID, Power: plugins.PowerRunning})
	}},
	"strange-power": {"lists an instance in a power state that there is not", func(is []plugins.Instance) []plugins.Instance {
		return append(is, plugins.Instance{UUID: inventedUUID, Power: 42})
	}},
	"crowd": {"lists 100,001 instances", func([]plugins.Instance) []plugins.Instance {
		out := make([]plugins.Instance, 100_001)
		for i := range out {
			out[i] = plugins.Instance{UUID: fmt.Sprintf("00000000-dead-4bad-8bad-%012d", i), Power: plugins.PowerRunning}
		}
		return out
	}},
	"essay": {"lists an instance with a name of 8 MiB", func(is []plugins.Instance) []plugins.Instance {
		return append(is, plugins.Instance{UUID: inventedUUID, Name: strings.Repeat("z", longLine), Power: plugins.PowerRunning})
	}},
}

// answerDeed is something that the answer about one instance should not be.
type answerDeed struct {
	says string
	do   func(*plugins.Instance)
}

// answerDeeds are those of Spawn and SetPower, after they did what they should.
var answerDeeds = map[string]answerDeed{
	"other":   {"answers about another instance", func(i *plugins.Instance) { i.UUID = inventedUUID }},
	"blank":   {"answers about no instance", func(i *plugins.Instance) { *i = plugins.Instance{} }},
	"unheard": {"answers with a power state that there is not", func(i *plugins.Instance) { i.Power = -7 }},
}

// Instances does its deeds, and lists the instances unless one of them has another list.
func (d *Driver) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	cfg := d.config()
	list, err := d.machines.Instances(ctx, node)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(cfg.List) {
		if special, ok := listDeeds[name]; ok {
			list = special.do(list)
		} else if err := do(ctx, name, cfg); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Spawn makes an instance, and then does its deeds: what becomes of them, the instance is there.
func (d *Driver) Spawn(ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree) (plugins.Instance, error) {
	made, err := d.machines.Spawn(ctx, node, spec, tree)
	if err != nil {
		return made, err
	}
	return d.spoil(ctx, made, d.config().Spawn)
}

// Destroy does its deeds first: what becomes of them, the instance is there still.
func (d *Driver) Destroy(ctx context.Context, node, uuid string) error {
	cfg := d.config()
	if err := do(ctx, cfg.Destroy, cfg); err != nil {
		return err
	}
	return d.machines.Destroy(ctx, node, uuid)
}

// SetPower does what it should, and then its deeds.
func (d *Driver) SetPower(ctx context.Context, node, uuid string, to plugins.PowerState, hard bool) (plugins.Instance, error) {
	is, err := d.machines.SetPower(ctx, node, uuid, to, hard)
	if err != nil {
		return is, err
	}
	return d.spoil(ctx, is, d.config().Power)
}

// spoil does deeds with the answer about an instance.
func (d *Driver) spoil(ctx context.Context, answer plugins.Instance, names string) (plugins.Instance, error) {
	cfg := d.config()
	for _, name := range strings.Fields(names) {
		if special, ok := answerDeeds[name]; ok {
			special.do(&answer)
		} else if err := do(ctx, name, cfg); err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// WatchInstances does its deeds, and then tells what happens.
func (d *Driver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	cfg := d.config()
	for _, name := range strings.Fields(cfg.Events) {
		switch name {
		case "storm":
			for i := range stormLines {
				changed(onlyNode, fmt.Sprintf("00000000-dead-4bad-8bad-%012d", i))
			}
		case garbled:
			for _, uuid := range []string{notAUUID, "\xff\xfe", strings.Repeat("u", 1<<20), inventedUUID + "\n"} {
				changed("no such node\x00", uuid)
			}
		default:
			if err := do(ctx, name, cfg); err != nil {
				return err
			}
		}
	}
	return d.machines.WatchInstances(ctx, changed)
}
