// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// devicesRig is a plugin directory with a driver "libvirt", a script, and a configuration.
func devicesRig(t *testing.T, script, driver string) (config, plugin string) {
	t.Helper()
	dir := testproc.SocketDir(t)
	plugin = filepath.Join(dir, "plugins", "compute-driver-libvirt")
	testproc.Check(t, os.Mkdir(filepath.Dir(plugin), 0o755))
	testproc.Check(t, testproc.WriteExecutable(plugin, []byte("#!/bin/sh\n"+script+"\n")))
	config = filepath.Join(dir, "agent.toml")
	text := fmt.Sprintf("[agent]\nstate_dir = %q\nruntime_dir = %q\n[plugins]\ndir = %q\n%s\n",
		dir, dir, filepath.Dir(plugin), driver)
	testproc.Check(t, os.WriteFile(config, []byte(text), 0o600))
	return config, plugin
}

func executed(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestDoctorDevicesRunsTheDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		driver string
		args   []string
		want   string
	}{
		"configured":     {"[drivers.libvirt]", nil, "--devices"},
		"disabled":       {"[drivers.libvirt]\nenabled = false", nil, "--devices"},
		"only installed": {"[drivers.fake]", nil, "--devices"},
		"JSON":           {"[drivers.libvirt]", []string{"--output", "json"}, "--devices --output json"},
		"another root, environment": {"[drivers.libvirt]\nenv = { GREETING = \"hello\" }\n[drivers.libvirt.config]\n" +
			"chroot = \"/host\"", nil, "--devices --chroot /host hello"},
	} {
		t.Run(name, func(t *testing.T) {
			config, _ := devicesRig(t, `echo "$@" $GREETING`, c.driver)
			out, err := executed(t, newDoctor(), append([]string{"devices", "--config", config}, c.args...)...)
			if err != nil || strings.TrimSpace(out) != c.want {
				t.Errorf("%q, %v; want %q", out, err, c.want)
			}
		})
	}
}

func TestDoctorDevicesReportsFailures(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	config, plugin := devicesRig(t, "echo no /sys >&2; exit 1", "[drivers.libvirt]")
	if _, err := executed(t, newDoctor(), "devices", "--config", config); err == nil ||
		!strings.Contains(err.Error(), "--devices: exit status 1: no /sys") {
		t.Errorf("a driver that fails: %v", err)
	}
	if _, err := executed(t, newDoctor(), "devices", "--config", config, "--driver", "other"); err == nil ||
		!strings.Contains(err.Error(), "driver other is not installed") {
		t.Errorf("a driver that is not installed: %v", err)
	}
	testproc.Check(t, os.Chmod(plugin, 0o777))
	if _, err := executed(t, newDoctor(), "devices", "--config", config); err == nil ||
		!strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a driver that others can change: %v", err)
	}
}

func TestPluginRunDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	_, plugin := devicesRig(t, `echo "$@"`, "")
	if out, err := executed(t, newPluginRun(), plugin, "--devices"); err != nil ||
		strings.TrimSpace(out) != "--devices" {
		t.Errorf("%q, %v", out, err)
	}
}
