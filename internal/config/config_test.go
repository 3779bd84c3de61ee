// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// machine is a host called node-1 on which the agent runs as root.
func machine(file string, environ ...string) Options {
	return Options{
		File:     file,
		Environ:  append([]string{}, environ...),
		Hostname: func() (string, error) { return "node-1", nil },
		UID:      func() int { return 0 },
	}
}

// write makes a directory of files and returns the path of its main file.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		testproc.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testproc.Check(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return filepath.Join(dir, "compute-agent.toml")
}

func mustLoad(t *testing.T, opts Options) *Config {
	t.Helper()
	c, err := Load(opts)
	testproc.Checkf(t, err, "Load")
	return c
}

// values ignores where values came from.
var values = cmpopts.IgnoreUnexported(Config{})

func TestDefaults(t *testing.T) {
	var out bytes.Buffer
	testproc.Check(t, Defaults(&out))
	golden.Text(t, "testdata/defaults.toml", out.String())

	bare := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": ""})))
	full := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": out.String()})))
	if diff := cmp.Diff(bare, full, values, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the printed defaults are not the defaults (-bare +printed):\n%s", diff)
	}
	for path := range new(Config).keys() {
		if src, _ := full.Source(path); src.Kind != FromFile {
			t.Errorf("%s is missing from the printed defaults", path)
		}
	}
}

// TestDefaultsDriverExample: the commented part about drivers must work for who removes the marks.
func TestDefaultsDriverExample(t *testing.T) {
	var out bytes.Buffer
	testproc.Check(t, Defaults(&out))
	_, example, found := strings.Cut(out.String(), "# [drivers.libvirt]")
	if !found {
		t.Fatal("no example of a driver")
	}
	text := "[drivers.libvirt]" + strings.ReplaceAll(example, "\n# ", "\n")
	c := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": text})))
	want := &Driver{Enabled: true, Path: "/usr/libexec/compute-agent/plugins/compute-driver-libvirt",
		Sandbox: SandboxLandlock, UnavailableGrace: 10 * time.Minute}
	testproc.Samef(t, cmp.Diff(want, c.Drivers["libvirt"], cmpopts.EquateEmpty()), "driver of the example")
	for _, k := range newDriver().keys() {
		if s, _ := c.Source("drivers.libvirt." + k.Name); s.Kind != FromFile {
			t.Errorf("drivers.libvirt.%s is missing from the example", k.Name)
		}
	}
}

// TestEveryFieldHasAKey: every field of Config has exactly one key: a key for each field must
// change it, and no two keys may share one.
func TestEveryFieldHasAKey(t *testing.T) {
	var leaves func(v reflect.Value) int
	leaves = func(v reflect.Value) int {
		n := 0
		for i := range v.NumField() {
			switch f := v.Type().Field(i); {
			case f.IsExported() && f.Type.Kind() == reflect.Struct:
				n += leaves(v.Field(i))
			case f.IsExported():
				n++
			}
		}
		return n
	}
	c := reflect.ValueOf(Config{})
	for _, s := range new(Config).sections() {
		name := strings.ReplaceAll(s.Name, "_", "")
		f := c.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, name) })
		if !f.IsValid() {
			t.Errorf("[%s] has no field in Config", s.Name)
			continue
		}
		if got, want := len(s.keys), leaves(f); got != want {
			t.Errorf("[%s] declares %d keys for %d fields", s.Name, got, want)
		}
	}
	if got, want := len(newDriver().keys()), leaves(reflect.ValueOf(Driver{})); got != want {
		t.Errorf("[drivers.NAME] declares %d keys for %d fields", got, want)
	}
	envs := map[string]string{}
	for path := range new(Config).keys() {
		if other, taken := envs[EnvName(path)]; taken {
			t.Errorf("%s and %s have the same variable", path, other)
		}
		envs[EnvName(path)] = path
	}
}

