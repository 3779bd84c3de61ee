// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestParseSpec(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for spec, want := range map[string]string{
		"4-12,^8,15": "4-7,9-12,15", "0": "0", "1,1,0-1,1": "0-1", "^0-1,0-7": "2-7",
		"0-7,^2-3,2": "0-1,4-7", " 1 - 3 ,, ^ 2 ,": "1,3",
		"3-3": "3", "1,^9": "1", "65535": "65535", "0-65535,^1-65535": "0",
	} {
		got, err := ParseCPUSpec(spec)
		if err != nil || machine.FormatCPUs(got) != want {
			t.Errorf("%q: %v, %v, want %s", spec, got, err, want)
		}
	}
	for spec, want := range map[string]string{
		"":                           `"": it leaves no CPUs`,
		",,":                         `",,": it leaves no CPUs`,
		"^3":                         `"^3": it leaves no CPUs`,
		"1-2,^0-3":                   `"1-2,^0-3": it leaves no CPUs`,
		"0-3,7-5":                    `item "7-5": the range 7-5 is reversed`,
		"0-3,^7-5":                   `item "^7-5": the range 7-5 is reversed`,
		"1,65536":                    `item "65536": CPU 65536 is above 65535`,
		"0-99999999999999999":        `item "0-99999999999999999": CPU 99999999999999999 is above 65535`,
		"-1":                         `item "-1": "" is not a CPU number`,
		"1-":                         `item "1-": "" is not a CPU number`,
		"1-2-3":                      `item "1-2-3": "2-3" is not a CPU number`,
		"all":                        `item "all": "all" is not a CPU number`,
		"1;2":                        `item "1;2": "1;2" is not a CPU number`,
		"^^1":                        `item "^^1": "^1" is not a CPU number`,
		"1-^2":                       `item "1-^2": "^2" is not a CPU number`,
		"0x3":                        `item "0x3": "0x3" is not a CPU number`,
		"^":                          `item "^": "" is not a CPU number`,
		strings.Repeat("0,", 40_000): "has 80000 characters; the limit is 65536",
	} {
		if got, err := ParseCPUSpec(spec); err == nil || err.Error() != want {
			t.Errorf("%.40q: %v, %v, want the error\n%s", spec, got, err, want)
		}
	}
	if _, err := ParseCPUSpec("^0"); !errors.Is(err, errNothingLeft) {
		t.Error("an empty set is not told from a malformed one")
	}
}

// TestParseSpecIsSetArithmetic: the plain model: a set for what is in, a set for what is out.
func TestParseSpecIsSetArithmetic(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		in, out := map[int]bool{}, map[int]bool{}
		var items []string
		for range rapid.IntRange(1, 12).Draw(t, "items") {
			first := rapid.IntRange(0, 40).Draw(t, "first")
			last := first + rapid.IntRange(0, 10).Draw(t, "more")
			into, caret := in, ""
			if rapid.Bool().Draw(t, "excluded") {
				into, caret = out, "^"
			}
			for cpu := first; cpu <= last; cpu++ {
				into[cpu] = true
			}
			if first == last && rapid.Bool().Draw(t, "plain") {
				items = append(items, fmt.Sprintf("%s%d", caret, first))
			} else {
				items = append(items, fmt.Sprintf("%s%d-%d", caret, first, last))
			}
		}
		var want []int
		for cpu := range 60 {
			if in[cpu] && !out[cpu] {
				want = append(want, cpu)
			}
		}
		spec := strings.Join(items, ",")
		got, err := ParseCPUSpec(spec)
		if (err == nil) != (len(want) > 0) || !slices.Equal(got, want) {
			t.Fatalf("%s: %v, %v, want %v", spec, got, err, want)
		}
	})
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"4-12,^8,15", "^1", "0-65535", "1-", ",", "^", "9999999999", "\x00", "1-2-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := ParseCPUSpec(s)
		if err != nil {
			return
		}
		if len(cpus) == 0 || !slices.IsSorted(cpus) || cpus[0] < 0 || cpus[len(cpus)-1] > machine.MaxCPU {
			t.Fatalf("%q: %v", s, cpus)
		}
		if again, err := ParseCPUSpec(machine.FormatCPUs(cpus)); err != nil || !slices.Equal(again, cpus) {
			t.Fatalf("%q: %v became %v, %v", s, cpus, again, err)
		}
	})
}
