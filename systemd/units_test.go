// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// maxExposure is the highest `systemd-analyze security` score a service of ours
// may have, in tenths (10 is "OK", 100 is no hardening at all).
const maxExposure = 15

// installed writes the units to a directory, with a binary that exists.
func installed(t *testing.T) (dir string, services, all []string) {
	t.Helper()
	dir = t.TempDir()
	binary := filepath.Join(dir, "compute-agent")
	testproc.Check(t, testproc.WriteExecutable(binary, []byte("#!/bin/sh\n")))
	entries := testproc.Try(fs.ReadDir(Units, "units")).Or(t)
	for _, e := range entries {
		content := testproc.Try(fs.ReadFile(Units, "units/"+e.Name())).Or(t)
		text := strings.ReplaceAll(string(content), "/usr/bin/compute-agent ", binary+" ")
		text = strings.ReplaceAll(text, "/usr/libexec/compute-agent/plugins/compute-driver-libvirt ", binary+" ")
		path := filepath.Join(dir, e.Name())
		testproc.Check(t, os.WriteFile(path, []byte(text), 0o644))
		switch filepath.Ext(path) {
		case ".service":
			services, all = append(services, path), append(all, path)
		case ".socket":
			all = append(all, path)
		}
	}
	if len(services) != 5 || len(all) != 6 {
		t.Fatalf("%d services and %d units", len(services), len(all))
	}
	return dir, services, all
}

func TestUnitsVerify(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, _, all := installed(t)
	testproc.Samef(t, testproc.VerifyUnits(t, dir, all...), "systemd-analyze verify")
}

// TestUnitsVerifyAlone: units of other packages are part of many machines, and some of them make
// systemd-analyze print warnings.
func TestUnitsVerifyAlone(t *testing.T) {
	dir, _, all := installed(t)
	elsewhere := t.TempDir()
	wants := filepath.Join(elsewhere, "sysinit.target.wants")
	testproc.Check(t, os.Mkdir(wants, 0o755))
	testproc.Check(t, os.WriteFile(filepath.Join(wants, "other.service"),
		[]byte("[Service]\nNonsense=yes\nExecStart=/bin/true\n"), 0o644))
	t.Setenv("SYSTEMD_UNIT_PATH", elsewhere+":")
	testproc.Samef(t, testproc.VerifyUnits(t, dir, all...), "systemd-analyze verify")
	// It does read the units that it is given.
	testproc.Check(t, os.WriteFile(all[0], []byte("[Service]\nNonsense=yes\nExecStart=/bin/true\n"), 0o644))
	testproc.Contains(t, testproc.VerifyUnits(t, dir, all...), "Nonsense", "a mistake in %s is not noticed: %q", all[0])
}

func TestUnitsExposure(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	analyze := testproc.SystemdTool(t, "systemd-analyze")
	_, services, _ := installed(t)
	for _, service := range services {
		args := []string{"security", "--offline=true", "--no-pager", "--threshold=" + strconv.Itoa(maxExposure)}
		if out, err := exec.CommandContext(t.Context(), analyze, append(args, service)...).
			CombinedOutput(); err != nil {
			t.Errorf("%s is exposed to more than %d: %v\n%s", filepath.Base(service), maxExposure, err, out)
		}
		// The threshold must be one that systemd-analyze applies.
		if err := exec.CommandContext(t.Context(), analyze,
			"security", "--offline=true", "--threshold=1", service).Run(); err == nil {
			t.Errorf("%s passes a threshold that nothing can pass", filepath.Base(service))
		}
	}
}

// TestUnitsHaveNoTrailingComments: systemd takes "Key=value # remark" as the value "value #
// remark".
func TestUnitsHaveNoTrailingComments(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.Check(t, fs.WalkDir(Units, "units", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(Units, path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(content), "\n") {
			if !strings.HasPrefix(line, "#") && strings.ContainsAny(line, "#;") {
				t.Errorf("%s:%d: a remark after a value: %s", path, i+1, line)
			}
			if strings.TrimSpace(line) != line {
				t.Errorf("%s:%d: blanks at an end", path, i+1)
			}
		}
		return nil
	}))
}

