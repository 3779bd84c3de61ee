// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"
)

// maxSkew is the tolerated difference from Placement's clock. The header Date has whole seconds.
const maxSkew = 5 * time.Second

// checkClock compares the clock with Placement's and asks the kernel whether it is synchronised.
func checkClock(_ context.Context, e *Env) []Result {
	const why = "Tokens and certificates look expired, and logs of different hosts cannot be compared."
	p := e.probe()
	if !p.date.IsZero() {
		// The answer was dated between request and response.
		skew := p.received.Add(-p.took / 2).Sub(p.date).Round(time.Second)
		if skew > maxSkew || skew < -maxSkew {
			ahead := "ahead of"
			if skew < 0 {
				ahead, skew = "behind", -skew
			}
			return warn(fmt.Sprintf("this host's clock is %v %s Placement's", skew, ahead), why, e.stepClock())
		}
	}
	synced, err := e.ClockSynced()
	switch {
	case err != nil && p.date.IsZero():
		return skip("the kernel does not report whether the clock is synchronised (%v), and Placement sent no date",
			err)
	case err != nil:
		return pass("agrees with Placement's; the kernel does not report whether it is synchronised (%v)", err)
	case !synced && e.container():
		return skip("the kernel's clock is not synchronised, and this is a container: see to it on the machine " +
			"that runs it")
	case !synced:
		return warn("this host's clock is not synchronised", why, e.syncClock())
	case p.date.IsZero():
		return pass("synchronised")
	}
	return pass("synchronised, and agrees with Placement's")
}

// container reports whether this is a container, as systemd and its like mark it
// (https://systemd.io/CONTAINER_INTERFACE).
func (e *Env) container() bool {
	for _, mark := range []string{"/run/systemd/container",
		"/run/host/container-manager", "/.dockerenv", "/run/.containerenv"} {
		if _, err := e.stat(mark); err == nil {
			return true
		}
	}
	return false
}

func (e *Env) stepClock() string {
	if _, err := e.LookPath("chronyc"); err == nil {
		return e.command("chronyc makestep")
	}
	return e.syncClock()
}

func (e *Env) syncClock() string {
	if _, err := e.LookPath("chronyd"); err == nil {
		return e.command("systemctl enable --now chrony")
	}
	if _, err := e.LookPath("timedatectl"); err == nil && e.systemd() {
		return e.command("timedatectl set-ntp true")
	}
	return e.command("apt-get install chrony")
}

// fewOpenFiles is the recommended minimum for an agent with the bundled Placement. Go raises the
// soft limit to the hard limit.
const fewOpenFiles = 4096

func checkOpenFiles(_ context.Context, e *Env) []Result {
	soft, hard, err := e.OpenFiles()
	if err != nil {
		return skip("cannot read the limit: %v", err)
	}
	if hard < fewOpenFiles {
		const drop = "/etc/systemd/system/compute-agent.service.d"
		return warn(
			fmt.Sprintf("at most %d open files (hard limit)", hard),
			"Each connection and plugin uses one; the agent refuses new ones at the limit.",
			e.command(
				`sh -c 'mkdir -p %s && printf "[Service]\nLimitNOFILE=65536\n" > %s/open-files.conf && systemctl `+
					`daemon-reload && systemctl restart compute-agent'`, drop, drop),
		)
	}
	return pass("%d, up to %d", soft, hard)
}
