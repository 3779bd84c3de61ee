// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// UnitState is the state of a unit, in systemd's words.
type UnitState struct {
	Name     string // with its suffix: "compute-agent-cell@cell1.service"
	Active   string // ActiveState: "active", "activating", "failed", …
	Sub      string // SubState: "running", "auto-restart", …
	Result   string // "success", "exit-code", "signal", "start-limit-hit", …
	File     string // UnitFileState: "enabled", "disabled", …; "" without a file
	Exit     int    // exit code or signal of the last main process
	Restarts int    // by systemd, since an operator or the boot started it
	Command  string // of its main process, as ExecStart= has it
	User     string // of its processes; "" is root
	Groups   []string
	ReadsAll bool // its processes read all files, by CAP_DAC_READ_SEARCH
}

// Enabled reports whether the unit starts with the machine.
func (u UnitState) Enabled() bool { return strings.HasPrefix(u.File, "enabled") }

// idle reports whether the unit rightly does not run: systemd has it in memory because another unit
// names it, or a timer has started it.
func (u UnitState) idle() bool { return u.Active == "inactive" && !u.Enabled() && u.Restarts == 0 }

// idleUnits are the units that are idle, as is the socket that would start them.
func idleUnits(units []UnitState) func(UnitState) bool {
	awaited := map[string]bool{} // by a socket
	for _, u := range units {
		if base, is := strings.CutSuffix(u.Name, ".socket"); is && !u.idle() {
			awaited[base+".service"] = true
		}
	}
	return func(u UnitState) bool { return u.idle() && !awaited[u.Name] }
}

// UnitStates returns the units whose names match one of the patterns and that are enabled, run,
// have failed, are restarted, or start with the first connection to a socket. It runs systemctl.
func UnitStates(ctx context.Context, patterns ...string) ([]UnitState, error) {
	enabled, err := systemctl(ctx,
		append([]string{"list-unit-files", "--no-legend", "--plain", "--state=enabled,enabled-runtime"},
			patterns...)...)
	if err != nil {
		return nil, err
	}
	loaded, err := systemctl(ctx, append([]string{"list-units", "--no-legend", "--plain", "--all"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var known strings.Builder
	for line := range strings.Lines(loaded) { // the others have no file: another unit names them in After=
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "loaded" {
			known.WriteString(line)
		}
	}
	var names []string
	for line := range strings.Lines(enabled + known.String()) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		template := strings.HasSuffix(strings.TrimSuffix(name, filepath.Ext(name)), "@")
		if name != "" && !template {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	properties := "--property=Id,ActiveState,SubState,Result,UnitFileState,ExecMainStatus,NRestarts,ExecStart,User," +
		"Group,SupplementaryGroups,AmbientCapabilities"
	shown, err := systemctl(ctx, append([]string{"show", properties, "--"}, slices.Compact(names)...)...)
	if err != nil {
		return nil, err
	}
	units := parseUnits(shown)
	return slices.DeleteFunc(units, idleUnits(slices.Clone(units))), nil
}

// parseUnits reads what `systemctl show` prints: a block for each unit.
func parseUnits(shown string) []UnitState {
	var units []UnitState
	for block := range strings.SplitSeq(shown, "\n\n") {
		var u UnitState
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "Id":
				u.Name = value
			case "ActiveState":
				u.Active = value
			case "SubState":
				u.Sub = value
			case "Result":
				u.Result = value
			case "UnitFileState":
				u.File = value
			case "ExecMainStatus":
				u.Exit, _ = strconv.Atoi(value)
			case "NRestarts":
				u.Restarts, _ = strconv.Atoi(value)
			case "User":
				u.User = value
			case "AmbientCapabilities":
				u.ReadsAll = slices.Contains(strings.Fields(value), "cap_dac_read_search")
			case "Group", "SupplementaryGroups":
				u.Groups = append(u.Groups, strings.Fields(value)...)
			case "ExecStart":
				_, command, _ := strings.Cut(value, "argv[]=")
				u.Command, _, _ = strings.Cut(command, " ;")
			}
		}
		if u.Name != "" {
			units = append(units, u)
		}
	}
	return units
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--no-pager"}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &problems, time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("systemctl %s: %w %s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}
