// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// usage is what was used so far.
type usage struct {
	// service and database are the processor time of all their processes; of a service with SQLite,
	// database is 0.
	service, database time.Duration
}

// CPU is the processor time that the service and its database have used so far, by all their
// processes.
func (p *peer) CPU() (time.Duration, error) {
	u, err := p.usage()
	return u.service + u.database, err
}

func (p *peer) usage() (u usage, err error) {
	pids, err := p.pids()
	if err != nil {
		return u, err
	}
	if u.service, err = testproc.CPU(pids...); err == nil && p.server != nil {
		u.database, err = p.server.cpu()
	}
	return u, err
}

// Memory is what the service and its database hold now.
func (p *peer) Memory() (testproc.Memory, error) {
	pids, err := p.pids()
	if err == nil && p.server != nil {
		var more []int
		more, err = p.server.PIDs()
		pids = append(pids, more...)
	}
	if err != nil {
		return testproc.Memory{}, err
	}
	return testproc.MemoryOf(pids...)
}

// pids are the processes of the service: those that were started and all below them.
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
