// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealCallsForAListOfDomains: however many domains there are: one call for the list, one for
// their states, one for each description that is wanted.
func TestRealCallsForAListOfDomains(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := privateDaemon(t)
	for _, n := range []int{1, 200} {
		counter := count(t, d.Socket())
		c := connect(t, Request{URI: counter.through(nodeFile(t, testhost.SingleNode(), domains(n)...))})
		counter.since()
		list, err := c.Domains(nil)
		if err != nil || len(list) != n {
			t.Fatalf("%d domains, %v", len(list), err)
		}
		if diff := cmp.Diff(map[uint32]int{procListAllDomains: 1, procGetAllDomainStats: 1},
			counter.since()); diff != "" {
			t.Errorf("%d domains: calls (-want +got):\n%s", n, diff)
		}
		list = testproc.Try(c.Domains(func(d Domain) bool { return d.State == Running })).Or(t)
		running := 0
		for i, d := range list {
			want := Domain{UUID: uuid(i), Name: fmt.Sprintf("instance-%08x", i), State: Running}
			if i%10 == 9 {
				want.State = ShutOff
			}
			if d.Name != want.Name || d.UUID != want.UUID || d.State != want.State ||
				(d.ID != NotRunning) != (d.State == Running) {
				t.Errorf("domain %d is %+v", i, d)
			}
			if described := strings.Contains(d.XML, "<uuid>"+d.UUID+"</uuid>"); described != (d.State == Running) {
				t.Errorf("domain %d in state %d, described: %v", i, d.State, described)
			}
			if d.State == Running {
				running++
			}
		}
		if diff := cmp.Diff(map[uint32]int{procListAllDomains: 1, procGetAllDomainStats: 1,
			procDomainGetXMLDesc: running}, counter.since()); diff != "" {
			t.Errorf("%d domains, those described that run: calls (-want +got):\n%s", n, diff)
		}
	}
}

const blank = `<domain type='test'><name>new</name><uuid>%s</uuid><memory ` +
	`unit='MiB'>16</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>`

// state is what the list says of one domain.
func state(t *testing.T, c Conn, uuid string) State {
	t.Helper()
	list := testproc.Try(c.Domains(nil)).Or(t)
	for _, d := range list {
		if d.UUID == uuid {
			return d.State
		}
	}
	return NoState
}

func TestRealLifeOfADomain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	events := make(chan Event, 100)
	c := connect(t, Request{URI: nodeFile(t, testhost.SingleNode()), Write: true, Event: func(e Event) { events <- e }})
	id := uuid(1)
	for _, step := range []struct {
		name  string
		do    func() error
		state State
		err   error
	}{
		{"start what there is not", func() error { return c.StartDomain(id) }, NoState, ErrNotFound},
		{"define nonsense", func() error { _, err := c.DefineDomain("<domain"); return err }, NoState, ErrRefused},
		{"define", func() error {
			got, err := c.DefineDomain(fmt.Sprintf(blank, id))
			if got != id {
				return errors.Join(err, fmt.Errorf("uuid %q", got))
			}
			return err
		}, ShutOff, nil},
		{"destroy what does not run", func() error { return c.DestroyDomain(id) }, ShutOff, ErrState},
		{"start", func() error { return c.StartDomain(id) }, Running, nil},
		{"reboot", func() error { return c.RebootDomain(id) }, Running, nil},
		{"autostart", func() error { return c.SetDomainAutostart(id, true) }, Running, nil},
		{"shut down", func() error { return c.ShutdownDomain(id) }, ShutOff, nil},
		{"start once more", func() error { return c.StartDomain(id) }, Running, nil},
		{"destroy", func() error { return c.DestroyDomain(id) }, ShutOff, nil},
		{"undefine", func() error { return c.UndefineDomain(id) }, NoState, nil},
		{"undefine again", func() error { return c.UndefineDomain(id) }, NoState, ErrNotFound},
		{"describe what is gone", func() error { _, err := c.DomainXML(id); return err }, NoState, ErrNotFound},
	} {
		if err := step.do(); !errors.Is(err, step.err) || (step.err == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		testproc.Equal(t, state(t, c, id), step.state, "%s: state %d", step.name)
	}
	for range 6 { // defined, started, stopped, started, stopped, undefined at least
		testproc.Equal(t, await(t, events), Event{Domain: id}, "event %+v")
	}
}

