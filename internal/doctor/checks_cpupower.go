// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// What `make install` installs for hosts with power management, and where it belongs.
const (
	powerFiles    = "/usr/share/compute-agent/"
	powerTmpfiles = "compute-agent-cpu-power.conf"
	dropIns       = ServiceUser + ".service.d"
)

// checkCPUPower looks whether the agent may switch dedicated CPUs, where it is configured to.
func checkCPUPower(_ context.Context, e *Env) []Result {
	const why = "Guests cannot start on dedicated CPUs that are offline, and idle CPUs stay on."
	if !e.runsLibvirt() {
		return skip("the driver libvirt is not enabled")
	}
	keys := e.Config.Drivers[libvirtDriver].Config
	if on, _ := keys["cpu_power_management"].(bool); !on || keys["instances"] == nil {
		return pass("the driver libvirt does not switch CPUs")
	}
	pattern := "/sys/devices/system/cpu/cpu[0-9]*/online"
	if keys["cpu_power_management_strategy"] == "governor" {
		pattern = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"
	}
	files, err := filepath.Glob(e.path(pattern))
	if err != nil || len(files) == 0 {
		return fail("there is no file "+pattern+": this kernel does not switch CPUs like that", why,
			e.command("editor %s", e.Config.File()))
	}
	closed, first := 0, ""
	for _, file := range files {
		f, err := e.Stat(file)
		if err == nil && e.agentMay(strings.TrimPrefix(file, e.Root), f, 2) {
			continue
		}
		if closed++; first == "" {
			first = strings.TrimPrefix(file, e.Root)
		}
	}
	if closed > 0 {
		return fail(fmt.Sprintf("%s cannot write %d of %d files such as %s", e.Agent.Name, closed, len(files), first),
			why,
			e.command("install -D -m 644 %scpu-power-tmpfiles.conf /etc/tmpfiles.d/%s && systemd-tmpfiles --create %s",
				powerFiles, powerTmpfiles, powerTmpfiles))
	}
	if e.Agent.Name == ServiceUser && e.systemd() && !e.dropIn(allowsPower) {
		return fail("no drop-in of compute-agent.service lets it write to /sys/devices/system/cpu", why, e.command(
			"install -D -m 644 %scpu-power.conf /etc/systemd/system/%s/cpu-power.conf && systemctl daemon-reload && "+
				"systemctl restart compute-agent", powerFiles, dropIns))
	}
	return pass("%s can write %d files such as %s", e.Agent.Name, len(files), strings.TrimPrefix(files[0], e.Root))
}

// dropIn reports whether the text of a drop-in of the agent's unit is as wanted.
func (e *Env) dropIn(wanted func(text string) bool) bool {
	for _, dir := range []string{"/etc/systemd/system/", "/run/systemd/system/", "/usr/local/lib/systemd/system/",
		"/usr/lib/systemd/system/"} {
		files, _ := filepath.Glob(e.path(dir + dropIns + "/*.conf"))
		for _, file := range files {
			if text, err := readSome(file); err == nil && wanted(text) {
				return true
			}
		}
	}
	return false
}

// allowsPower reports whether a drop-in lifts the protection of the kernel's files.
func allowsPower(text string) bool {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ReadWritePaths":
			for path := range strings.FieldsSeq(value) {
				if path = strings.TrimRight(strings.TrimLeft(path, "-+"), "/"); strings.HasPrefix(path, "/sys") &&
					strings.HasPrefix("/sys/devices/system/cpu/", path+"/") {
					return true
				}
			}
		case "ProtectKernelTunables":
			if value == "no" || value == "false" || value == "off" || value == "0" {
				return true
			}
		}
	}
	return false
}

func readSome(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(text), err
}
