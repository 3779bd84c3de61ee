// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// quotaRequest asks for servers of project p.
func quotaRequest(least, most int64, flavor cellwire.Flavor, allowCellDown bool) quota.Request {
	return quota.Request{Project: "p", Flavor: flavor, Min: least, Max: most, AllowCellDown: allowCellDown}
}

// TestQuotaCheck: how many fit, and the refusal when they do not.
func TestQuotaCheck(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name                  string
		instances, cores, ram int64
		has, least, most      int64
		flavor                cellwire.Flavor
		grant                 int64
		want                  string
	}{
		{name: "one fits", instances: 8, cores: -1, ram: -1, has: 7, least: 1, most: 1, grant: 1},
		{name: "none fits", instances: 8, cores: -1, ram: -1, has: 8, least: 1, most: 1,
			want: "Quota exceeded for instances: Requested 1, but already used 8 of 8 instances"},
		{name: "as many as fit", instances: 8, cores: -1, ram: -1, has: 5, least: 1, most: 10, grant: 3},
		{name: "cores bound it", instances: -1, cores: 15, ram: -1, has: 5, least: 1, most: 10, grant: 2},
		{name: "ram bounds it", instances: 100, cores: -1, ram: 512 * 6, has: 5, least: 1, most: 10, grant: 1},
		{name: "fewer than the least", instances: 8, cores: -1, ram: -1, has: 5, least: 4, most: 10,
			want: "Quota exceeded for instances: Requested 4-10, but already used 5 of 8 instances"},
		{name: "several", instances: 2, cores: 3, ram: 600,
			has: 1, least: 2, most: 2,
			want: "Quota exceeded for cores, instances, ram: Requested 4, 2, 1024, but already used 2, 1, 512 of 3, " +
				"2, 600 cores, instances, ram"},
		{name: "no limits", instances: -1, cores: -1, ram: -1, has: 5, least: 1, most: 1000, grant: 1000},
		{name: "none allowed", instances: 0, cores: -1, ram: -1, least: 1, most: 1,
			want: "Quota exceeded for instances: Requested 1, but already used 0 of 0 instances"},
		{name: "over already", instances: 3, cores: -1, ram: -1, has: 5, least: 1, most: 1,
			want: "Quota exceeded for instances: Requested 1, but already used 5 of 3 instances"},
		{name: "nothing of it asked for", instances: 9,
			cores: 0, ram: 0, least: 1, most: 1, flavor: cellwire.Flavor{ID: "0"}, grant: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newQuotaWorld(t)
			w.has(int(c.has), 1)
			if c.flavor.ID == "" {
				c.flavor = quotaFlavor
			}
			s := w.service(c.instances, c.cores, c.ram)
			grant, err := s.Check(ctx, quotaRequest(c.least, c.most, c.flavor, false))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if grant.Count != c.grant || text != c.want {
				t.Errorf("%d are granted (want %d), and the refusal is %q (want %q)",
					grant.Count, c.grant, text, c.want)
			}
		})
	}
}

// TestConfirm: what was asked for between the counting and the writing counts.
func TestConfirm(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	w.has(5, 1)
	s := w.service(8, -1, -1)
	first := testproc.Try(s.Check(ctx, quotaRequest(2, 2, quotaFlavor, false))).Or(w.t)
	now := func() apidb.Counts {
		return testproc.Try(w.store.CountProject(ctx, "p", "", nil)).Or(w.t)
	}
	testproc.NoErrorf(t, first.Confirm(now()), "when nothing came between")
	w.asks(1, -1, false)
	testproc.NoErrorf(t, first.Confirm(now()), "when what came between fits beside")
	w.asks(1, -1, false)
	var exceeded *quota.ExceededError
	if err := first.Confirm(now()); !errors.As(err, &exceeded) ||
		err.Error() != "Quota exceeded for instances: Requested 2, but already used 7 of 8 instances" {
		t.Errorf("when it does not: %v", err)
	}
}

