// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/processes"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// CPU is the processor time that the service and its database have used so far, by all their
// processes.
func (p *peer) CPU() (time.Duration, error) {
	pids, err := p.pids()
	if err != nil {
		return 0, err
	}
	return testproc.CPU(pids...)
}

// Memory is what the service and its database hold now.
func (p *peer) Memory() (testproc.Memory, error) {
	pids, err := p.pids()
	if err != nil {
		return testproc.Memory{}, err
	}
	return testproc.MemoryOf(pids...)
}

// pids are the processes of the peer: those that were started and all below them.
func (p *peer) pids() ([]int, error) {
	if len(p.processes) == 0 {
		return nil, errors.New("the peer does not run")
	}
	all, err := processes.All()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, proc := range p.processes {
		for _, member := range processes.Family(all, proc.cmd.Process.Pid) {
			pids = append(pids, member.PID)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}
