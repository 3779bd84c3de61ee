// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
)

// The power of dedicated CPUs: those that a thread of a running domain is bound to are on, also of
// domains that the driver did not make, and so are those of a guest that is about to start. The
// others are off.
//
// What runs is the only record. So a process that ends at any point leaves nothing to be undone:
// the next one settles the power by what runs then.

// PowerSetup is what a [CPUPower] works with.
type PowerSetup struct {
	selection.Power
	// Chroot is the directory that has sys in it.
	Chroot string
	// Discover takes note of where the CPUs are that are online, and returns those whose place is
	// not known: they are switched on for a moment.
	Discover func() (unknown []int, err error)
	// Read is the connection for lists.
	Read *hypervisor.Link
}

// CPUPower switches CPUs. It is safe for concurrent use.
type CPUPower struct {
	eventLog *hypervisor.EventLog
	// write puts a text into a file of the kernel.
	write func(root *os.Root, name, text string) error
	// switching is held while CPUs are switched, from the list of the domains on: nothing starts
	// meanwhile.
	switching lock
	holds     map[string][]int // CPUs of domains that are being started, by uuid
	known     map[string]bound
	refused   string // why a guest could not start, until a CPU is switched

	mu      sync.Mutex
	setup   *PowerSetup
	settled *PowerSetup // for which the last attempt succeeded
	problem string
}

// bound are the CPUs of a domain.
type bound struct {
	key    hypervisor.Key
	cpus   []int
	broken error
}

func newCPUPower(eventLog *hypervisor.EventLog) *CPUPower {
	return &CPUPower{eventLog: eventLog, write: writeKernel, switching: make(lock, 1), holds: map[string][]int{}}
}

func (p *CPUPower) setSetup(s *PowerSetup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setup, p.settled, p.problem = s, nil, ""
}

func (p *CPUPower) current() (s *PowerSetup, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.setup == nil || len(p.setup.Managed) == 0 {
		return nil, true
	}
	return p.setup, p.settled == p.setup
}

// Problem is why CPUs are not as they should be, or "".
func (p *CPUPower) Problem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// WhileUnswitched calls f while no CPU is switched: the kernel's files are about one state then.
func (p *CPUPower) WhileUnswitched(ctx context.Context, f func()) error {
	if err := p.switching.acquire(ctx); err != nil {
		return err
	}
	defer p.switching.release()
	f()
	return nil
}

// Reconcile switches each CPU on or off, as the running guests need it. An unreachable libvirt is
// an error but not a [CPUPower.Problem].
//
// Cost: a file for each CPU, two calls of libvirt, and one for each running domain that something
// happened to; for each running domain before a CPU is switched off.
func (p *CPUPower) Reconcile(ctx context.Context) error {
	if err := p.switching.acquire(ctx); err != nil {
		return err
	}
	defer p.switching.release()
	s, _ := p.current()
	if s == nil {
		return nil
	}
	err := p.reconcile(ctx, s)
	p.recordOutcome(s, err)
	return err
}

func (p *CPUPower) recordOutcome(s *PowerSetup, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.setup != s {
		return
	}
	var stuck *switchError
	switch {
	case err == nil:
		p.settled, p.problem = s, p.refused
	case errors.As(err, &stuck):
		p.settled, p.problem = nil, stuck.Error()
	default:
		p.settled = nil
	}
}

func (p *CPUPower) reconcile(ctx context.Context, s *PowerSetup) error {
	files, err := openCPUs(s, p.write)
	if err != nil {
		return err
	}
	defer files.close()
	stuck := switchError{}
	if _, applied := p.current(); !applied {
		if err := p.discover(s, files, &stuck); err != nil {
			return err
		}
	}
	needed, err := p.needed(ctx, s, false)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.Managed, func(cpu int) bool { return !needed[cpu] && !files.hasState(cpu, false) }) {
		if needed, err = p.needed(ctx, s, true); err != nil { // libvirt has no event for changed pins
			return err
		}
	}
	for _, cpu := range s.Managed {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !files.hasState(cpu, needed[cpu]) {
			stuck.add(cpu, p.switchCPU(files, cpu, needed[cpu]))
		}
	}
	return stuck.orNil()
}

