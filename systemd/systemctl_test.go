// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestUnitStatesWithoutIdleUnits: units that are not installed but named by another unit, that are
// disabled, or that a timer starts, are left out; a service behind a socket is not.
func TestUnitStatesWithoutIdleUnits(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
case "$*" in
*list-unit-files*) cat <<'END'
compute-agent.service            enabled enabled
compute-agent-placement.socket   enabled enabled
END
;;
*list-units*) cat <<'END'
compute-agent-cells-api.service           not-found inactive dead      compute-agent-cells-api.service
compute-agent-cell@cell1.service          loaded    inactive dead      A cell of compute-agent
compute-agent-cell@cell2.service          loaded    failed   failed    A cell of compute-agent
compute-agent-domain-capabilities.service loaded    inactive dead      Domain capabilities of libvirt
compute-agent-placement.service           loaded    inactive dead      Placement of compute-agent
compute-agent-placement.socket            loaded    active   listening Placement of compute-agent
compute-agent.service                     loaded    active   running   compute-agent
END
;;
*" show "*)
	while [ "$1" != -- ]; do shift; done
	shift
	for unit; do
		file=disabled active=inactive
		case $unit in
		compute-agent.service | *.socket) file=enabled active=active ;;
		*cell2*) active=failed ;;
		*domain* | *placement*) file=static ;;
		*cells-api*) file= ;;
		esac
		printf 'Id=%s\nActiveState=%s\nNRestarts=0\nUnitFileState=%s\n\n' "$unit" "$active" "$file"
	done
;;
esac
`
	testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, "systemctl"), []byte(script)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var got []string
	for _, u := range testproc.Try(UnitStates(t.Context(), "compute-agent*")).Or(t) {
		got = append(got, u.Name)
	}
	want := []string{"compute-agent-cell@cell2.service",
		"compute-agent-placement.service", "compute-agent-placement.socket", "compute-agent.service"}
	testproc.Samef(t, cmp.Diff(want, got), "units")
}

// TestUnitStates: enabled units and those in memory, each once, as systemctl of Debian 12 shows
// them.
func TestUnitStates(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
case "$*" in
*list-unit-files*) cat <<'END'
compute-agent-cell@.service  enabled enabled
compute-agent-cell@cell1.service enabled enabled
compute-agent-placement.socket   enabled enabled
END
;;
*list-units*) echo 'compute-agent-cell@cell1.service loaded activating auto-restart A cell of compute-agent' ;;
*" show "*"-- compute-agent-cell@cell1.service compute-agent-placement.socket") cat <<'END'
Result=exit-code
NRestarts=12
ExecMainStatus=1
User=compute-agent-cell
Group=compute-agent-cell
SupplementaryGroups=ssl-cert keys
AmbientCapabilities=cap_chown cap_dac_read_search
ExecStart={ path=/usr/bin/compute-agent ; argv[]=/usr/bin/compute-agent cells serve --config /etc/compute-agent/cell1.toml ; ignore_errors=no ; start_time=[n/a] }
Id=compute-agent-cell@cell1.service
ActiveState=activating
SubState=auto-restart
UnitFileState=enabled

Result=success
Id=compute-agent-placement.socket
ActiveState=active
SubState=listening
UnitFileState=enabled
END
;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
`
	testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, "systemctl"), []byte(script)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	want := []UnitState{
		{
			Name: "compute-agent-cell@cell1.service", Active: "activating", Sub: "auto-restart",
			Result: "exit-code", File: "enabled",
			Exit: 1, Restarts: 12, Command: "/usr/bin/compute-agent cells serve --config /etc/compute-agent/cell1.toml",
			User: "compute-agent-cell", Groups: []string{"compute-agent-cell", "ssl-cert", "keys"}, ReadsAll: true,
		},
		{Name: "compute-agent-placement.socket", Active: "active", Sub: "listening",
			Result: "success", File: "enabled"},
	}
	testproc.Samef(t, cmp.Diff(want, testproc.Try(UnitStates(t.Context(), "compute-agent*")).Or(t)), "units")
	testproc.Check(t, testproc.WriteExecutable(filepath.Join(dir, "systemctl"),
		[]byte("#!/bin/sh\necho 'System has not been booted with systemd' >&2; exit 1\n")))
	testproc.Try(UnitStates(t.Context(), "compute-agent*")).ErrorHas(t, "has not been booted", "without systemd: %v")
}
