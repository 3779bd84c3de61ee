// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
)

// maxLog bounds what a machine keeps of its console, in bytes.
const maxLog = 256 << 10

// boots is what a machine writes when it is started, and halts when it is switched off.
func (m *machine) boots() {
	m.write(fmt.Sprintf("fake machine %s boots\r\n%s login: ", m.UUID, m.Name))
}

func (m *machine) halts() { m.write("\r\nSystem halted.\r\n") }

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
func (d *driver) ConsoleLog(_ context.Context, node, uuid string, most int) ([]byte, error) {
	m, err := d.machineOf(node, uuid)
	return []byte(m.Log[max(0, len(m.Log)-most):]), err
}
