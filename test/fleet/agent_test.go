// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// agent is one agent of the fleet, from one start to the next. One worker has it at a time.
type agent struct {
	fleet  *fleet
	number int
	random *rand.Rand
	client *reportclient.Client
	http   *http.Transport

	now      time.Time // simulated
	next     time.Time // when its next pass is
	idle     time.Time // when its idle connection is closed; zero: it has none
	started  time.Time // its first pass; zero: it is not over
	failures int       // in a row
	requests int       // since it started
	sample   *sample   // of the worker that has it
}

func (a *agent) uuid() string { return fmt.Sprintf("f1ee7000-0000-4000-8000-%012x", a.number) }
func (a *agent) name() string { return fmt.Sprintf("host%06d", a.number) }

// start makes a new client, as a restarted agent does, and schedules its first pass.
func (a *agent) start(first time.Time) error {
	if a.http != nil {
		a.http.CloseIdleConnections()
	}
	cfg, server := a.fleet.config.PlacementClient, a.fleet.servers.urls[a.number%len(a.fleet.servers.urls)]
	cfg.URL = server.String()
	way, err := access.New(cfg, nil, zerolog.Nop())
	if err != nil {
		return err
	}
	a.http = way.Transport.(*pki.Transport).Current()
	dial := a.dialer(server).DialContext
	a.http.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		a.fleet.connections.Add(1)
		return dial(ctx, network, address)
	}
	if way.Dial != nil {
		way.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			a.fleet.probes.Add(1)
			return dial(ctx, network, address)
		}
	}
	way.Transport = a
	way.Now = func() time.Time { return a.now }
	a.client, err = reportclient.New(reportclient.Config{Config: way.Config,
		RefreshInterval: a.fleet.config.Tracker.AssociationRefresh, Jitter: a.random.Float64})
	a.next, a.idle, a.started, a.failures, a.requests = first, time.Time{}, time.Time{}, 0, 0
	return err
}

// dialer connects from an address of the agent's own, where the server is on this machine: servers
// bound the connections of an address.
func (a *agent) dialer(server *url.URL) *net.Dialer {
	dialer := &net.Dialer{Timeout: a.fleet.config.PlacementClient.ConnectTimeout}
	if ip, err := netip.ParseAddr(server.Hostname()); err == nil && ip.Is4() && ip.IsLoopback() {
		n := a.number + 1
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, byte(1+n>>16), byte(n>>8), byte(n))}
	}
	return dialer
}

// RoundTrip implements http.RoundTripper: it counts.
func (a *agent) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.fleet.balance == balanceRequests {
		r = r.Clone(r.Context())
		r.URL.Host = a.fleet.servers.urls[(a.number+a.requests)%len(a.fleet.servers.urls)].Host
	}
	a.requests++
	begin := time.Now()
	resp, err := a.http.RoundTrip(r)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	a.sample.answered(r.Method, status, time.Since(begin))
	a.fleet.second(a.now).Add(1)
	// The transport's own timer would go by the real clock.
	a.idle = a.now.Add(a.fleet.idleTimeout)
	return resp, err
}

// CloseIdleConnections is what http.Client asks of a transport.
func (a *agent) CloseIdleConnections() { a.http.CloseIdleConnections() }

// due is when something is to be done next.
func (a *agent) due() time.Time {
	if !a.idle.IsZero() && a.idle.Before(a.next) {
		return a.idle
	}
	return a.next
}

// act does what is due.
func (a *agent) act(ctx context.Context) {
	a.now = a.due()
	if a.now.Equal(a.idle) {
		a.CloseIdleConnections()
		a.idle = time.Time{}
	}
	if !a.now.Equal(a.next) {
		return
	}
	err := a.pass(ctx)
	a.sample.passed(err)
	if err != nil {
		a.failures++
	} else {
		a.failures = 0
		if a.started.IsZero() {
			a.started = a.now
		}
	}
	a.next = a.now.Add(a.fleet.timings.Wait(a.failures, a.random.Float64()))
}

// pass is what a tracker does of a pass without a driver.
func (a *agent) pass(ctx context.Context) (err error) {
	for range 4 {
		var known *providertree.Tree
		if known, err = a.client.Tree(ctx, a.uuid(), a.name()); err != nil {
			return err
		}
		desired := known.Clone()
		if err := a.report(desired); err != nil {
			return err
		}
		plan := a.client.Plan(known, desired)
		if plan.Empty() {
			return nil
		}
		if err = a.client.Apply(ctx, a.uuid(), plan); !errors.Is(err, reportclient.ErrConflict) {
			return err
		}
	}
	return err
}

// customTrait is one that each agent makes sure of once.
const customTrait = "CUSTOM_FLEET"

// report writes into a tree what the host has: a disk, two NUMA nodes below it, and devices below
// these.
func (a *agent) report(tree *providertree.Tree) error {
	var numa [2]string
	for i := range a.fleet.providers {
		uuid, parent, name := a.uuid(), "", a.name()
		inventories := providertree.Inventories{"DISK_GB": {Total: 20480, Reserved: 10}}
		traits := []string{"COMPUTE_NODE", "COMPUTE_VOLUME_MULTI_ATTACH"}
		if i > 0 {
			var err error
			parent, name = a.uuid(), fmt.Sprintf("%s_numa_%d", a.name(), i-1)
			if i > 2 {
				parent, name = numa[i%2], fmt.Sprintf("%s_fpga_%d", a.name(), i-3)
			}
			if uuid, err = providertree.ChildUUID(a.uuid(), name); err != nil {
				return err
			}
			inventories = providertree.Inventories{"FPGA": {Total: 1}}
			traits = []string{customTrait}
			if i <= 2 {
				numa[i-1] = uuid
				inventories = providertree.Inventories{"VCPU": {Total: 32, AllocationRatio: 4},
					"MEMORY_MB": {Total: 131072, Reserved: 512}}
				traits = []string{"HW_NUMA_ROOT", "HW_CPU_X86_AVX2"}
			}
		}
		if i > 0 && !tree.Exists(uuid) {
			if err := tree.AddChild(parent, uuid, name); err != nil {
				return err
			}
		}
		if _, err := tree.SetInventories(uuid, inventories); err != nil {
			return err
		}
		if _, err := tree.SetTraits(uuid, traits); err != nil {
			return err
		}
	}
	return nil
}
