// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
)

// TestConsoleLog: it comes as the guest wrote it, errors are typed, and what cannot be asked is not
// sent.
func TestConsoleLog(t *testing.T) {
	k, ctx := keep(t, nil), context.Background()
	log, err := k.ConsoleLog(ctx, "cn1", strings.ToUpper(oneInstance), 100)
	if err != nil || string(log) != "cn1 "+oneInstance+" 100 \xff" {
		t.Errorf("%q, %v", log, err)
	}
	if log, err := k.ConsoleLog(ctx, "cn1", oneInstance, 2); err != nil || string(log) != " \xff" {
		t.Errorf("a driver that returns more than was asked for: %q, %v", log, err)
	}
	if _, err := k.ConsoleLog(ctx, "cn1", rootUUID, 1); !errors.Is(err, plugins.ErrInstanceNotFound) {
		t.Errorf("no such instance: %v", err)
	}
	var fault *plugins.InstanceFault
	if _, err := k.ConsoleLog(ctx, "cn1", "aaaaaaaa-2222-3333-4444-55555555abcd", 1); !errors.As(err, &fault) || fault.UUID == "" {
		t.Errorf("no log: %v", err)
	}
	for _, most := range []int{0, -1, plugins.MaxConsoleLog + 1} {
		if _, err := k.ConsoleLog(ctx, "cn1", oneInstance, most); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%d bytes: %v", most, err)
		}
	}
	if _, err := k.ConsoleLog(ctx, "cn1", "x", 1); !errors.Is(err, ErrBadRequest) {
		t.Errorf("no uuid: %v", err)
	}
	if got := k.Abilities(); !slices.Contains(got, plugins.AbilityConsoleLog) || slices.Contains(got, plugins.AbilityConsole) {
		t.Errorf("abilities: %v", got)
	}
	p := newRig(t).mustStart(chaosSpec("", nil))
	if _, err := p.ConsoleLog(ctx, "cn1", oneInstance, 1); !errors.Is(err, plugins.ErrUnsupported) {
		t.Errorf("a plugin without instances: %v", err)
	}
}
