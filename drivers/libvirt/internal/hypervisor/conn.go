// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"io"
)

// Conn is an open connection to libvirt. Calls block for as long as libvirt does, and are made one
// at a time. What they return refers to nothing of libvirt's: all objects of the library are given
// back before a call returns, even if its caller gave up.
//
// Every call may return [ErrUnsupported], and those that name one thing return [ErrNotFound] if
// there is none.
type Conn interface {
	// Type is the hypervisor driver: "QEMU", "TEST", ….
	Type() (string, error)
	// Hostname is the machine's name as libvirt resolves it.
	Hostname() (string, error)
	NodeInfo() (NodeInfo, error)
	// Versions returns the versions of the daemon and of the hypervisor that it runs guests with,
	// as libvirt writes them: 9.1.2 is 9001002; the latter is 0 if there is none, such as with a
	// daemon without emulators.
	Versions() (daemon, hypervisor uint64, err error)
	// CPUMap reports for each host CPU, by its number, whether it is online.
	CPUMap() ([]bool, error)
	// Capabilities is the XML that describes the host and what its emulators can run.
	Capabilities() (string, error)
	// DomainCapabilities is the XML that describes what a domain of some kind can have.
	//
	// libvirt answers this to connections with write access only (it may run the emulator that it
	// is asked about). On a read-only one, a second connection is made for this call alone. Errors:
	// [ErrReadOnly] if that is refused.
	DomainCapabilities(e Emulator) (string, error)
	// SEV is what the host can encrypt with AMD's memory encryption. Write access is needed as for
	// DomainCapabilities. Errors: [ErrUnsupported] on hosts that cannot; [ErrReadOnly].
	SEV() (SEV, error)
	// ExpandCPU returns a <cpu> element in which all features that the model of the given one
	// stands for are listed.
	ExpandCPU(cpu string) (string, error)
	// CPUModels are libvirt's names of the CPU models of an architecture.
	CPUModels(arch string) ([]string, error)
	// Domains lists all domains in the order of their uuids, running or only defined: all or an
	// error. want chooses those whose XML is read as well; nil: none.
	//
	// Cost: one call for the list and one for all states, however many there are, and one for each
	// XML. None of them waits for an emulator: a guest that hangs does not hold them up.
	Domains(want func(Domain) bool) ([]Domain, error)
	// DomainXML describes one domain: as it runs, or as it is defined if it does not. Cost: two
	// calls.
	DomainXML(uuid string) (string, error)
	// NodeDevices lists devices of the host in the order of their names, those that are only
	// defined among them: all or an error. want chooses those whose XML is read as well; nil: none.
	//
	// Cost: two calls for the list, and one for each XML. libvirt reads the kernel's files again
	// for each.
	NodeDevices(want func(NodeDevice) bool, kinds ...DeviceKind) ([]NodeDevice, error)
	// NodeDeviceXML describes one device. Cost: two calls.
	NodeDeviceXML(name string) (string, error)
	// Alive reports whether the connection can still be used, without asking the daemon.
	Alive() bool
	// Close gives the connection back. An error means that something still refers to it: a leak.
	Close() error

	Writer
}

// Writer is what changes something. All of it returns [ErrReadOnly] on a connection without write
// access, [ErrState] where a domain or device is not in a state that allows it (it runs already, it
// does not run), and [ErrRefused] if what is described cannot be.
type Writer interface {
	// DefineDomain makes a domain of its XML, or changes the definition of the existing one with
	// its uuid, whatever created it. It returns the uuid.
	DefineDomain(xml string) (uuid string, err error)
	// StartDomain starts a domain that is defined. It takes a second or more.
	StartDomain(uuid string) error
	// ResumeDomain lets a paused domain go on.
	ResumeDomain(uuid string) error
	// ShutdownDomain asks the guest to shut down, and returns at once.
	ShutdownDomain(uuid string) error
	// RebootDomain asks the guest to boot again, and returns at once.
	RebootDomain(uuid string) error
	// DestroyDomain switches a domain off. That takes up to half a minute if its emulator does not
	// end when asked to.
	DestroyDomain(uuid string) error
	// OpenConsole opens the first console of a domain that runs. It has a connection of its own,
	// which Close gives back. Errors: [ErrInUse] while another user has it.
	OpenConsole(uuid string) (io.ReadWriteCloser, error)
	// UndefineDomain takes back the definition of a domain and what libvirt keeps beside it: saved
	// state, the guest's firmware variables and TPM, what is known of snapshots and checkpoints. A
	// domain that runs goes on without definition.
	UndefineDomain(uuid string) error
	// SetDomainAutostart reports whether the daemon starts a domain when the host boots.
	SetDomainAutostart(uuid string, on bool) error

	// CreateDevice makes a mediated device that lasts until the host boots. It returns the device's
	// name. A daemon whose udev thread is broken takes 60 s to find that out: allow it more.
	CreateDevice(xml string) (name string, err error)
	// DefineDevice defines a mediated device, to be made by StartDevice or when the host boots.
	DefineDevice(xml string) (name string, err error)
	// StartDevice makes a device that is defined.
	StartDevice(name string) error
	// DestroyDevice takes a mediated device away; a definition stays.
	DestroyDevice(name string) error
	// UndefineDevice takes the definition of a mediated device back.
	UndefineDevice(name string) error
	// SetDeviceAutostart reports whether a device that is defined is made when the host boots.
	SetDeviceAutostart(name string, on bool) error
}