// TestRecheck: over the quota with what there is.
func TestRecheck(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	w.has(2, 1)
	w.asks(1, -1, false)
	w.must(w.service(3, -1, -1).Recheck(ctx, "p", quotaFlavor))
	err := w.service(2, 5, -1).Recheck(ctx, "p", quotaFlavor)
	if err == nil || err.Error() !=
		"Quota exceeded for cores, instances: Requested 2, 1, but already used 5, 2 of 5, 2 cores, instances" {
		t.Errorf("Recheck: got %v, want the quotas of cores and instances exceeded", err)
	}
	w.asked.Store(0)
	w.must(w.service(-1, -1, -1).Recheck(ctx, "p", quotaFlavor))
	testproc.Equal(t, w.asked.Load(), 0, "%d requests about limits that are none")
}

// TestCellDown: who may boot while a cell is down.
func TestCellDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name          string
		before        func(*quotaWorld)
		down          string
		allow         bool
		fromPlacement bool
		want          error
	}{
		{name: "living servers there", before: func(w *quotaWorld) { w.has(2, 1) }, down: "cell1",
			want: quota.ErrCellDown},
		{name: "living servers there, and the policy allows it",
			before: func(w *quotaWorld) { w.has(2, 1) }, down: "cell1", allow: true},
		{name: "servers elsewhere", before: func(w *quotaWorld) { w.has(2, 2) }, down: "cell1"},
		{name: "a server that is deleted",
			before: func(w *quotaWorld) {
				w.must(
					w.store.SetQueued(ctx, map[string]bool{w.asks(1, 1, true)[0]: true}))
			}, down: "cell1"},
		{name: "one of before queued_for_delete", before: func(w *quotaWorld) { w.unmigrate(w.asks(1, 1, true)[0]) },
			down: "cell1", want: quota.ErrCellDown},
		{name: "in cell0", before: func(w *quotaWorld) { w.has(1, 0) }, down: "cell0", want: quota.ErrCellDown},
		{name: "being built there", before: func(w *quotaWorld) { w.asks(1, 1, false) }, down: "cell1",
			want: quota.ErrCellDown},
		{name: "placed nowhere", before: func(w *quotaWorld) { w.asks(1, -1, false) }, down: "cell1"},
		{name: "counted from Placement", before: func(w *quotaWorld) { w.has(2, 1) },
			down: "cell1", fromPlacement: true},
		{name: "to be counted from Placement", before: func(w *quotaWorld) { w.unmigrate(w.asks(1, 1, true)[0]) },
			down: "cell1", fromPlacement: true, want: quota.ErrCellDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newQuotaWorld(t)
			w.placed = `{"usages":{}}`
			c.before(w)
			w.uses[c.down] = nil
			s := w.service(10, 20, -1, func(o *quota.Options) { o.CountFromPlacement = c.fromPlacement })
			_, err := s.Check(ctx, quotaRequest(1, 1, quotaFlavor, c.allow))
			if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if lines := strings.Count(w.log.String(),
				"Rejected a boot"); lines != map[bool]int{true: 1}[c.want != nil] {
				t.Errorf("%d lines: %s", lines, &w.log)
			}
			if err != nil && strings.Contains(err.Error(), c.down) {
				t.Errorf("members learn the name of the cell: %v", err)
			}
		})
	}
}

// TestOverQuotaInAnOutage: what is in the cell that is down counts, also for those who may boot.
func TestOverQuotaInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	w.has(5, 1)
	w.has(3, 2)
	w.uses["cell1"] = nil
	_, err := w.service(8, -1, -1).Check(ctx, quotaRequest(1, 1, quotaFlavor, true))
	if err == nil || err.Error() != "Quota exceeded for instances: Requested 1, but already used 8 of 8 instances" {
		t.Errorf("Check in an outage: got %v, want the quota of instances exceeded", err)
	}
}

// TestLimits: a project's own go before the defaults.
func TestLimits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newQuotaWorld(t)
	s := w.service(10, 20, 51200)
	w.must(w.store.SetQuotas(ctx, "p", apidb.QuotaSet{quota.Cores: 99}))
	limits := testproc.Try(s.Limits(ctx, "p")).Or(w.t)
	testproc.Same(t, cmp.Diff(apidb.QuotaSet{"instances": 10, "cores": 99, "ram": 51200, "key_pairs": 100}, limits))
	limits["instances"] = 0
	if s.Defaults()["instances"] != 10 {
		t.Error("the defaults were changed by a caller")
	}
}
