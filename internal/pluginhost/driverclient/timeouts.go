// SPDX-License-Identifier: Apache-2.0

package driverclient

import "time"

// Timeouts are the deadlines of a plugin's start, calls and stop.
type Timeouts struct {
	Handshake time.Duration // from exec to the connection; default 30 s: a hypervisor that boots is busy
	Info      time.Duration // default 5 s
	Configure time.Duration // default 30 s
	Nodes     time.Duration // AvailableNodes, NodeDeleted; default 30 s
	Update    time.Duration // UpdateProviderTree, ReshapeStep, Guests, Instances; default 60 s
	Instance  time.Duration // Spawn, Destroy, SetPower; default 10 min
	Health    time.Duration // one health check; default 3 s
	Stop      time.Duration // Shutdown, before the process is killed; default 10 s
}

// WithDefaults returns t with the agent's defaults instead of zeros.
func (t Timeouts) WithDefaults() Timeouts {
	fill := func(limit *time.Duration, standard time.Duration) {
		if *limit <= 0 {
			*limit = standard
		}
	}
	fill(&t.Handshake, 30*time.Second)
	fill(&t.Info, 5*time.Second)
	fill(&t.Configure, 30*time.Second)
	fill(&t.Nodes, 30*time.Second)
	fill(&t.Update, 60*time.Second)
	fill(&t.Instance, 10*time.Minute)
	fill(&t.Health, 3*time.Second)
	fill(&t.Stop, 10*time.Second)
	return t
}

// Longest returns how long a running call can still take.
func (t Timeouts) Longest() time.Duration { return max(t.Configure, t.Nodes, t.Update, t.Instance) }
