// SPDX-License-Identifier: Apache-2.0

package gather_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestEach: each answer is given when it is there, and what is done with it takes no time from the
// cells that are still to answer.
func TestEach(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(hangs, slow(9*time.Second), up)
		type given struct {
			Cell  string
			State string
			At    time.Duration
		}
		var got []given
		start := time.Now()
		gather.Each(t.Context(), c.gatherer(0), c.cells, services, func(a gather.Answer[[]cellwire.Service]) {
			got = append(got, given{a.Cell.Name, states([]gather.Answer[[]cellwire.Service]{a})[0], time.Since(start)})
			time.Sleep(8 * time.Second)
		})
		check(t, []given{
			{c.cells[2].Name, isUp, 0}, {c.cells[1].Name, isUp, 9 * time.Second},
			{c.cells[0].Name, isHung, 17 * time.Second},
		}, got)
	})
}

// TestEachWithAPanic: nothing is left of the others.
func TestEachWithAPanic(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) { // it fails if goroutines are left
		c := newCloud(hangs, up)
		defer func() { check(t, any("no"), recover()) }()
		gather.Each(t.Context(), c.gatherer(0), c.cells, services,
			func(gather.Answer[[]cellwire.Service]) { panic("no") })
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(hangs, up)
		defer func() { check(t, any("no"), recover()) }()
		panics := func(context.Context, *cellclient.Client) (int, error) { panic("no") }
		gather.Each(t.Context(), c.gatherer(0), c.cells, panics, func(gather.Answer[int]) {})
	})
}
