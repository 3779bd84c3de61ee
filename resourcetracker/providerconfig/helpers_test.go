// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// ignorePlaces compares entries by what they say.
var ignorePlaces = cmpopts.IgnoreFields(Entry{}, "Place", "classAt", "traitAt")

// TestBrokenFiles: the directory testdata/broken holds files that are wrong, each in its own way.
// One Load names everything that is wrong with all of them, and what an entry of one has in common
// with that of another.
func TestBrokenFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, warnings, err := Load("testdata/broken")
	if !errors.Is(err, ErrInvalid) || c != nil {
		t.Fatalf("Load: %v, %v", c, err)
	}
	var all Problems
	if !errors.As(err, &all) {
		t.Fatalf("%T is not Problems", err)
	}
	for _, p := range all {
		if p.Hint == "" {
			t.Errorf("no hint: %v", p)
		}
		if p.Line == 0 {
			t.Errorf("no line: %v", p)
		}
	}
	var text strings.Builder
	text.WriteString(err.Error() + "\n\n")
	for _, w := range warnings {
		text.WriteString("warning: " + w.String() + "\n")
	}
	golden.Text(t, "testdata/broken.golden", text.String())
}
