// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package binding

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

// A daemon that is silent for keepAliveInterval * (keepAliveCount + 1) is given up: its calls return with an error.
const (
	keepAliveInterval = 5 // seconds
	keepAliveCount    = 3
)

// loopTurn bounds the wait for the event loop when a connection is closed.
const loopTurn = time.Second

// startLoop registers and runs libvirt's event loop, which must be there before the first connection. It runs for as
// long as the process: the library has no way to take it back.
var startLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("%w: %w", hypervisor.ErrNoLibrary, err)
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

// Open makes a read-only connection: enough to learn everything, and not able to change anything. It blocks as long as
// the daemon does not answer.
func Open(uri string, closed func(reason string)) (hypervisor.Conn, error) {
	return open(uri, keepAliveInterval, keepAliveCount, closed)
}

func open(uri string, interval int, count uint, closed func(reason string)) (hypervisor.Conn, error) {
	if err := startLoop(); err != nil {
		return nil, err
	}
	c, err := libvirt.NewConnectReadOnly(uri)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	conn := &connection{c: c}
	if err := conn.watch(interval, count, closed); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

type connection struct{ c *libvirt.Connect }

// watch arms keep-alive and the news of the end. Drivers without a daemon (test:///) know neither.
func (c *connection) watch(interval int, count uint, closed func(reason string)) error {
	if err := c.c.SetKeepAlive(interval, count); err != nil && !unsupported(err) {
		return fmt.Errorf("arming keep-alive: %w", err)
	}
	err := c.c.RegisterCloseCallback(func(_ *libvirt.Connect, reason libvirt.ConnectCloseReason) {
		closed(reasonText(reason))
	})
	if err != nil && !unsupported(err) {
		return fmt.Errorf("asking for news of the connection's end: %w", err)
	}
	return nil
}

func reasonText(r libvirt.ConnectCloseReason) string {
	switch r {
	case libvirt.CONNECT_CLOSE_REASON_EOF:
		return "the daemon ended"
	case libvirt.CONNECT_CLOSE_REASON_KEEPALIVE:
		return "the daemon did not answer any more"
	case libvirt.CONNECT_CLOSE_REASON_CLIENT:
		return "closed by ourselves"
	}
	return "error on the socket"
}

func (c *connection) Type() (string, error) { return c.c.GetType() }

func (c *connection) Hostname() (string, error) { return c.c.GetHostname() }

func (c *connection) NodeInfo() (hypervisor.NodeInfo, error) {
	n, err := c.c.GetNodeInfo()
	if err != nil {
		return hypervisor.NodeInfo{}, err
	}
	return hypervisor.NodeInfo{MemoryKiB: n.Memory, CPUs: n.Cpus}, nil
}

func (c *connection) CPUMap() ([]bool, error) {
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

func (c *connection) Capabilities() (string, error) { return c.c.GetCapabilities() }

func (c *connection) ExpandCPU(cpu string) (string, error) {
	x, err := c.c.BaselineCPU([]string{cpu}, libvirt.CONNECT_BASELINE_CPU_EXPAND_FEATURES)
	return x, translate(err)
}

// novaMetadata are the names of the elements that Nova attaches to its domains: the present one and that of before 2020.
var novaMetadata = []string{"http://openstack.org/xmlns/libvirt/nova/1.1", "http://openstack.org/xmlns/libvirt/nova/1.0"}

// Guests takes one call for the list and two to three for each domain. One that goes meanwhile is left out: it is no guest any more.
func (c *connection) Guests() ([]hypervisor.Guest, error) {
	domains, err := c.c.ListAllDomains(0)
	if err != nil {
		return nil, translate(err)
	}
	defer func() {
		for i := range domains {
			_ = domains[i].Free()
		}
	}()
	guests := make([]hypervisor.Guest, 0, len(domains))
	for i := range domains {
		g, err := guest(&domains[i])
		switch {
		case is(err, libvirt.ERR_NO_DOMAIN):
		case err != nil:
			return nil, fmt.Errorf("domain %q: %w", g.Name, err)
		default:
			guests = append(guests, g)
		}
	}
	return guests, nil
}

func guest(d *libvirt.Domain) (g hypervisor.Guest, err error) {
	if g.Name, err = d.GetName(); err != nil {
		return g, err
	}
	if g.UUID, err = d.GetUUIDString(); err != nil {
		return g, err
	}
	for _, uri := range novaMetadata {
		g.Metadata, err = d.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, uri, libvirt.DOMAIN_AFFECT_CURRENT)
		if !is(err, libvirt.ERR_NO_DOMAIN_METADATA) {
			break
		}
	}
	if is(err, libvirt.ERR_NO_DOMAIN_METADATA) || unsupported(err) {
		return g, nil
	}
	return g, err
}

func is(err error, code libvirt.ErrorNumber) bool {
	var e libvirt.Error
	return errors.As(err, &e) && e.Code == code
}

func (c *connection) Alive() bool {
	alive, err := c.c.IsAlive()
	return err == nil && alive
}

// Close takes back what refers to the connection, lets the event loop let go of it, and closes.
func (c *connection) Close() error {
	_ = c.c.UnregisterCloseCallback() // on a dead connection an error, yet the reference is dropped
	turnLoop()
	n, err := c.c.Close()
	if err != nil {
		return err
	}
	if n != 0 {
		return fmt.Errorf("%d references to the connection are left: it leaks", n)
	}
	return nil
}

// turnLoop waits until the event loop has been round twice: the library frees callbacks, and the references that they
// hold, in a later turn than the one that removed them.
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

func unsupported(err error) bool {
	var e libvirt.Error
	return errors.As(err, &e) && (e.Code == libvirt.ERR_NO_SUPPORT || e.Code == libvirt.ERR_CONFIG_UNSUPPORTED)
}

func translate(err error) error {
	if unsupported(err) {
		return fmt.Errorf("%w: %w", hypervisor.ErrUnsupported, err)
	}
	return err
}
