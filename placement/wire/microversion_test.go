// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestHistoryHasEachFeatureInItsPlace(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for i, change := range wire.History {
		if int(change.Feature) != i {
			t.Errorf("History[%d] is about feature %d", i, change.Feature)
		}
		if change.What == "" {
			t.Errorf("History[%d] does not say what 1.%d brought", i, i)
		}
	}
}

// TestFeaturesBeginWithTheirVersion: no feature was left out of the list, or put before another.
// Which microversion is the newest is in docs/api-placement.md (TestReferenceIsCurrent).
func TestFeaturesBeginWithTheirVersion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		feature wire.Feature
		first   string
	}{
		{wire.ProviderAggregates, "1.1"},
		{wire.Traits, "1.6"},
		{wire.ProjectAndUser, "1.8"},
		{wire.AllocationsByUUID, "1.12"},
		{wire.CacheHeaders, "1.15"},
		{wire.ErrorCodes, "1.23"},
		{wire.ConsumerGenerations, "1.28"},
		{wire.Reparenting, "1.37"},
		{wire.ConsumerTypes, "1.38"},
		{wire.AnyTraits, "1.39"},
	} {
		first := testproc.Try(wire.ParseVersion(c.first)).Or(t)
		if !first.Has(c.feature) || (first - 1).Has(c.feature) {
			t.Errorf("feature %d does not begin with %s", c.feature, c.first)
		}
	}
}

func TestRequestVersion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name   string
		values []string
		want   string
		err    error
	}{
		{"none", nil, "1.0", nil},
		{"plain", []string{"placement 1.28"}, "1.28", nil},
		{"latest", []string{"placement latest"}, wire.MaxVersion.String(), nil},
		{"any case and space", []string{"  PLACEMENT \t 1.7  "}, "1.7", nil},
		{"zeros before it", []string{"placement 01.030"}, "1.30", nil},
		{"other services", []string{"compute 2.90, placement 1.5,identity 3.1"}, "1.5", nil},
		{"the last one counts", []string{"placement 1.5, placement 1.6"}, "1.6", nil},
		{"the last header counts", []string{"placement 1.5", "placement 1.6"}, "1.6", nil},
		{"only others", []string{"compute 2.90"}, "1.0", nil},
		{"no number", []string{"placement"}, "1.0", nil},
		{"too old", []string{"placement 0.9"}, "", wire.ErrUnacceptableVersion},
		{"too new", []string{(wire.MaxVersion + 1).HeaderValue()}, "", wire.ErrUnacceptableVersion},
		{"other major", []string{"placement 2.0"}, "", wire.ErrUnacceptableVersion},
		{"negative", []string{"placement 1.-1"}, "", wire.ErrUnacceptableVersion},
		{"huge", []string{"placement 1." + strings.Repeat("9", 400)}, "", wire.ErrUnacceptableVersion},
		{"no dot", []string{"placement 1"}, "", wire.ErrMalformedVersion},
		{"words", []string{"placement pony.horse"}, "", wire.ErrMalformedVersion},
		{"two dots", []string{"placement 1.2.3"}, "", wire.ErrMalformedVersion},
		{"endless", []string{"placement " + strings.Repeat("1", 5000)}, "", wire.ErrMalformedVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := wire.RequestVersion(c.values, wire.MaxVersion)
			if !errors.Is(err, c.err) {
				t.Fatalf("RequestVersion(%q) = %v, want %v", c.values, err, c.err)
			}
			if err == nil && v.String() != c.want {
				t.Errorf("RequestVersion(%q) = %s, want %s", c.values, v, c.want)
			}
		})
	}
}

func FuzzRequestVersion(f *testing.F) {
	for _, seed := range []string{"", "placement 1.39", "compute 2.1,placement latest", "placement 1_0.3",
		"placement 1.١", ",,, placement", "placement\t1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		v, err := wire.RequestVersion([]string{value}, wire.MaxVersion)
		switch {
		case err == nil && v > wire.MaxVersion:
			t.Errorf("%q gives %d", value, v)
		case err != nil && !errors.Is(err, wire.ErrMalformedVersion) && !errors.Is(err, wire.ErrUnacceptableVersion):
			t.Errorf("%q gives an error of no kind: %v", value, err)
		case err == nil:
			if again, err := wire.RequestVersion([]string{v.HeaderValue()}, wire.MaxVersion); err != nil || again != v {
				t.Errorf("%s does not read back: %s, %v", v.HeaderValue(), again, err)
			}
		}
	})
}

func TestParseInt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, want := range map[string]int64{
		"0": 0, "12": 12, " 7\t": 7, "+3": 3, "-3": -3, "1_000": 1000, "007": 7,
		strings.Repeat("9", 50): jsonkit.MaxExact, "-" + strings.Repeat("9", 50): -jsonkit.MaxExact,
	} {
		if n, ok := wire.ParseInt(text); !ok || n != want {
			t.Errorf("ParseInt(%q) = %d, %v, want %d", text, n, ok, want)
		}
	}
	for _, text := range []string{"", " ", "+", "1.0", "1e3", "0x1", "1 2", "_1", "1_", "1__0", "--1", "x"} {
		if n, ok := wire.ParseInt(text); ok {
			t.Errorf("ParseInt(%q) = %d, want it refused", text, n)
		}
	}
}