// discover switches CPUs on of which the kernel tells no more while they are offline.
func (p *CPUPower) discover(s *PowerSetup, files *cpuFiles, stuck *switchError) error {
	unknown, err := s.Discover()
	if err != nil || len(unknown) == 0 {
		return err
	}
	for _, cpu := range unknown {
		stuck.add(cpu, p.switchCPU(files, cpu, true))
	}
	_, err = s.Discover()
	return err
}

// needed are the CPUs that must be on. all reads every XML again. An unreadable one is an error.
func (p *CPUPower) needed(ctx context.Context, s *PowerSetup, all bool) (map[int]bool, error) {
	known := p.known
	list, err := hypervisor.Domains(ctx, s.Read, func(d hypervisor.Domain) bool {
		e, is := known[d.UUID]
		return d.ID != hypervisor.NotRunning && (all || !is || e.key != d.Key())
	})
	if err != nil {
		return nil, err
	}
	next, on := map[string]bound{}, map[int]bool{}
	var broken []string
	for _, d := range list {
		if d.ID == hypervisor.NotRunning {
			continue
		}
		e := known[d.UUID]
		if d.XML != "" {
			is, err := domain.Parse([]byte(d.XML))
			e = bound{key: d.Key(), cpus: is.Bound(), broken: err}
		}
		if next[d.UUID] = e; e.broken != nil {
			broken = append(broken, fmt.Sprintf("libvirt's XML of domain %.80q cannot be read: %v", d.Name, e.broken))
		}
		for _, cpu := range e.cpus {
			on[cpu] = true
		}
	}
	p.known = next
	for _, cpus := range p.holds {
		for _, cpu := range cpus {
			on[cpu] = true
		}
	}
	if len(broken) > 0 {
		return nil, &switchError{reason: "no CPU is switched: " + machine.JoinSome(broken)}
	}
	return on, nil
}

// hold switches the CPUs of a domain on and keeps them on until release.
func (p *CPUPower) hold(ctx context.Context, uuid string, cpus []int) error {
	if err := p.switching.acquire(ctx); err != nil {
		return err
	}
	defer p.switching.release()
	p.holds[uuid] = cpus // also for a setup that comes while the domain starts
	s, _ := p.current()
	if s == nil {
		return nil
	}
	files, err := openCPUs(s, p.write)
	if err != nil {
		return err
	}
	defer files.close()
	stuck := switchError{}
	for _, cpu := range cpus {
		if _, managed := slices.BinarySearch(s.Managed, cpu); managed && !files.hasState(cpu, true) {
			stuck.add(cpu, p.switchCPU(files, cpu, true))
		}
	}
	if err := stuck.orNil(); err != nil {
		delete(p.holds, uuid)
		p.refused = err.Error()
		p.recordOutcome(s, err)
		return err
	}
	return nil
}

// switchCPU switches a CPU.
func (p *CPUPower) switchCPU(files *cpuFiles, cpu int, on bool) error {
	err := files.switchCPU(cpu, on)
	if err == nil {
		p.refused = ""
	}
	return err
}

// release leaves the CPUs of a domain to what runs. They are switched at the latest when follow
// looks again.
func (p *CPUPower) release(uuid string) {
	p.switching <- struct{}{}
	delete(p.holds, uuid)
	p.switching.release()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = nil
}

// powerInterval is how often it is looked whether CPUs must be switched, without an event.
const powerInterval = 10 * time.Second

// follow settles the power now, with the events of domains, and again after a failure, until ctx
// ends.
func (p *CPUPower) follow(ctx context.Context) {
	w := p.eventLog.Watch(settle, resync)
	defer w.Close()
	for happened := true; ctx.Err() == nil; {
		if s, applied := p.current(); s != nil && (happened || !applied) {
			p.reconcileLater(ctx)
		}
		limited, cancel := context.WithTimeout(ctx, powerInterval)
		_, err := w.Next(limited)
		happened = err == nil
		cancel()
	}
}

// reconcileLater is Reconcile of which a failure is the next attempt's.
func (p *CPUPower) reconcileLater(ctx context.Context) {
	before := p.Problem()
	err := p.Reconcile(ctx)
	if after := p.Problem(); err != nil && after != "" && after != before {
		log := plugins.Logger(ctx)
		log.Warn().Err(err).Msg("Could not switch dedicated CPUs. Trying again every 10 s.")
	}
}