func TestLaterSourcesWin(t *testing.T) {
	main := write(t, map[string]string{
		"compute-agent.toml": `
[agent]
host = "from-main"
[tracker]
update_resources_interval = "10s"
association_refresh = "0s"
pass_deadline = "30s"
[drivers.libvirt]
args = ["--one"]
env = {A = "main", B = "main"}
[drivers.libvirt.config]
uri = "qemu:///system"
reserved = {memory_mb = 512, cpus = 1}
`,
		"conf.d/10-site.toml": "[tracker]\nupdate_resources_interval = \"20s\"\npass_deadline = \"40s\"\n",
		"conf.d/20-host.toml": "[tracker]\npass_deadline = \"50s\"\n[drivers.libvirt]\nenv.B = \"host\"\n" +
			"config.reserved.memory_mb = 1024\n",
		"conf.d/.hidden.toml": "this is not read",
		"conf.d/notes.txt":    "nor is this",
	})
	opts := machine(main, "COMPUTE_AGENT_TRACKER_PASS_DEADLINE=60s", "COMPUTE_AGENT_DRIVERS_FAKE_ENABLED=true",
		`COMPUTE_AGENT_DRIVERS_FAKE_CONFIG={nodes = 2}`,
		"COMPUTE_AGENT_DRIVERS_FAKE_ARGS=--a, --b", "COMPUTE_AGENT_FROM_ELSEWHERE=1")
	opts.IgnoreEnv = []string{"COMPUTE_AGENT_FROM_ELSEWHERE"}
	opts.Overrides = []Override{{Key: "agent.state_dir", Value: "/srv/state", Flag: "--state-dir"}}
	c := mustLoad(t, opts)

	dir := filepath.Dir(main)
	if got, want := c.Tracker.UpdateResourcesInterval, 20*time.Second; got != want {
		t.Errorf("update_resources_interval is %v, want %v of conf.d", got, want)
	}
	if c.Tracker.AssociationRefresh != 0 || c.Tracker.PassDeadline != time.Minute || c.Agent.StateDir != "/srv/state" {
		t.Errorf("got %+v %+v", c.Tracker, c.Agent)
	}
	libvirt := &Driver{
		Enabled: true, Path: "/usr/libexec/compute-agent/plugins/compute-driver-libvirt", Args: []string{"--one"},
		Env: map[string]string{"A": "main", "B": "host"},
		Config: map[string]any{"uri": "qemu:///system",
			"reserved": map[string]any{"memory_mb": int64(1024), "cpus": int64(1)}},
		Sandbox:          SandboxLandlock,
		UnavailableGrace: 10 * time.Minute,
	}
	fake := &Driver{Enabled: true, Sandbox: SandboxLandlock, UnavailableGrace: 10 * time.Minute,
		Path: "/usr/libexec/compute-agent/plugins/compute-driver-fake", Args: []string{"--a", "--b"},
		Config: map[string]any{"nodes": int64(2)}}
	testproc.Samef(t, cmp.Diff(map[string]*Driver{"libvirt": libvirt, "fake": fake}, c.Drivers), "drivers")
	if js, err := c.Drivers["libvirt"].ConfigJSON(); err != nil ||
		string(js) != `{"reserved":{"cpus":1,"memory_mb":1024},"uri":"qemu:///system"}` {
		t.Errorf("ConfigJSON is %s, %v", js, err)
	}
	for key, want := range map[string]string{
		"agent.host":                                dir + "/compute-agent.toml:3",
		"tracker.update_resources_interval":         dir + "/conf.d/10-site.toml:2",
		"tracker.pass_deadline":                     "environment COMPUTE_AGENT_TRACKER_PASS_DEADLINE",
		"agent.state_dir":                           "flag --state-dir",
		"agent.runtime_dir":                         "default (for root)",
		"tracker.retry_backoff_min":                 "default",
		"drivers.libvirt.config.uri":                dir + "/compute-agent.toml:12",
		"drivers.libvirt.config.reserved.memory_mb": dir + "/conf.d/20-host.toml:5",
		"drivers.libvirt.config.reserved.cpus":      dir + "/compute-agent.toml:13",
		"drivers.libvirt.enabled":                   "default",
		"drivers.fake.config":                       "environment COMPUTE_AGENT_DRIVERS_FAKE_CONFIG",
	} {
		if got, ok := c.Source(key); !ok || got.String() != want {
			t.Errorf("Source(%s) is %q %t, want %q", key, got, ok, want)
		}
	}
	if _, ok := c.Source("tracker.nothing"); ok {
		t.Error("Source knows a key that does not exist")
	}
	testproc.Same(t, cmp.Diff([]string{"fake", "libvirt"}, c.EnabledDrivers()))
	testproc.Same(t, cmp.Diff([]string{main, dir + "/conf.d/10-site.toml", dir + "/conf.d/20-host.toml"}, c.Files()))
}

