// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) {
	SimMain()
	os.Exit(m.Run())
}

func (s *Sim) probe(t *testing.T, limit time.Duration) error {
	t.Helper()
	_, socket, _ := strings.Cut(s.URI(), "socket=")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return libvirtd.Probe(ctx, socket)
}

func TestRealDaemonLifecycle(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := SimForTest(t, SingleNode(), SimOptions{})
	testproc.NoError(t, s.probe(t, time.Minute))
	testproc.Check(t, s.Freeze())
	testproc.ErrorIs(t, s.probe(t, 100*time.Millisecond), libvirtd.ErrSilent, "frozen: %v")
	testproc.Check(t, s.Thaw())
	testproc.NoError(t, s.probe(t, time.Minute))
	testproc.Check(t, s.Kill(t.Context()))
	testproc.ErrorIs(t, s.probe(t, time.Minute), libvirtd.ErrNotRunning, "killed: %v")
	if err := s.Kill(t.Context()); !errors.Is(err, ErrRemotely) || !strings.Contains(err.Error(), "no daemon runs") {
		t.Errorf("killed twice: %v", err)
	}
	testproc.ErrorIs(t, s.Thaw(), ErrRemotely, "a dead one was thawed: %v")
	if err := s.Uevent(t.Context(), Uevent{Action: "add", Path: "sys/devices/x", Subsystem: "pci"}); err != nil {
		t.Errorf("an event without a listener fails: %v", err)
	}
	testproc.Check(t, s.Launch(t.Context()))
	testproc.ErrorHas(t, s.Launch(t.Context()), "already", "launched twice: %v")
	testproc.NoError(t, s.probe(t, time.Minute))
}

// TestRealConcurrentSimulations: several hosts beside each other, and none of them this machine's.
func TestRealConcurrentSimulations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a, b := SimForTest(t, SingleNode(), SimOptions{}), SimForTest(t, Sample(), SimOptions{NoMdevctl: true})
	if a.PID() == b.PID() || a.Root() == b.Root() {
		t.Errorf("%d %d, %s %s", a.PID(), b.PID(), a.Root(), b.Root())
	}
	for _, s := range []*Sim{a, b} {
		testproc.NoError(t, s.probe(t, time.Minute))
	}
	if _, err := os.Stat("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"); err != nil {
		t.Errorf("this machine's own /sys: %v", err)
	}
}

func TestRealOrderTimeout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := SimForTest(t, SingleNode(), SimOptions{})
	testproc.Check(t, s.Stop(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Launch(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	// Its answer would be taken for another's: the simulation is over, and says so.
	testproc.ErrorIs(t, s.Stop(t.Context()), ErrRemotely, "%v")
	testproc.ErrorHas(t, s.Close(t.Context()), "killed", "closed: %v")
}

func TestEventFormat(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := Uevent{Action: "change", Path: "sys/devices/pci0000:80/0000:82:00.0", Subsystem: "pci",
		Properties: []string{"PCI_CLASS=30200"}}.message()
	if string(m[:8]) != "libudev\x00" || binary.BigEndian.Uint32(m[8:]) != 0xfeedcafe {
		t.Errorf("header % x", m[:12])
	}
	if got := binary.NativeEndian.Uint32(m[20:]); int(got) != len(m)-40 {
		t.Errorf("the properties have %d bytes, the header says %d", len(m)-40, got)
	}
	want := []string{"ACTION=change", "DEVPATH=/devices/pci0000:80/0000:82:00.0", "SUBSYSTEM=pci",
		"SEQNUM=1", "PCI_CLASS=30200", ""}
	testproc.Same(t, cmp.Diff(want, strings.Split(string(m[40:]), "\x00")))
}

// tried is mdevctl on a tree without daemon.
type tried struct {
	dir  string
	tree Tree
}

func tryOn(t *testing.T, h Host) tried {
	t.Helper()
	dir := t.TempDir()
	tree := testproc.Try(h.Sysfs(dir + "/host")).Or(t)
	testproc.Check(t, saveDefined(dir, inactive(h)))
	return tried{dir, tree}
}

func (t tried) run(stdin string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = mdevctl(t.dir, string(t.tree), args, strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

func TestMdevctlKeepsDefinitions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := tryOn(t, ManyCells())
	list := func() string {
		t.Helper()
		code, out, errs := d.run("", "list", "--dumpjson", "--defined")
		if code != 0 || !json.Valid([]byte(out)) {
			t.Fatal(code, out, errs)
		}
		return strings.TrimSpace(out)
	}
	if got, want := list(),
		`[{"10000:01:00.5":[{"b7c7d4b0-0c1e-4a3d-8a3e-00000000000a":`+
			`{"mdev_type":"nvidia-231","start":"manual"}}]}]`; got != want {
		t.Errorf("%s", got)
	}
	if code, _, errs := d.run("", "undefine", "--uuid", "b7c7d4b0-0c1e-4a3d-8a3e-00000000000a"); code != 0 {
		t.Error(errs)
	}
	testproc.Equal(t, list(), "[]", "nothing is %s")
	code, out, errs := d.run(`{"mdev_type":"nvidia-222","start":"manual"}`,
		"define", "--parent=10000:01:00.4", "--jsonfile=/dev/stdin")
	uuid := strings.TrimSpace(out)
	if code != 0 || len(uuid) != 36 {
		t.Fatal(code, out, errs)
	}
	if code, _, errs := d.run("", "modify", "--uuid="+uuid, "--auto"); code != 0 {
		t.Error(errs)
	}
	if got := list(); !strings.Contains(got, uuid) || !strings.Contains(got, `"start":"auto"`) {
		t.Error(got)
	}
	if code, _, _ := d.run(`{"mdev_type":"nvidia-222"}`,
		"define", "--parent=x", "--uuid="+uuid, "--jsonfile=/dev/stdin"); code == 0 {
		t.Error("defined twice")
	}
}

func TestMdevctlRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := tryOn(t, ManyCells())
	for _, tc := range []struct {
		stdin string
		args  []string
		says  string
	}{
		{"", nil, "no command"},
		{"", []string{"dance"}, "unknown command"},
		{"", []string{"stop", "--uuid=none"}, "no such file"},
		{"", []string{"start", "--uuid=none"}, fs.ErrNotExist.Error()},
		{"{}", []string{"start", "--parent=10000:01:00.4", "--jsonfile=/dev/stdin"}, "no mdev_type"},
		{"{", []string{"define", "--parent=10000:01:00.4", "--jsonfile=/dev/stdin"}, "EOF"},
		{`{"mdev_type":"nvidia-231"}`, []string{"start", "--parent=10000:01:00.4", "--jsonfile=/dev/stdin"},
			ErrNoInstance.Error()},
		{`{"mdev_type":"nvidia-231"}`, []string{"start", "--parent=0000:99:00.0", "--jsonfile=/dev/stdin"},
			"no such file"},
	} {
		if code, _, errs := d.run(tc.stdin, tc.args...); code == 0 || !strings.Contains(errs, tc.says) {
			t.Errorf("%v: %d, %q, want %q", tc.args, code, errs, tc.says)
		}
	}
}
