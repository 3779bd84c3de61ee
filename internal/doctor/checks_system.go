// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"
)

// maxSkew is how far this host's clock may be from Placement's. The header Date
// has whole seconds, so less would be noise.
const maxSkew = 5 * time.Second

// checkClock compares with Placement where it answered, and asks the kernel
// whether somebody keeps the clock right.
func checkClock(_ context.Context, e *Env) []Result {
	const why = "Tokens and certificates look expired, and logs of different hosts cannot be compared."
	p := e.probe()
	if !p.date.IsZero() {
		// The answer was dated somewhere between question and answer.
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
		return skip("the kernel does not tell whether the clock is synchronised (%v), and Placement did not tell the time", err)
	case err != nil:
		return fine("agrees with Placement's; the kernel does not tell whether it is synchronised (%v)", err)
	case !synced:
		return warn("nobody keeps this host's clock right", why, e.syncClock())
	case p.date.IsZero():
		return fine("synchronised")
	}
	return fine("synchronised, and agrees with Placement's")
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

// fewOpenFiles is the least that a busy agent with the bundled Placement is
// comfortable with. Go raises the soft limit to the hard one by itself.
const fewOpenFiles = 4096

func checkOpenFiles(_ context.Context, e *Env) []Result {
	soft, hard, err := e.OpenFiles()
	if err != nil {
		return skip("the limit cannot be read: %v", err)
	}
	if hard < fewOpenFiles {
		const drop = "/etc/systemd/system/compute-agent.service.d"
		return warn(fmt.Sprintf("at most %d open files (hard limit)", hard),
			"Connections and plugins use one each; the agent refuses new ones when there are none left.",
			e.command(`sh -c 'mkdir -p %s && printf "[Service]\nLimitNOFILE=65536\n" > %s/open-files.conf && systemctl daemon-reload && systemctl restart compute-agent'`, drop, drop))
	}
	return fine("%d, up to %d", soft, hard)
}