// TestEveryKeyHasAWorkingVariable: every key can be given in its variable, whatever its type.
func TestEveryKeyHasAWorkingVariable(t *testing.T) {
	base := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": "[drivers.a-b]\n"})))
	for _, e := range base.Entries() {
		text := e.Value
		if v, isString := strings.CutPrefix(text, `"`); isString {
			text = strings.TrimSuffix(v, `"`)
		}
		c, err := Load(machine(write(t, map[string]string{"compute-agent.toml": "[drivers.a-b]\n"}), e.Env+"="+text))
		if err != nil {
			t.Errorf("%s=%s: %v", e.Env, text, err)
			continue
		}
		testproc.Samef(t, cmp.Diff(base, c, values, cmpopts.EquateEmpty()), "%s: the default changed something", e.Env)
		if s, _ := c.Source(e.Key); s.Kind != FromEnvironment {
			t.Errorf("%s: source is %s", e.Key, s)
		}
	}
}

func TestDirectories(t *testing.T) {
	for name, tc := range map[string]struct {
		uid            int
		env            []string
		state, runtime string
	}{
		"root": {0, nil, "/var/lib/compute-agent", "/run/compute-agent"},
		"a systemd service": {990, []string{"STATE_DIRECTORY=/var/lib/a:/var/lib/b", "RUNTIME_DIRECTORY=/run/a"},
			"/var/lib/a", "/run/a"},
		"a user": {1000, []string{"HOME=/home/u", "XDG_RUNTIME_DIR=/run/user/1000"},
			"/home/u/.local/state/compute-agent", "/run/user/1000/compute-agent"},
		"a user with XDG": {1000, []string{"HOME=/home/u", "XDG_STATE_HOME=/x", "XDG_RUNTIME_DIR=/y"},
			"/x/compute-agent", "/y/compute-agent"},
		"a user without login": {1000, []string{"HOME=/home/u"}, "/home/u/.local/state/compute-agent",
			"/home/u/.local/state/compute-agent/run"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := machine(write(t, map[string]string{"compute-agent.toml": ""}), tc.env...)
			opts.UID = func() int { return tc.uid }
			c := mustLoad(t, opts)
			if c.Agent.StateDir != tc.state || c.Agent.RuntimeDir != tc.runtime {
				t.Errorf("state %s, runtime %s; want %s, %s",
					c.Agent.StateDir, c.Agent.RuntimeDir, tc.state, tc.runtime)
			}
			testproc.Equal(t, c.Agent.ControlSocket(), tc.runtime+"/agent.sock", "control socket is %s")
		})
	}
}

// TestDirectoriesOfTheService: its user gets the service's directories where they exist, so that an
// agent that is started by hand has the identity of the service, or meets its lock.
func TestDirectoriesOfTheService(t *testing.T) {
	root := t.TempDir()
	testproc.Check(t, os.MkdirAll(filepath.Join(root, "var/lib/compute-agent"), 0o700))
	opts := Options{
		Root: root, Environ: []string{"HOME=/var/lib/compute-agent"},
		Hostname: func() (string, error) { return "cn1", nil }, UID: os.Getuid,
	}
	if os.Getuid() == 0 {
		testproc.Check(t, os.Chown(filepath.Join(root, "var/lib/compute-agent"), 990, 990))
		opts.UID = func() int { return 990 }
	}
	c := mustLoad(t, opts)
	if c.Agent.StateDir != "/var/lib/compute-agent" || c.Agent.RuntimeDir != "/var/lib/compute-agent/run" {
		t.Errorf("without the service: state %s, runtime %s", c.Agent.StateDir, c.Agent.RuntimeDir)
	}
	testproc.Check(t, os.MkdirAll(filepath.Join(root, "run/compute-agent"), 0o700))
	testproc.Check(t, os.Chown(filepath.Join(root, "run/compute-agent"), opts.UID(), -1))
	c = mustLoad(t, opts)
	testproc.Equal(t, c.Agent.RuntimeDir, "/run/compute-agent", "beside the service: runtime %s")
	another := opts.UID() + 1
	opts.UID = func() int { return another }
	c = mustLoad(t, opts)
	testproc.Equal(t, c.Agent.StateDir, "/var/lib/compute-agent/.local/state/compute-agent", "another user: state %s")
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(machine(filepath.Join(dir, "absent.toml")))
	if !errors.Is(err, ErrInvalid) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that is absent: %v", err)
	}
	_, err = Load(machine(dir))
	testproc.ErrorIs(t, err, errNotRegular, "a directory: %v")
	big := filepath.Join(dir, "big.toml")
	testproc.Check(t, os.WriteFile(big, bytes.Repeat([]byte("#"), maxFileSize+1), 0o600))
	if _, err = Load(machine(big)); !errors.Is(err, errTooBig) {
		t.Errorf("a huge file: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "placement-token"), []byte("s3cr3t\n"), 0o400))
	main := write(t, map[string]string{"compute-agent.toml": "[placement_client]\nauth = \"token\"\ntoken_file = " +
		"\"placement-token\"\n"})
	c := mustLoad(t, machine(main, "CREDENTIALS_DIRECTORY="+dir))
	secret, err := ReadSecret(c.PlacementClient.TokenFile)
	if err != nil || secret.Reveal() != "s3cr3t" {
		t.Errorf("secret %q, %v", secret.Reveal(), err)
	}
	if text := secret.String(); strings.Contains(text, "s3cr3t") {
		t.Error("a secret prints itself")
	}
	testproc.Try(Load(machine(main))).ErrorIs(t, ErrInvalid, "a credential that systemd did not pass: %v")
}

func TestReadSecretRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"readable by others": {"s", 0o644},
		"writable by group":  {"s", 0o620},
		"empty":              {"\n", 0o600},
		"two lines":          {"a\nb\n", 0o600},
		"huge":               {strings.Repeat("x", 64<<10+1), 0o600},
	} {
		path := filepath.Join(dir, "secret")
		_ = os.Remove(path)
		testproc.Check(t, os.WriteFile(path, []byte(tc.content), tc.mode))
		testproc.Check(t, os.Chmod(path, tc.mode))
		testproc.Try(ReadSecret(path)).ErrorIs(t, ErrSecret, "%s: %v", name)
	}
}

