// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestParse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for in, want := range map[string][]int{
		"": nil, "\n": nil, "0": {0}, "0-3\n": {0, 1, 2, 3}, "8,0-1": {0, 1, 8},
		"1,1,0-1": {0, 1}, " 2 , 4 - 5 ": {2, 4, 5},
	} {
		got, err := ParseCPUs(in)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Parse(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, says := range map[string]string{
		"a": "not a CPU number", "1-": "not a CPU number",
		"-1": "not a CPU number", ",": "not a CPU number", "3-1": "reversed",
		"0-4294967295": "above", "99999999999999999999": "above", "65536": "above",
		"0x3": "not a CPU number", "1-2-3": "not a CPU number",
	} {
		if got, err := ParseCPUs(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", in, got, err, says)
		}
	}
}

func TestFormatIsTheInverse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.SliceOfDistinct(rapid.IntRange(0, 300), rapid.ID[int]).Draw(t, "cpus")
		got, err := ParseCPUs(FormatCPUs(cpus))
		slices.Sort(cpus)
		if err != nil || !slices.Equal(got, cpus) {
			t.Fatalf("%v came back as %v, %v", cpus, got, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,8", "1-", "99999999999", "0-65535", ",", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := ParseCPUs(s)
		if err != nil {
			return
		}
		again, err := ParseCPUs(FormatCPUs(cpus))
		if err != nil || !slices.Equal(again, cpus) {
			t.Fatalf("%q: %v became %v, %v", s, cpus, again, err)
		}
	})
}