// NodeInfo is what libvirt says of the host in figures.
type NodeInfo struct {
	// MemoryKiB is the memory of all NUMA nodes.
	MemoryKiB uint64
	// CPUs is the number of online CPUs.
	CPUs uint
}

// Emulator says which domains [Conn.DomainCapabilities] are for. Empty fields stand for libvirt's
// choice.
type Emulator struct {
	// Path is the path of the program.
	Path string
	// Arch is the guest's: x86_64; Machine the kind of board: q35; Virt is kvm or qemu.
	Arch, Machine, Virt string
}

// SEV is what a host has of AMD's memory encryption.
type SEV struct {
	// MaxGuests and MaxESGuests are how many guests with SEV and with SEV-ES can run; 0 where
	// libvirt (before 8.0) does not say.
	MaxGuests, MaxESGuests uint
}

// DeviceKind is a kind of node devices.
type DeviceKind int

// The kinds of node devices.
const (
	// PCIDevices are all functions on PCI buses.
	PCIDevices DeviceKind = iota
	// MdevParents are what mediated devices can be made of, PCI or not.
	MdevParents
	// Mdevs are mediated devices.
	Mdevs
	// NetDevices are network interfaces; their parents are PCI devices.
	NetDevices
)

// NodeDevice is a device of the host.
type NodeDevice struct {
	// Name is libvirt's: pci_0000_82_00_0.
	Name string
	// Active devices are there; others are only defined. Hypervisor drivers without this
	// distinction have active ones only.
	Active bool
	// XML is the description, if it was wanted.
	XML string
}

// Request is for a connection.
type Request struct {
	// URI is libvirt's.
	URI string
	// Write asks for write access.
	Write bool
	// Closed is called at most once, from any goroutine, when the connection breaks; nil: not
	// called.
	Closed func(reason string)
	// Event is called from any goroutine for each event; nil: not called. It must not block.
	Event func(Event)
}

// Open opens a connection. It blocks for as long as the daemon does not answer.
type Open func(Request) (Conn, error)

// State is the state of a domain, with libvirt's numbers (virDomainState).
type State int

// The states of domains.
const (
	NoState      State = 0
	Running      State = 1
	Blocked      State = 2
	Paused       State = 3
	ShuttingDown State = 4
	ShutOff      State = 5
	Crashed      State = 6
	PMSuspended  State = 7
)

// NotRunning is the ID of a domain that is only defined.
const NotRunning = -1

// Domain is a domain in a list.
type Domain struct {
	// UUID is in lower case with hyphens.
	UUID, Name string
	// ID is another one each time that the domain starts, or NotRunning.
	ID int
	// State and Reason are libvirt's numbers; what a reason means depends on the state.
	State  State
	Reason int
	// Revision rises with every event about the domain, and for all domains when events may have
	// been lost. It is filled in by [Domains].
	Revision uint64
	// XML is the description, if it was wanted.
	XML string
}

// Key is what libvirt reports about a domain without its XML: while it is equal, the XML very
// likely is, too. libvirt has no number of versions, and no event for the change of a definition
// alone (virsh vcpupin --config) or of pins (virsh vcpupin --live): users of keys must still read
// the XML from time to time.
type Key struct {
	ID       int
	State    State
	Reason   int
	Revision uint64
}

// Key is the domain's now.
func (d Domain) Key() Key {
	return Key{ID: d.ID, State: d.State, Reason: d.Reason, Revision: d.Revision}
}

// Domains lists the domains over a link as [Conn.Domains] does, with their revisions. want is
// called in the link's goroutine, with everything but the XML; the XML is read after the revision
// was, so that a change between the two shows in the next list.
func Domains(ctx context.Context, l *Link, want func(Domain) bool) ([]Domain, error) {
	return Call(ctx, l, "the domains", func(c Conn) ([]Domain, error) {
		revisions := map[string]uint64{}
		list, err := c.Domains(func(d Domain) bool {
			d.Revision = l.settings.EventLog.revision(d.UUID)
			revisions[d.UUID] = d.Revision
			return want != nil && want(d)
		})
		for i := range list {
			list[i].Revision = revisions[list[i].UUID]
		}
		return list, err
	})
}