func TestLogForm(t *testing.T) {
	for _, tc := range []struct {
		format            string
		journal, terminal bool
		want              string
	}{
		{FormatAuto, true, false, FormatJournald},
		{FormatAuto, false, true, FormatConsole},
		{FormatAuto, false, false, FormatJSON},
		{FormatJSON, true, false, FormatJSON},
		{FormatConsole, true, false, FormatConsole},
		{FormatJournald, false, true, FormatJournald},
	} {
		if got := (Log{Format: tc.format}).Form(tc.journal, tc.terminal); got != tc.want {
			t.Errorf("%s, journal %t, terminal %t: %s", tc.format, tc.journal, tc.terminal, got)
		}
	}
}

func TestDiff(t *testing.T) {
	before := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": `
[plugins]
dir = "/a"
[drivers.old]
[drivers.libvirt.config]
reserved_host_memory_mb = 512
password = "one"
uri = "qemu:///system"
`})))
	after := mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": `
[plugins]
dir = "/b"
[tracker]
pass_deadline = "1m"
[drivers.libvirt.config]
reserved_host_memory_mb = 1024
password = "two"
`})))
	if got := Diff(before, before); len(got) != 0 {
		t.Errorf("a configuration differs from itself: %v", got)
	}
	want := []Change{
		{Key: "tracker.pass_deadline", Old: `"2m"`, New: `"1m"`},
		{Key: "plugins.dir", Old: `"/a"`, New: `"/b"`, Restart: true},
		{Key: "drivers.libvirt.path", Old: `"/a/compute-driver-libvirt"`, New: `"/b/compute-driver-libvirt"`},
		{Key: "drivers.libvirt.config.password", Old: hidden, New: hidden},
		{Key: "drivers.libvirt.config.reserved_host_memory_mb", Old: "512", New: "1024"},
		{Key: "drivers.libvirt.config.uri", Old: `"qemu:///system"`},
		{Key: "drivers.old.enabled", Old: "true"},
		{Key: "drivers.old.path", Old: `"/a/compute-driver-old"`},
		{Key: "drivers.old.sha256", Old: `""`},
		{Key: "drivers.old.args", Old: "[]"},
		{Key: "drivers.old.env", Old: "{}"},
		{Key: "drivers.old.sandbox", Old: `"landlock"`},
		{Key: "drivers.old.read_paths", Old: "[]"},
		{Key: "drivers.old.write_paths", Old: "[]"},
		{Key: "drivers.old.allow_chmod", Old: "false"},
		{Key: "drivers.old.unavailable_grace", Old: `"10m"`},
	}
	testproc.Samef(t, cmp.Diff(want, Diff(before, after), cmpopts.IgnoreFields(Change{}, "Source")), "changes")
}
