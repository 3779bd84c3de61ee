// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// renamingDriver declares renames.
type renamingDriver struct {
	testDriver
	renames map[string]string
}

func (d *renamingDriver) ClassRenames() map[string]string { return d.renames }

func TestRenamesAreSentWithAReshape(t *testing.T) {
	d := &renamingDriver{renames: map[string]string{"CUSTOM_A": "A"}}
	d.update = func(context.Context, *providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
		return nil, nil
	}
	c := serve(t, d)
	for _, tc := range []struct {
		given providertree.Allocations
		want  map[string]string
	}{{nil, nil}, {providertree.Allocations{}, d.renames}} {
		reply := testproc.Try(c.update(context.Background(), oneNode(t), tc.given)).Or(t)
		testproc.Samef(t, cmp.Diff(tc.want, reply.GetClassRenames()), "given %v", tc.given)
	}
	d.renames = map[string]string{"CUSTOM_A": "CUSTOM_A"}
	if _, err := c.update(context.Background(), oneNode(t), providertree.Allocations{}); err == nil ||
		!strings.Contains(err.Error(), "renamed to itself") {
		t.Errorf("%v", err)
	}
}
