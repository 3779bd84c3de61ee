// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// BeforeUpdate has those faults of UpdateProviderTree that any call can have.
func (c Config) BeforeUpdate(ctx context.Context) error {
	for _, name := range strings.Fields(c.Update) {
		if _, ok := treeFaults[name]; ok {
			continue
		}
		if err := c.Run(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// AfterUpdate has the other faults of UpdateProviderTree: it changes the answer.
func (c Config) AfterUpdate(u *TreeUpdate) error {
	for _, name := range strings.Fields(c.Update) {
		if spoil, ok := treeFaults[name]; ok {
			if err := spoil.do(u); err != nil {
				return err
			}
		}
	}
	return nil
}

// BeforeWatch has the faults of Watch.
func (c Config) BeforeWatch(ctx context.Context, changed func(node string)) error {
	for _, name := range strings.Fields(c.Watch) {
		if name == "storm" {
			for range stormLines {
				changed("")
			}
		} else if err := c.Run(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// AfterList has the faults of the list of instances, and returns the list with them.
func (c Config) AfterList(ctx context.Context, list []plugins.Instance) ([]plugins.Instance, error) {
	for _, name := range strings.Fields(c.List) {
		if spoil, ok := listFaults[name]; ok {
			list = spoil.do(list)
		} else if err := c.Run(ctx, name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// AfterInstance has the named faults after a call for one instance; some of them change the answer.
func (c Config) AfterInstance(
	ctx context.Context, answer plugins.Instance, names string,
) (plugins.Instance, error) {
	for _, name := range strings.Fields(names) {
		if spoil, ok := instanceFaults[name]; ok {
			spoil.do(&answer)
		} else if err := c.Run(ctx, name); err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// BeforeEvents has the faults of WatchInstances.
func (c Config) BeforeEvents(ctx context.Context, changed func(node, uuid string)) error {
	for _, name := range strings.Fields(c.Events) {
		switch name {
		case "storm":
			for i := range stormLines {
				changed("", fmt.Sprintf("00000000-dead-4bad-8bad-%012d", i))
			}
		case invalidEvents:
			for _, uuid := range []string{notAUUID, "\xff\xfe", strings.Repeat("u", 1<<20), inventedUUID + "\n"} {
				changed("no such node\x00", uuid)
			}
		default:
			if err := c.Run(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
