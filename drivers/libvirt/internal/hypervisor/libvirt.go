// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

// A daemon that does not respond for keepAliveInterval * (keepAliveCount + 1) is given up: its
// calls return an error.
const (
	keepAliveInterval = 5 // seconds
	keepAliveCount    = 3
)

// loopTurn bounds the wait for the event loop when a connection is closed.
const loopTurn = 5 * time.Second

// startLoop registers and runs libvirt's event loop, which must be there before the first
// connection. It runs for as long as the process: the library has no way to take it back.
var startLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	go func() {
		for {
			if err := libvirt.EventRunDefaultImpl(); err != nil {
				time.Sleep(time.Second) // never in a loop of errors without pause
			}
		}
	}()
	return nil
})

// OpenLibvirt makes a connection with libvirt's library: read-only unless write access is asked
// for. It blocks as long as the daemon does not answer.
func OpenLibvirt(r Request) (Conn, error) {
	return openLibvirt(r, keepAliveInterval, keepAliveCount)
}

func openLibvirt(r Request, interval int, count uint) (Conn, error) {
	c, err := dial(r.URI, r.Write, interval, count)
	if err != nil {
		return nil, err
	}
	conn := &libvirtConn{c: c, uri: r.URI, write: r.Write}
	if err := errors.Join(conn.watchEnd(r.Closed), conn.watchEvents(r.Event)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// dial connects and arms keep-alive, which drivers without a daemon (test:///) do not know.
func dial(uri string, write bool, interval int, count uint) (*libvirt.Connect, error) {
	if err := startLoop(); err != nil {
		return nil, err
	}
	connect := libvirt.NewConnectReadOnly
	if write {
		connect = libvirt.NewConnect
	}
	c, err := connect(uri)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if err := c.SetKeepAlive(interval, count); err != nil && !unsupported(err) {
		return nil, errors.Join(fmt.Errorf("arming keep-alive: %w", err), hangUp(c))
	}
	return c, nil
}

type libvirtConn struct {
	c      *libvirt.Connect
	uri    string
	write  bool
	events []func() error // take back what is registered
}

// watchEnd registers for the end of the connection.
func (c *libvirtConn) watchEnd(closed func(reason string)) error {
	if closed == nil {
		return nil
	}
	err := c.c.RegisterCloseCallback(func(_ *libvirt.Connect, reason libvirt.ConnectCloseReason) {
		closed(reasonText(reason))
	})
	if err != nil && !unsupported(err) {
		return fmt.Errorf("registering for the end of the connection: %w", err)
	}
	return nil
}

// writable runs f on a connection with write access: this one, or one that is made for it alone.
// libvirt refuses some questions to read-only connections.
func (c *libvirtConn) writable(f func(*libvirt.Connect) error) error {
	if c.write {
		return f(c.c)
	}
	w, err := dial(c.uri, true, keepAliveInterval, keepAliveCount)
	if err != nil {
		return denied(c.uri, err)
	}
	return errors.Join(f(w), hangUp(w))
}

// denied distinguishes a refusal of write access, which is permanent, from a daemon that is
// unavailable.
func denied(uri string, err error) error {
	if refused := translate(err); errors.Is(refused, ErrReadOnly) {
		return refused
	}
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	why := Explain(ctx, uri, true, err)
	if errors.Is(why, libvirtd.ErrPermission) {
		return fmt.Errorf("%w: %w", ErrReadOnly, why)
	}
	return why
}

func reasonText(r libvirt.ConnectCloseReason) string {
	switch r {
	case libvirt.CONNECT_CLOSE_REASON_EOF:
		return "the daemon ended"
	case libvirt.CONNECT_CLOSE_REASON_KEEPALIVE:
		return "the daemon stopped responding"
	case libvirt.CONNECT_CLOSE_REASON_CLIENT:
		return "closed by the driver"
	}
	return "error on the socket"
}

func (c *libvirtConn) Type() (string, error) { return c.c.GetType() }

func (c *libvirtConn) Hostname() (string, error) { return c.c.GetHostname() }

func (c *libvirtConn) NodeInfo() (NodeInfo, error) {
	n, err := c.c.GetNodeInfo()
	if err != nil {
		return NodeInfo{}, translate(err)
	}
	return NodeInfo{MemoryKiB: n.Memory, CPUs: n.Cpus}, nil
}

func (c *libvirtConn) Versions() (daemon, emulator uint64, err error) {
	lib, err := c.c.GetLibVersion()
	if err != nil {
		return 0, 0, translate(err)
	}
	if own, err := c.c.GetVersion(); err == nil { // else no emulator is installed
		emulator = uint64(own)
	}
	return uint64(lib), emulator, nil
}

func (c *libvirtConn) CPUMap() ([]bool, error) {
	m, _, err := c.c.GetCPUMap(0)
	if err != nil {
		return nil, translate(err)
	}
	online := make([]bool, len(m))
	for i := range online {
		online[i] = m[i]
	}
	return online, nil
}

func (c *libvirtConn) Capabilities() (string, error) { return c.c.GetCapabilities() }

func (c *libvirtConn) DomainCapabilities(e Emulator) (text string, err error) {
	err = c.writable(func(w *libvirt.Connect) (err error) {
		text, err = w.GetDomainCapabilities(e.Path, e.Arch, e.Machine, e.Virt, 0)
		return translate(err)
	})
	return text, err
}

func (c *libvirtConn) SEV() (sev SEV, err error) {
	err = c.writable(func(w *libvirt.Connect) error {
		p, err := w.GetSEVInfo(0)
		if err == nil {
			sev = SEV{MaxGuests: p.MaxGuests, MaxESGuests: p.MaxEsGuests}
		}
		return translate(err)
	})
	return sev, err
}

func (c *libvirtConn) CPUModels(arch string) ([]string, error) {
	names, err := c.c.GetCPUModelNames(arch, 0)
	return names, translate(err)
}

func (c *libvirtConn) ExpandCPU(cpu string) (string, error) {
	x, err := c.c.BaselineCPU([]string{cpu}, libvirt.CONNECT_BASELINE_CPU_EXPAND_FEATURES)
	return x, translate(err)
}

func (c *libvirtConn) Alive() bool {
	alive, err := c.c.IsAlive()
	return err == nil && alive
}

// Close takes back what refers to the connection, and closes.
func (c *libvirtConn) Close() error {
	for _, deregister := range c.events {
		_ = deregister() // on a dead connection an error, yet the reference is dropped
	}
	c.events = nil
	_ = c.c.UnregisterCloseCallback() // likewise
	return hangUp(c.c)
}

// hangUp lets the event loop let go of a connection, and closes it.
func hangUp(c *libvirt.Connect) error {
	turnLoop()
	n, err := c.Close()
	if err != nil {
		return err
	}
	if n != 0 {
		return fmt.Errorf("the connection leaks: %d references remain", n)
	}
	return nil
}

// turnLoop waits until the event loop has been round twice: the library frees callbacks, and the
// references that they hold, in a later iteration than the one that removed them.
func turnLoop() {
	for range 2 {
		turned := make(chan struct{}, 1)
		timer, err := libvirt.EventAddTimeout(0, func(int) {
			select {
			case turned <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return
		}
		limit := time.NewTimer(loopTurn)
		select {
		case <-turned:
		case <-limit.C:
		}
		limit.Stop()
		_ = libvirt.EventRemoveTimeout(timer)
	}
}
