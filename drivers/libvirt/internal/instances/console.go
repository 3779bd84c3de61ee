// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
)

// ConsoleLog returns the end of what an instance wrote to its serial console, at most so many
// bytes. virtlogd, if it writes the file, moves what it has had enough of to files beside it with
// .0, .1 and so on at their ends.
func (m *Manager) ConsoleLog(ctx context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return nil, err
	}
	g, err := j.findManaged(ctx)
	if err != nil {
		return nil, j.agentError(err)
	}
	path := g.parsed.ConsoleLog
	if path == "" {
		return nil, j.fault("its serial console is not written to a file")
	}
	out, err := tail(path, maxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it never ran
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf(
			"reading the console log of instance %s: %w. virtlogd, which writes it, lets only root read it: "+
				"the unit of the agent needs CAP_DAC_READ_SEARCH, as its drop-in instances.conf has it", uuid, err)
	case err != nil:
		return nil, fmt.Errorf("reading the console log of instance %s: %w", uuid, err)
	}
	if len(out) < maxBytes {
		former, err := tail(path+".0", maxBytes-len(out))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the console log of instance %s: %w", uuid, err)
		}
		out = append(former, out...)
	}
	return out, nil
}

// OpenConsole opens the serial console of an instance that runs, for one user at a time. Cost: four
// calls of libvirt, and a connection for as long as it is open.
func (m *Manager) OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return nil, err
	}
	g, err := j.findManaged(ctx)
	if err != nil {
		return nil, j.agentError(err)
	}
	switch g.parsed.Console {
	case "pty", "unix":
	case "":
		return nil, j.fault("it has no serial console")
	default:
		return nil, j.fault("its serial console is of the type %q, which cannot be opened", g.parsed.Console)
	}
	var opened handover
	_, err = hypervisor.Call(ctx, j.setup.Write[0], "opening a console", func(c hypervisor.Conn) (struct{}, error) {
		console, err := c.OpenConsole(uuid)
		if err == nil {
			opened.deliver(console)
		}
		return struct{}{}, err
	})
	switch {
	case errors.Is(err, hypervisor.ErrState):
		err = j.fault("it does not run")
	case errors.Is(err, hypervisor.ErrInUse):
		err = j.fault("its serial console is in use; it has one user at a time")
	case errors.Is(err, hypervisor.ErrNotFound):
		err = &plugins.InstanceNotFound{UUID: uuid}
	}
	if err != nil {
		opened.abandon()
		return nil, j.agentError(err)
	}
	return opened.console, nil
}

// handover passes a console on to a caller, who may have given up.
type handover struct {
	mu        sync.Mutex
	console   io.ReadWriteCloser
	abandoned bool
}

func (h *handover) deliver(console io.ReadWriteCloser) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.abandoned {
		_ = console.Close() // no user has seen it
		return
	}
	h.console = console
}

func (h *handover) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned = true
	if h.console != nil {
		_ = h.console.Close() // no user has seen it
	}
}

// tail returns the last bytes of a file.
func tail(path string, maxBytes int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-int64(maxBytes)), int64(maxBytes)))
}
