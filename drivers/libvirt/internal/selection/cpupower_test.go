// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestParsePower(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	sets := CPUSets{Dedicated: []int{0, 2, 3}}
	type change = func(*PowerConfig)
	for name, tc := range map[string]struct {
		change  change
		want    Power
		problem string
	}{
		"off":             {change: func(c *PowerConfig) { c.Management, c.Strategy = false, "governor" }},
		"Nova's defaults": {change: func(*PowerConfig) {}, want: Power{Managed: []int{2, 3}, boot: true}},
		"its governors": {change: func(c *PowerConfig) { c.Strategy = "governor" },
			want: Power{Managed: []int{2, 3}, boot: true, Low: "powersave", High: "performance"}},
		"other governors": {change: func(c *PowerConfig) {
			*c = PowerConfig{true, "governor", "conservative",
				"schedutil"}
		}, want: Power{Managed: []int{2, 3}, boot: true, Low: "conservative", High: "schedutil"}},
		"unknown strategy": {change: func(c *PowerConfig) { c.Strategy = "sleep" },
			problem: `cpu_power_management_strategy: "sleep" must be "cpu_state" or "governor"`},
		"a path": {change: func(c *PowerConfig) { c.Low = "../x" },
			problem: `cpu_power_governor_low: "../x" is not the name of a governor such as "powersave"`},
		"nothing": {change: func(c *PowerConfig) { c.High = "" }, problem: `cpu_power_governor_high: "" is not`},
	} {
		t.Run(name, func(t *testing.T) {
			config := DefaultPower()
			config.Management = true
			tc.change(&config)
			got, err := ParsePower(config, sets)
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Fatalf("%v, want %s", err, tc.problem)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Power{})); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

// TestCheckPower: hosts that Nova refuses to start on are refused in its words.
func TestCheckPower(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := machine.Machine{CPUs: []machine.CPU{{ID: 0, Online: true}, {ID: 1}, {ID: 2, Online: true},
		{ID: 3, Online: true}, {ID: 4}}}
	states, governors := Power{Managed: []int{2, 3, 4}},
		Power{Managed: []int{2, 3, 4}, Low: "powersave", High: "performance"}
	same, mixed := map[int]string{2: "ondemand", 3: "ondemand"}, map[int]string{2: "powersave", 3: "performance"}
	for name, tc := range map[string]struct {
		power     Power
		governors map[int]string
		problem   string
	}{
		"off":                      {},
		"states":                   {power: states, governors: same},
		"states without governors": {power: states},
		"states with one governor": {power: states, governors: map[int]string{2: "performance"}},
		"states with several governors": {power: states,
			governors: mixed,
			problem: "all the cores need to have the same governor strategy before modifying the CPU states (CPUs " +
				"3 have performance, CPUs 2 have powersave)"},
		"governors, and one is offline": {power: governors,
			governors: same,
			problem: "all the cores need to be online before modifying the governor strategy; CPUs 4 are offline: " +
				"bring them online (chcpu -e 4)"},
		"governors, and all are online": {power: Power{Managed: []int{2, 3}, Low: "powersave", High: "performance"},
			governors: mixed},
		"an offline one of the host's": {power: Power{Managed: []int{2}, Low: "powersave"}, governors: same},
	} {
		err := tc.power.Check(m, tc.governors)
		var wrong *plugins.ConfigError
		switch {
		case tc.problem == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.problem != "" && (!errors.As(err, &wrong) || wrong.Key != PowerStrategyKey ||
			!strings.HasPrefix(wrong.Problem, tc.problem)):
			t.Errorf("%s: %v, want %s", name, err, tc.problem)
		}
	}
	if got := (Power{boot: true}).Discrepancies(); len(got) != 1 ||
		!strings.HasPrefix(got[0].Text,
			"CPU 0 is in cpu_dedicated_set, but it is not eligible for state management and will be ignored") {
		t.Errorf("%+v", got)
	}
}