// TestServiceContract: the services need these lines, which do not affect the score.
func TestServiceContract(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for unit, lines := range map[string][]string{
		"compute-agent.service": {
			"Type=notify", "NotifyAccess=main", "WatchdogSec=30s", "KillMode=mixed",
			"OOMPolicy=continue", "User=compute-agent",
			"ExecStart=/usr/bin/compute-agent run --config /etc/compute-agent/compute-agent.toml",
			"ExecReload=/bin/kill -HUP $MAINPID",
			"StateDirectory=compute-agent", "RuntimeDirectory=compute-agent",
			"ReadOnlyPaths=-/sys/bus -/sys/devices -/sys/firmware -/sys/kernel -/sys/module -/sys/power",
		},
		"compute-agent-placement.service": {"Type=notify", "Requires=compute-agent-placement.socket",
			"User=compute-agent-placement", "Group=compute-agent-placement"},
		"compute-agent-cells-api.service": {"Type=notify", "User=compute-agent-cells-api",
			"Group=compute-agent-cells-api", "StateDirectory=compute-agent-cells-api"},
		"compute-agent-cell@.service": {"Type=notify", "User=compute-agent-cell",
			"Group=compute-agent-cell", "StateDirectory=compute-agent-cell-%i", "RuntimeDirectoryMode=0711"},
		"compute-agent-domain-capabilities.service": {"User=compute-agent-libvirt",
			"PartOf=compute-agent.service", "PrivateNetwork=yes"},
		"compute-agent-placement.socket": {"ListenStream=127.0.0.1:8778", "FileDescriptorName=" + PlacementSocket},
	} {
		content := testproc.Try(fs.ReadFile(Units, "units/"+unit)).Or(t)
		for _, line := range lines {
			if !strings.Contains("\n"+string(content), "\n"+line+"\n") {
				t.Errorf("%s lacks %q", unit, line)
			}
		}
		if strings.HasSuffix(unit, ".service") && !strings.Contains(string(content), "\nType=oneshot\n") &&
			!strings.Contains(string(content), "\nRestartPreventExitStatus=3 64 78\n") {
			t.Errorf("%s must be restarted after every exit status but 3, 64 and 78: a crash of a Go program is 2",
				unit)
		}
		for _, forbidden := range []string{"Requires=libvirtd", "KillMode=process",
			"DynamicUser=yes", "SupplementaryGroups="} {
			if strings.Contains(string(content), forbidden) {
				t.Errorf("%s has %q", unit, forbidden)
			}
		}
	}
}

// TestUserAndDirectories: systemd's own programs read sysusers.d and tmpfiles.d, below a separate
// root, so that this machine does not change.
func TestUserAndDirectories(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	sysusers, tmpfiles := testproc.SystemdTool(t, "systemd-sysusers"), testproc.SystemdTool(t, "systemd-tmpfiles")
	dir, _, _ := installed(t)
	root := t.TempDir()
	for _, d := range []string{"etc", "usr/libexec", "var/lib"} {
		testproc.Check(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	out, err := exec.CommandContext(t.Context(), sysusers,
		"--root="+root, filepath.Join(dir, "sysusers.conf")).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-sysusers: %v\n%s", err, out)
	}
	passwd := testproc.Try(os.ReadFile(filepath.Join(root, "etc/passwd"))).Or(t)
	for _, name := range []string{"compute-agent", "compute-agent-placement", "compute-agent-cells-api",
		"compute-agent-cell", "compute-agent-libvirt"} {
		if !strings.Contains("\n"+string(passwd), "\n"+name+":") {
			t.Errorf("no user %s: %s", name, passwd)
		}
	}
	group := testproc.Try(os.ReadFile(filepath.Join(root, "etc/group"))).Or(t)
	for line := range strings.Lines(string(group)) {
		name, members, _ := strings.Cut(strings.TrimSpace(line), ":")
		members = members[strings.LastIndex(members, ":")+1:]
		want := map[string]string{
			"libvirt":                 "compute-agent-libvirt",
			"compute-agent-deny-list": "compute-agent-cell,compute-agent-cells-api,compute-agent-placement",
		}[name]
		if members != want {
			t.Errorf("members of the group %s: %q, want %q", name, members, want)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("THE DIRECTORIES ARE NOT CHECKED: systemd-tmpfiles gives them to root, which only root can; the user " +
			"was checked")
	}
	out, err = exec.CommandContext(t.Context(), tmpfiles,
		"--root="+root, "--create", filepath.Join(dir, "tmpfiles.conf")).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-tmpfiles: %v\n%s", err, out)
	}
	for path, mode := range map[string]os.FileMode{
		"usr/libexec/compute-agent/plugins": 0o755, "etc/compute-agent": 0o755, "etc/compute-agent/conf.d": 0o755,
		"etc/compute-agent/credentials": 0o700,
	} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		testproc.Equal(t, info.Mode().Perm(), mode, "/%s has mode %v", path)
	}
}

