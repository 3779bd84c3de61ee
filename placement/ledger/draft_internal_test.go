// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestDiffSorted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type list = []string
	for _, c := range []struct{ a, b, onlyA, onlyB list }{
		{nil, nil, nil, nil},
		{list{"a"}, nil, list{"a"}, nil},
		{nil, list{"a"}, nil, list{"a"}},
		{list{"a", "b"}, list{"a", "b"}, nil, nil},
		{list{"a", "c"}, list{"b", "c"}, list{"a"}, list{"b"}},
		{list{"b", "c"}, list{"a", "c", "d"}, list{"b"}, list{"a", "d"}},
	} {
		onlyA, onlyB := diffSorted(c.a, c.b)
		testproc.Samef(t, cmp.Diff([]list{c.onlyA, c.onlyB}, []list{onlyA, onlyB}), "%v and %v", c.a, c.b)
	}
}