// switchError are CPUs that are not as they should be.
type switchError struct {
	reason string
	cpus   []int
	first  error
}

func (e *switchError) add(cpu int, err error) {
	if err == nil {
		return
	}
	if e.cpus = append(e.cpus, cpu); e.first == nil {
		e.first = err
	}
}

func (e *switchError) orNil() error {
	if len(e.cpus) == 0 {
		return nil
	}
	return e
}

func (e *switchError) Error() string {
	if e.reason != "" {
		return e.reason
	}
	return fmt.Sprintf("CPUs %s are not switched: %v%s", machine.FormatCPUs(e.cpus), e.first, hint(e.first))
}

func (e *switchError) Unwrap() error { return e.first }

// hint returns what an operator can do about an error of the kernel, or "".
func hint(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return `; let the agent's user write these files, see "Power of dedicated CPUs" in docs/libvirt.md ` +
			`(compute-agent doctor has the commands)`
	case errors.Is(err, syscall.EBUSY):
		return "; something keeps the CPU busy: see the kernel's log"
	case errors.Is(err, fs.ErrNotExist):
		return "; the kernel does not scale the frequency of this CPU: use cpu_power_management_strategy = " +
			"\"cpu_state\""
	case errors.Is(err, syscall.EINVAL):
		return "; the kernel does not have this governor, see scaling_available_governors beside the file"
	}
	return ""
}

// Closed is why CPUs cannot be switched, or "", without a change.
func (s *PowerSetup) Closed() string {
	stuck := switchError{}
	for _, cpu := range s.Managed {
		file := filepath.Join("/", s.Chroot, s.file(cpu))
		if err := unix.Access(file, unix.W_OK); err != nil && !s.optional(err) {
			stuck.add(cpu, &fs.PathError{Op: "open", Path: file, Err: err})
		}
	}
	if err := stuck.orNil(); err != nil {
		return err.Error()
	}
	return ""
}

// optional reports whether an error is that of a CPU that is always online.
func (s *PowerSetup) optional(err error) bool {
	return !s.ByGovernor() && errors.Is(err, fs.ErrNotExist)
}

// file returns the path of the file, below the root, that switches a CPU.
func (s *PowerSetup) file(cpu int) string {
	if s.ByGovernor() {
		return fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu)
	}
	return fmt.Sprintf("sys/devices/system/cpu/cpu%d/online", cpu)
}

// state returns the content of the file for a CPU that is switched on or off.
func (s *PowerSetup) state(on bool) string {
	switch {
	case s.ByGovernor() && on:
		return s.High
	case s.ByGovernor():
		return s.Low
	case on:
		return "1"
	}
	return "0"
}

// cpuFiles are the kernel's files about CPUs.
type cpuFiles struct {
	setup *PowerSetup
	root  *os.Root
	write func(root *os.Root, name, text string) error
}

func openCPUs(s *PowerSetup, write func(*os.Root, string, string) error) (*cpuFiles, error) {
	root, err := os.OpenRoot(filepath.Join("/", s.Chroot))
	if err != nil {
		return nil, fmt.Errorf("switching CPUs: %w", err)
	}
	return &cpuFiles{setup: s, root: root, write: write}, nil
}

func (f *cpuFiles) close() { _ = f.root.Close() }

// hasState reports whether a CPU is on, or off. One that is always online is what it should be.
func (f *cpuFiles) hasState(cpu int, on bool) bool {
	text, err := readKernel(f.root, f.setup.file(cpu))
	return err == nil && text == f.setup.state(on) || err != nil && f.setup.optional(err)
}

// switchCPU switches a CPU.
func (f *cpuFiles) switchCPU(cpu int, on bool) error {
	name, state := f.setup.file(cpu), f.setup.state(on)
	if err := f.write(f.root, name, state); err != nil {
		return err
	}
	if text, err := readKernel(f.root, name); err != nil || text != state {
		return errors.Join(fmt.Errorf("/%s has %.40q after %q was written", name, text, state), err)
	}
	return nil
}

func writeKernel(root *os.Root, name, text string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func readKernel(root *os.Root, name string) (string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	return strings.TrimSpace(string(text)), errors.Join(err, f.Close())
}