// TestNoCapabilitiesLeft: the installed systemd must know the settings that the score depends on,
// by the names that it reports.
func TestNoCapabilitiesLeft(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	analyze := testproc.SystemdTool(t, "systemd-analyze")
	_, services, _ := installed(t)
	for _, service := range services {
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--json=short", service).
			Output()
		testproc.Check(t, err)
		var rows []struct {
			Name string `json:"json_field"`
			Set  *bool  `json:"set"`
		}
		if err := json.Unmarshal(out, &rows); err != nil || len(rows) < 50 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		checked := 0
		for _, r := range rows {
			if strings.HasPrefix(r.Name, "CapabilityBoundingSet_") || r.Name == "NoNewPrivileges" ||
				r.Name == "UserOrDynamicUser" {
				checked++
				if r.Set == nil || !*r.Set {
					t.Errorf("%s: %s is not in force", filepath.Base(service), r.Name)
				}
			}
		}
		if checked < 10 {
			t.Errorf("only %d rows recognised", checked)
		}
	}
}

// TestInstancesDropIn: what an operator copies on hosts with guests is valid, and is what lets the
// agent write to the guests' disks.
func TestInstancesDropIn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, _, all := installed(t)
	content := testproc.Try(fs.ReadFile(Units, "units/instances.conf")).Or(t)
	dropIn := filepath.Join(dir, "compute-agent.service.d", "instances.conf")
	testproc.Check(t, os.MkdirAll(filepath.Dir(dropIn), 0o755))
	for text, want := range map[string]string{string(content): "", "[Service]\nNonsense=yes\n": "Nonsense"} {
		testproc.Check(t, os.WriteFile(dropIn, []byte(text), 0o644))
		if out := testproc.VerifyUnits(t, dir, all...); (out == "") != (want == "") || !strings.Contains(out, want) {
			t.Errorf("systemd-analyze verify: %q, want %q in it", out, want)
		}
	}
	for _, line := range []string{"ReadWritePaths=-/var/lib/compute-agent-instances"} {
		if !strings.Contains(string(content), "\n"+line+"\n") {
			t.Errorf("instances.conf lacks %q", line)
		}
	}
}

// TestCPUPowerFiles: what an operator copies on hosts with power management is valid, and opens the
// files that the driver writes, and no others.
func TestCPUPowerFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, _, all := installed(t)
	read := func(name string) string {
		t.Helper()
		text := testproc.Try(fs.ReadFile(Units, "units/"+name)).Or(t)
		return string(text)
	}
	write := func(name, text string) {
		t.Helper()
		testproc.Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		testproc.Check(t, os.WriteFile(name, []byte(text), 0o644))
	}
	dropIn := filepath.Join(dir, "compute-agent.service.d", "cpu-power.conf")
	write(dropIn, read("cpu-power.conf"))
	testproc.Samef(t, testproc.VerifyUnits(t, dir, all...), "systemd-analyze verify")
	write(dropIn, "[Service]\nNonsense=yes\n") // it is read
	if out := testproc.VerifyUnits(t, dir, all...); !strings.Contains(out, "Nonsense") {
		t.Errorf("systemd-analyze verify does not read the drop-in: %q", out)
	}
	root, kernel := t.TempDir(), "sys/devices/system/cpu/"
	want := map[string]os.FileMode{
		"cpu3/online": 0o664, "cpu12/online": 0o664, "cpufreq/policy12/scaling_governor": 0o664,
		"online": 0o644, "cpufreq/policy12/scaling_max_freq": 0o644, "smt/control": 0o644,
	}
	for name := range want {
		write(filepath.Join(root, kernel, name), "1\n")
	}
	conf := filepath.Join(t.TempDir(), "cpu-power.conf")
	// for a test without root
	write(conf, strings.ReplaceAll(read("cpu-power-tmpfiles.conf"), " root compute-agent ", " - - "))
	if out, err := exec.CommandContext(t.Context(), testproc.SystemdTool(t, "systemd-tmpfiles"), "--root="+root,
		"--create", conf).CombinedOutput(); err != nil {
		t.Fatalf("systemd-tmpfiles: %v\n%s", err, out)
	}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(root, kernel, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode().Perm(), err, mode)
		}
	}
}