// await waits for the next event.
func await[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	limit := time.NewTimer(testproc.Patience) // longer than the longest pause of a link
	defer limit.Stop()
	select {
	case v = <-from:
	case <-limit.C:
		t.Fatal("nothing came")
	}
	return v
}

// TestRealReadOnlyConnectionChangesNothing: a connection that only looks cannot change anything,
// and says so.
func TestRealReadOnlyConnectionChangesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := connect(t, Request{URI: nodeFile(t, testhost.Sample(), domains(1)...)})
	id, device := uuid(0), testhost.NodeDeviceName("0000:82:00.0")
	for name, do := range map[string]func() error{
		"DefineDomain":       func() error { _, err := c.DefineDomain(fmt.Sprintf(blank, uuid(7))); return err },
		"StartDomain":        func() error { return c.StartDomain(id) },
		"ResumeDomain":       func() error { return c.ResumeDomain(id) },
		"ShutdownDomain":     func() error { return c.ShutdownDomain(id) },
		"RebootDomain":       func() error { return c.RebootDomain(id) },
		"DestroyDomain":      func() error { return c.DestroyDomain(id) },
		"UndefineDomain":     func() error { return c.UndefineDomain(id) },
		"SetDomainAutostart": func() error { return c.SetDomainAutostart(id, true) },
		"CreateDevice":       func() error { _, err := c.CreateDevice("<device/>"); return err },
		"DefineDevice":       func() error { _, err := c.DefineDevice("<device/>"); return err },
		"StartDevice":        func() error { return c.StartDevice(device) },
		"DestroyDevice":      func() error { return c.DestroyDevice(device) },
		"UndefineDevice":     func() error { return c.UndefineDevice(device) },
		"SetDeviceAutostart": func() error { return c.SetDeviceAutostart(device, true) },
	} {
		testproc.ErrorIs(t, do(), ErrReadOnly, "%s: %v", name)
	}
	testproc.Equal(t, state(t, c, id), Running, "state %d")
	if text, err := c.DomainXML(id); err != nil || !strings.Contains(text, id) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestRealCallsThatNeedWriteAccess: some questions need write access too. Refused write access is
// distinguished from a daemon that is down.
func TestRealCallsThatNeedWriteAccess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := privateDaemon(t)
	questions := func(c Conn) (errs [2]error) {
		_, errs[0] = c.DomainCapabilities(Emulator{})
		_, errs[1] = c.SEV()
		return errs
	}
	// The socket decides: on this one everybody only looks.
	c := connect(t, Request{URI: d.URI() + "-ro"})
	for i, err := range questions(c) {
		testproc.ErrorIs(t, err, ErrReadOnly, "question %d: %v", i)
	}
	// Here write access is granted; there are no emulators to report.
	c = connect(t, Request{URI: d.URI()})
	for i, err := range questions(c) {
		testproc.ErrorIs(t, err, ErrUnsupported, "question %d: %v", i)
	}
	testproc.Check(t, syscall.Kill(d.PID(), syscall.SIGKILL))
	<-d.Done()
	for i, err := range questions(c) {
		if err == nil || errors.Is(err, ErrReadOnly) || errors.Is(err, ErrUnsupported) {
			t.Errorf("question %d to a daemon that is gone: %v", i, err)
		}
	}
}

// guestUUID is one that no other guest of this machine has: its process is looked for by it.
var guestUUID = fmt.Sprintf("5e1f0000-0000-4000-8000-%012x", os.Getpid())

