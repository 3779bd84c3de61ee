// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSandboxOfADriver: the agent's directories, its credentials and the files of its secrets are
// closed to a driver, and the paths of the driver's own configuration are open.
func TestSandboxOfADriver(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.toml")
	text := `
[agent]
state_dir = "/srv/state"
runtime_dir = "/run/agent"
[placement_client]
auth = "token"
token_file = "/etc/placement/token"
ca_file = "/etc/ssl/certs/ca.pem"
[drivers.one]
read_paths = ["/srv/state/for-one"]
write_paths = ["/srv/scratch"]
[drivers.one.config]
chroot = "/"
name = "no path"
instances = {images_path = "/srv/images", more = ["/srv/a/../b", 7]}
[drivers.two]
sandbox = "none"
[drivers.three]
path = "/usr/libexec/compute-driver-fake"
sandbox = "required"
allow_chmod = true
[enrolment]
ca_dir = "/srv/ca"
[enrolment_client]
url = "https://api.example:8775"
ca_file = "/srv/ca.pem"
identity_file = "/srv/identity.pem"
`
	testproc.Check(t, os.WriteFile(file, []byte(text), 0o600))
	cfg, err := config.Load(config.Options{File: file, Hostname: func() (string, error) { return "cn1", nil }})
	testproc.Check(t, err)
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/compute-agent.service")
	want := &launch.Sandbox{
		Secrets: []string{"/etc/compute-agent", "/etc/placement/token", file, "/run/agent",
			"/run/credentials/compute-agent.service", "/srv/ca", "/srv/identity.pem", "/srv/state"},
		Protected: []string{"/etc/ssl/certs/ca.pem", "/srv/ca.pem", filepath.Join(dir, "provider_config")},
		Write: []string{"/srv/b", "/srv/images", "/var/lib/compute-agent-instances", "/var/lib/libvirt/images",
			"/var/lib/nova/instances"}, GrantRead: []string{"/srv/state/for-one"}, GrantWrite: []string{"/srv/scratch"},
	}
	got := driverSandbox(cfg, "one")
	slices.Sort(want.Secrets)
	slices.Sort(want.Protected)
	testproc.Samef(t, cmp.Diff(want, got), "sandbox")
	if got := driverSandbox(cfg, "three"); !got.Required ||
		!got.Modes || !slices.Equal(got.GrantWrite, []string{"/srv/state/machines"}) {
		t.Errorf("the fake driver, whose sandbox is required, has %+v", got)
	}
	if got := driverSandbox(cfg, "two"); got != nil {
		t.Errorf("a driver without a sandbox has %+v", got)
	}
}
