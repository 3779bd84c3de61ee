// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// How long libvirt may take. A start maps and clears all memory of a guest with huge pages or
// devices; a device is waited for 60 s where udev is broken.
const (
	startLimit  = 15 * time.Minute
	endLimit    = 2 * time.Minute
	deviceLimit = 100 * time.Second
)

// job is one call about one instance.
type job struct {
	manager *Manager
	setup   *setup
	node    string
	uuid    string
	log     zerolog.Logger
	// qemu is the user that emulators run as; nil: not known yet.
	qemu *User
	// keep says that its directory is used as it is, and not made again.
	keep bool
	// begun says that something may have been changed.
	begun bool
}

// begin begins a change of an instance of the node.
func (m *Manager) begin(ctx context.Context, node, uuid string) (*job, error) {
	j, err := m.beginMove(ctx, node, uuid)
	if err == nil {
		j.setup.renameClaim(ctx, node, uuid)
	}
	return j, err
}

// beginMove is begin for an instance that may be another host's: claims by former names of the node
// stay, because another host may have such a name now.
func (m *Manager) beginMove(ctx context.Context, node, uuid string) (*job, error) {
	if !providertree.IsCanonicalUUID(uuid) {
		return nil, &plugins.InstanceFault{Reason: "its uuid is not in lower case with hyphens"}
	}
	s, err := m.setupFor(ctx, node)
	if err != nil {
		return nil, err
	}
	return &job{manager: m, setup: s, node: node,
		uuid: uuid, log: plugins.Logger(ctx).With().Str("instance", uuid).Logger()}, nil
}

func (j *job) fault(format string, args ...any) error {
	return &plugins.InstanceFault{UUID: j.uuid, Reason: fmt.Sprintf(format, args...)}
}

// unmanaged is the error about a guest that the driver did not create.
func (j *job) unmanaged() error {
	return j.fault("the host has a guest with this uuid that the driver did not create")
}

// agentError converts an error for the agent: NotReady promises that nothing was begun, and so does
// a fault.
func (j *job) agentError(err error) error {
	var gone *hypervisor.Unavailable
	var fault *plugins.InstanceFault
	switch {
	case err == nil, errors.As(err, &fault):
		return err
	case errors.As(err, &gone) && !gone.Begun && !j.begun:
		return &plugins.NotReady{Reason: err.Error()}
	case j.begun && (errors.Is(err, plugins.ErrNotReady) || errors.Is(err, plugins.ErrUnsupported)):
		return errors.New("it is incomplete: " + err.Error())
	}
	return err
}

// isFinal reports whether an error means that something did not happen and would not on a retry:
// libvirt was reached and refused.
func isFinal(ctx context.Context, err error) bool {
	var gone *hypervisor.Unavailable
	return err != nil && ctx.Err() == nil && !errors.As(err, &gone) && !errors.Is(err, hypervisor.ErrReadOnly)
}

// callQuick makes a change that libvirt answers at once.
func (j *job) callQuick(ctx context.Context, what string, f func(hypervisor.Conn) error) error {
	_, err := hypervisor.Call(ctx, j.setup.Write[0], what,
		func(c hypervisor.Conn) (struct{}, error) { return struct{}{}, f(c) })
	return j.afterWrite(what, err)
}

// callSlow makes a change that takes long, when a connection is free.
func (j *job) callSlow(ctx context.Context, what string, limit time.Duration, f func(hypervisor.Conn) error) error {
	var link *hypervisor.Link
	select {
	case link = <-j.setup.slow:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { j.setup.slow <- link }()
	_, err := hypervisor.CallWithin(ctx, link, what, limit,
		func(c hypervisor.Conn) (struct{}, error) { return struct{}{}, f(c) })
	return j.afterWrite(what, err)
}

func (j *job) afterWrite(what string, err error) error {
	var gone *hypervisor.Unavailable
	if !errors.As(err, &gone) || gone.Begun {
		j.begun = true
	}
	if err != nil {
		return fmt.Errorf("instance %s: %s: %w", j.uuid, what, err)
	}
	return nil
}

// find looks for the instance's domain. It uses the connection of quick changes: behind one that an
// earlier call did not wait for.
//
// Cost: three calls of libvirt.
func (j *job) find(ctx context.Context) (guest, error) {
	list, err := hypervisor.Call(ctx, j.setup.Write[0],
		"the domains", func(c hypervisor.Conn) ([]hypervisor.Domain, error) {
			return c.Domains(func(d hypervisor.Domain) bool { return d.UUID == j.uuid })
		})
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return guest{}, fmt.Errorf("%w: %w", plugins.ErrUnsupported, err)
	case err != nil:
		return guest{}, fmt.Errorf("looking for the domain of instance %s: %w", j.uuid, err)
	}
	for _, d := range list {
		if d.UUID == j.uuid {
			return j.setup.read(d), nil
		}
	}
	return guest{}, nil
}

// findOwn is find for a domain that, if it is there, is an instance of this driver and node.
func (j *job) findOwn(ctx context.Context) (guest, error) {
	g, err := j.find(ctx)
	switch {
	case err != nil:
		return guest{}, err
	case g.exists && !g.managed():
		return guest{}, j.unmanaged()
	case g.exists && g.parsed.Mark.Node != j.node:
		return guest{}, j.fault("another node has an instance with this uuid")
	}
	return g, nil
}

// directory is where the files of the instance are, or are to be.
func (j *job) directory(ctx context.Context) (directory, error) {
	path, err := j.setup.Directory(ctx)
	return directory{path: path, name: domain.Name(j.uuid)}, err
}

// Events of libvirt come in bursts: a start makes three. settle is the time to wait for the end of
// a burst; after resync without any event, everything may have changed.
const (
	settle = 200 * time.Millisecond
	resync = 5 * time.Minute
)

// Watch calls changed whenever an instance may be no longer as it was, until ctx ends; see
// [plugins.InstanceWatcher]. While instances are not managed it reports nothing, and then that
// everything changed.
func (m *Manager) Watch(ctx context.Context, changed func(node, uuid string)) error {
	var powering sync.WaitGroup
	defer powering.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	powering.Go(func() { m.power.follow(ctx) })
	w := m.eventLog.Watch(settle, resync)
	defer w.Close()
	for {
		c, err := w.Next(ctx)
		if err != nil {
			return err
		}
		m.mu.Lock()
		s := m.setup
		m.mu.Unlock()
		if s == nil {
			continue
		}
		node, err := s.Node(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case c.All || err != nil:
			changed("", "")
			continue
		}
		for _, uuid := range c.Domains {
			if !m.unmanaged(uuid) {
				changed(node, uuid)
			}
		}
	}
}

// unmanaged reports whether the driver did not create a domain, as far as is known.
func (m *Manager) unmanaged(uuid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known := m.known[uuid]
	return known && e.mark == nil
}