// TestRealLifeOfAGuest: a guest of QEMU's own CPU emulation, as the driver's instances live.
func TestRealLifeOfAGuest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.SingleNode(), testhost.SimOptions{Emulators: true})
	events := make(chan Event, 100)
	c := connect(t, Request{URI: s.URI(), Write: true, Event: func(e Event) { events <- e }})
	caps, err := c.DomainCapabilities(Emulator{Arch: "x86_64", Virt: "qemu", Machine: "q35"})
	if err != nil || !strings.Contains(caps, "<domainCapabilities>") || !strings.Contains(caps, "q35") {
		t.Errorf("%.200s, %v", caps, err)
	}
	looking := connect(t, Request{URI: s.URI()})
	if again, err := looking.DomainCapabilities(Emulator{Arch: "x86_64", Virt: "qemu", Machine: "q35"}); err != nil ||
		again != caps {
		t.Errorf("a connection without write access gets another answer: %.200s, %v", again, err)
	}
	if sev, err := looking.SEV(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("%+v, %v, want that there is no SEV here", sev, err)
	}
	id := guestUUID
	text := testhost.Domain{Name: "one", UUID: id, VCPUs: 1, MemoryMiB: 16}.XML("qemu")
	testproc.Try(c.DefineDomain(text)).Or(t)
	testproc.Check(t, c.StartDomain(id))
	list, err := looking.Domains(func(Domain) bool { return true })
	if err != nil || len(list) != 1 || list[0].State != Running ||
		!strings.Contains(list[0].XML, "<domain type='qemu' id='") {
		t.Errorf("%+v, %v", list, err)
	}
	emulator := process(t, id)
	testproc.Check(t, emulator.Signal(syscall.SIGSTOP))
	hung, err := looking.Domains(func(Domain) bool { return true })
	if diff := cmp.Diff(list, hung); err != nil || diff != "" {
		t.Errorf("a guest that hangs holds the list up, or changes it: %v\n%s", err, diff)
	}
	testproc.Check(t, emulator.Signal(syscall.SIGCONT))
	testproc.ErrorIs(t, c.StartDomain(id), ErrState, "started twice: %v")
	testproc.ErrorIs(t, c.ResumeDomain(id), ErrState, "resumed, and never paused: %v")
	testproc.NoError(t, errors.Join(c.SetDomainAutostart(id, true), c.RebootDomain(id), c.ShutdownDomain(id),
		c.DestroyDomain(id), c.UndefineDomain(id)))
	testproc.Equal(t, state(t, c, id), NoState, "state %d")
	if e := await(t, events); e.Domain != id {
		t.Errorf("event %+v", e)
	}
	_, err = c.DefineDomain(strings.Replace(text, "hvm", "hvm2", 1))
	testproc.ErrorIs(t, err, ErrRefused, "a guest that cannot be: %v")
}

// process is the one that has a guest's uuid on its command line.
func process(t *testing.T, uuid string) *os.Process {
	t.Helper()
	files := testproc.Try(filepath.Glob("/proc/[0-9]*/cmdline")).Or(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "-uuid\x00"+uuid) {
			continue
		}
		pid := testproc.Try(strconv.Atoi(filepath.Base(filepath.Dir(file)))).Or(t)
		return testproc.Try(os.FindProcess(pid)).Or(t)
	}
	t.Fatalf("no process with the uuid %s", uuid)
	return nil
}

func BenchmarkDomains(b *testing.B) {
	d := privateDaemon(b)
	for _, n := range []int{10, 200, 1000} {
		c := connect(b, Request{URI: (&counter{socket: d.Socket()}).
			through(nodeFile(b, testhost.SingleNode(), domains(n)...))})
		for what, want := range map[string]func(Domain) bool{"list": nil,
			"list and XML": func(Domain) bool { return true }} {
			b.Run(fmt.Sprintf("%d/%s", n, what), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					list, err := c.Domains(want)
					if err != nil || len(list) != n ||
						!slices.IsSortedFunc(list, func(x, y Domain) int { return strings.Compare(x.UUID, y.UUID) }) {
						b.Fatal(len(list), err)
					}
				}
			})
		}
	}
}
