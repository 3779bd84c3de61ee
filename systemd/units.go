// SPDX-License-Identifier: Apache-2.0

package systemd

import "embed"

// Units holds the files that `make install` installs in addition to the programs, below "units":
//
//	compute-agent.service, compute-agent-placement.service, compute-agent-placement.socket,
//	compute-agent-cells-api.service, compute-agent-cell@.service,
//	compute-agent-domain-capabilities.service → /usr/lib/systemd/system/
//	sysusers.conf → /usr/lib/sysusers.d/compute-agent.conf
//	tmpfiles.conf → /usr/lib/tmpfiles.d/compute-agent.conf
//	instances.conf, cpu-power.conf, cpu-power-tmpfiles.conf → /usr/share/compute-agent/
//
// The last three are not in force: an operator copies them to /etc on hosts that create guests, and
// on those with power management.
//
// They run /usr/bin/compute-agent, with the files of "config", which go to /etc/compute-agent where
// there are none yet.
//
//go:embed units
var Units embed.FS
