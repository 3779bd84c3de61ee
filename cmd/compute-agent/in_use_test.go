// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// flagValues are values for flags of each type, in the order in which they are given.
var flagValues = map[string][]string{
	"bool": {"true"}, "count": {"3"}, "duration": {"90s"}, "int": {"7"}, "string": {`[a],"b" c=`}, "FORMAT": {"json"},
	"stringArray": {"a", "b=c", `d,e "f"`, "[g]", ""}, "stringSlice": {"a,b", "c=d", `"e,f"`, "[g]"},
	"ipSlice": {"192.0.2.1", "2001:db8::1,192.0.2.2"},
}

// TestForwardedFlags: the service that runs a command gets the flags and the arguments that the
// command was given, repeated ones included. All commands are compared, forwarded or not.
func TestForwardedFlags(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	repeated := 0
	for _, sent := range cli.AllCommands(newRoot()) {
		if !sent.HasParent() {
			continue
		}
		var set []string
		sent.Flags().VisitAll(func(f *pflag.Flag) {
			values, known := flagValues[f.Value.Type()]
			if !known {
				t.Errorf("%s --%s has the type %s, for which there are no values here",
					sent.CommandPath(), f.Name, f.Value.Type())
			}
			if cli.LocatesDatabase(f.Name) {
				return
			}
			set = append(set, f.Name)
			for _, value := range values {
				testproc.NoErrorf(t, sent.Flags().Set(f.Name, value), "%s --%s %q", sent.CommandPath(), f.Name, value)
			}
		})
		arguments := []string{"x", "--node", "[y,z]"}
		testproc.Check(t, sent.Flags().Parse(append([]string{"--"}, arguments...)))
		got, rest, err := newRoot().Find(cli.ArgsOf(sent))
		if err != nil || got.CommandPath() != sent.CommandPath() {
			t.Errorf("%s arrives as %v, %v", sent.CommandPath(), got, err)
			continue
		}
		testproc.NoErrorf(t, got.ParseFlags(rest), "%s: %q", sent.CommandPath(), rest)
		for _, name := range set {
			want, arrived := valuesOf(sent, name), valuesOf(got, name)
			if len(want) > 1 {
				repeated++
			}
			if !slices.Equal(arrived, want) {
				t.Errorf("%s --%s: %q arrives as %q", sent.CommandPath(), name, want, arrived)
			}
		}
		if !slices.Equal(got.Flags().Args(), arguments) {
			t.Errorf("%s: the arguments arrive as %q", sent.CommandPath(), got.Flags().Args())
		}
	}
	if repeated < 5 {
		t.Errorf("%d flags can be repeated, fewer than 5", repeated)
	}
}

func valuesOf(cmd *cobra.Command, flag string) []string {
	value := cmd.Flags().Lookup(flag).Value
	if several, is := value.(pflag.SliceValue); is {
		return several.GetSlice()
	}
	return []string{value.String()}
}
