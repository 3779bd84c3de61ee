// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// warningDriver has a problem and warnings.
type warningDriver struct {
	watchingDriver
	told []Warning
}

func (d *warningDriver) Warnings() []Warning { return d.told }

func TestWarningsComeWithHealth(t *testing.T) {
	d := &warningDriver{}
	c := serve(t, d)
	health := func() *driverv1.HealthResponse {
		t.Helper()
		return testproc.Try(c.Health(context.Background(), &driverv1.HealthRequest{})).Or(t)
	}
	if got := health(); len(got.GetWarnings()) != 0 {
		t.Errorf("none: %v", got)
	}
	d.problem = errors.New("no libvirt\xff")
	d.told = []Warning{{"numa-memory", "it differs"}, {"Fan #7", "it is\xffloud"}, {"fan--7", "and old"}, {"", "?"},
		{"b" + strings.Repeat("x", 100), strings.Repeat("ä", 2001)}}
	before := fmt.Sprint(d.told)
	want := &driverv1.HealthResponse{Problem: "no libvirt\uFFFD", Warnings: []*driverv1.Warning{
		{Name: "b" + strings.Repeat("x", 79), Text: strings.Repeat("ä", 1997) + "..."},
		{Name: "fan--7", Text: "it is\uFFFDloud; and old"},
		{Name: "numa-memory", Text: "it differs"}, {Name: "unnamed", Text: "?"},
	}}
	testproc.Same(t, cmp.Diff(want, health(), protocmp.Transform()))
	if fmt.Sprint(d.told) != before {
		t.Error("the driver's own list was changed")
	}
	for n, last := range map[int]string{100: "w-0099 x",
		101: "more-warnings and 2 more warnings, which are not shown"} {
		d.told = nil
		for i := range n {
			d.told = append(d.told, Warning{fmt.Sprintf("w-%04d", i), "x"})
		}
		got := health().GetWarnings()
		if w := got[len(got)-1]; len(got) != protocol.MaxWarnings || w.GetName()+" "+w.GetText() != last {
			t.Errorf("%d: %d, the last is %v", n, len(got), w)
		}
	}
}

func TestWarningsAreAnnounced(t *testing.T) {
	for _, c := range []struct {
		driver Driver
		want   bool
	}{{&warningDriver{}, true}, {&watchingDriver{}, false}} {
		if got := strings.Contains(strings.Join(capabilities(c.driver), " "),
			protocol.CapabilityWarnings); got != c.want {
			t.Errorf("%T: %v", c.driver, capabilities(c.driver))
		}
	}
}

func FuzzWarningName(f *testing.F) {
	for _, s := range []string{"", "numa-memory", "GPU 0000:82:00.0", "-", "ä", "\xff\xff", strings.Repeat("x", 81),
		"a\n", strings.Repeat("-", 400) + "a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := protocol.WarningName(s)
		if !protocol.IsWarningName(name) || protocol.WarningName(name) != name {
			t.Errorf("%q becomes %q", s, name)
		}
		if protocol.IsWarningName(s) && name != s {
			t.Errorf("%q was good and becomes %q", s, name)
		}
	})
}
