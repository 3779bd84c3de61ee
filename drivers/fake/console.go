// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
)

// maxLog bounds what a machine keeps of its console, in bytes.
const maxLog = 256 << 10

// writeBoot writes what a machine shows when it is started, and writeHalt when it is switched off.
func (m *machine) writeBoot() {
	m.write(fmt.Sprintf("fake machine %s boots\r\n%s login: ", m.UUID, m.Name))
}

func (m *machine) writeHalt() { m.write("\r\nSystem halted.\r\n") }

// write adds to the console.
func (m *machine) write(text string) {
	m.Log += text
	m.Log = m.Log[max(0, len(m.Log)-maxLog):]
}

// machineOf finds a machine of a node.
func (d *driver) machineOf(node, uuid string) (machine, error) {
	_, h, err := d.manager(node)
	if err != nil {
		return machine{}, err
	}
	m, there, err := h.find(uuid)
	if err == nil && (!there || m.Node != node) {
		err = &plugins.InstanceNotFound{UUID: uuid}
	}
	return m, err
}

// ConsoleLog returns the end of what a machine wrote to its console.
func (d *driver) ConsoleLog(_ context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	m, err := d.machineOf(node, uuid)
	return []byte(m.Log[max(0, len(m.Log)-maxBytes):]), err
}

// OpenConsole opens a console at which a machine sends back what is typed and answers each line. It
// keeps no log of that.
func (d *driver) OpenConsole(_ context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	m, err := d.machineOf(node, uuid)
	switch {
	case err != nil:
		return nil, err
	case m.Power != plugins.PowerRunning:
		return nil, &plugins.InstanceFault{UUID: uuid, Reason: "it does not run"}
	}
	h := d.hypervisor()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users[uuid] {
		return nil, &plugins.InstanceFault{UUID: uuid, Reason: "another user has its console"}
	}
	h.users[uuid] = true
	out, in := io.Pipe()
	c := &console{out: out, in: in, name: m.Name, closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		_ = out.Close()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.users, uuid)
	})
	go c.follow(h, uuid)
	return c, nil
}

// console is an open console of a machine.
type console struct {
	out    *io.PipeReader
	in     *io.PipeWriter
	name   string
	line   []byte // what was typed since the last answer
	closed chan struct{}
	close  func()
}

// follow ends the output when the machine does not run any more.
func (c *console) follow(h *hypervisor, uuid string) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		changed := h.change()
		if m, there, err := h.find(uuid); err == nil && (!there || m.Power != plugins.PowerRunning) {
			_ = c.in.Close() // a pipe has no errors
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-c.closed:
			return
		}
	}
}

// Read returns what the machine writes.
func (c *console) Read(b []byte) (int, error) { return c.out.Read(b) }

// Write types something. It waits until the answer is read.
func (c *console) Write(b []byte) (int, error) {
	for i, char := range b {
		answer := string(char)
		switch {
		case char == '\r':
			answer = fmt.Sprintf("\r\n%s: %s: command not found\r\n$ ", c.name, c.line)
			if len(c.line) == 0 {
				answer = "\r\n$ "
			}
			c.line = c.line[:0]
		case (char == '\b' || char == 0x7f) && len(c.line) > 0:
			answer, c.line = "\b \b", c.line[:len(c.line)-1]
		case char < ' ' || char == 0x7f || len(c.line) >= maxLine:
			answer = ""
		default:
			c.line = append(c.line, char)
		}
		if _, err := io.WriteString(c.in, answer); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// maxLine bounds a line, in bytes.
const maxLine = 4096

// Close gives the console back.
func (c *console) Close() error {
	c.close()
	return nil
}
