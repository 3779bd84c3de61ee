// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is what fits into sockaddr_un with its closing NUL.
const maxSocketPath = 107

// maxLog is the size at which the daemon's log is put aside at the next start.
const maxLog = 4 << 20

// layout is where everything of one private daemon lives.
type layout struct {
	dir, run   string
	privileged bool
	// emulators are more lines for qemu.conf.
	emulators string
}

func (l layout) lock() string      { return filepath.Join(l.dir, "lock") }
func (l layout) log() string       { return filepath.Join(l.dir, "libvirtd.log") }
func (l layout) config() string    { return filepath.Join(l.run, "libvirtd.conf") }
func (l layout) pidFile() string   { return filepath.Join(l.run, "libvirtd.pid") }
func (l layout) socket() string    { return filepath.Join(l.run, "libvirt-sock") }
func (l layout) cache() string     { return filepath.Join(l.dir, "cache") }
func (l layout) stateLink() string { return filepath.Join(l.run, "xdg") }

// temporary is what must be removed with the daemon: a dead socket must not look like a daemon.
func (l layout) temporary() []string {
	return []string{
		l.socket(), filepath.Join(l.run, "libvirt-sock-ro"), filepath.Join(l.run, "libvirt-admin-sock"),
		l.pidFile(), l.config(), l.stateLink(),
	}
}

// uri is the daemon's address for libvirt's library.
func (l layout) uri() string {
	path := "session"
	if l.privileged {
		path = "system"
	}
	return "qemu+unix:///" + path + "?socket=" + l.socket()
}

// binds are the directories that a privileged daemon finds in the place of the system's, as pairs
// of source and target. The paths are compiled into libvirt; only a mount namespace makes them
// private.
func (l layout) binds() [][2]string {
	return [][2]string{
		{filepath.Join(l.run, "run"), "/run/libvirt"},
		{filepath.Join(l.dir, "lib"), "/var/lib/libvirt"},
		{l.cache(), "/var/cache/libvirt"},
		{filepath.Join(l.dir, "etc"), "/etc/libvirt"},
		{filepath.Join(l.dir, "swtpm-localca"), "/var/lib/swtpm-localca"}, // the authority of emulated TPMs
	}
}

// session are the XDG directories of an unprivileged daemon. They go through a short link in the
// run directory, since libvirt puts sockets below its configuration directory, wherever that is.
func (l layout) session() []string {
	return []string{
		"HOME=" + filepath.Join(l.stateLink(), "home"),
		"XDG_CONFIG_HOME=" + filepath.Join(l.stateLink(), "etc"),
		"XDG_CACHE_HOME=" + filepath.Join(l.stateLink(), "cache"),
		"XDG_DATA_HOME=" + filepath.Join(l.stateLink(), "lib"),
		"XDG_RUNTIME_DIR=" + l.run,
	}
}

// check refuses directories that cannot work, before anything is made.
func (l layout) check() error {
	for _, d := range []struct{ name, path string }{{"Dir", l.dir}, {"RuntimeDir", l.run}} {
		if !filepath.IsAbs(d.path) {
			return fmt.Errorf("%s %q is not an absolute path", d.name, d.path)
		}
		// libvirt splits some of its settings at these, and a URI ends at others.
		if i := strings.IndexAny(d.path, "\"\\\n?#&% "); i >= 0 {
			return fmt.Errorf("%s %q holds %q, which libvirt's settings cannot express", d.name, d.path, d.path[i])
		}
	}
	if l.dir == l.stateLink() {
		return fmt.Errorf("the state directory %q must have another name: the runtime directory uses that one", l.dir)
	}
	longest := filepath.Join(l.run, "libvirt-admin-sock")
	if !l.privileged {
		longest = filepath.Join(l.stateLink(), "etc/libvirt/qemu/lib/qmp-XXXXXX/qmp.monitor")
	}
	if n := len(longest); n > maxSocketPath {
		return fmt.Errorf("RuntimeDir %q is %d bytes too long: libvirt's sockets below it must fit into %d bytes (%s)",
			l.run, n-maxSocketPath, maxSocketPath, longest)
	}
	return nil
}

// make creates the directories and writes the daemon's configuration.
func (l layout) make() error {
	dirs := []string{l.dir, l.run, filepath.Join(l.dir, "lib"), l.cache(), filepath.Join(l.dir, "etc"),
		filepath.Join(l.dir, "home"), filepath.Join(l.dir, "swtpm-localca"),
		filepath.Join(l.run, "run")}
	qemuConf := filepath.Join(l.dir, "etc", "qemu.conf")
	if !l.privileged {
		qemuConf = filepath.Join(l.dir, "etc", "libvirt", "qemu.conf")
		dirs = append(dirs, filepath.Dir(qemuConf))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("making the directories of the private libvirt daemon: %w", err)
		}
	}
	for _, p := range l.temporary() {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing files of an earlier libvirt daemon: %w", err)
		}
	}
	if !l.privileged {
		if err := os.Symlink(l.dir, l.stateLink()); err != nil {
			return fmt.Errorf("linking the state of the private libvirt daemon: %w", err)
		}
	}
	if info, err := os.Stat(l.log()); err == nil && info.Size() > maxLog {
		if err := os.Rename(l.log(), l.log()+".1"); err != nil {
			return fmt.Errorf("rotating the old log: %w", err)
		}
	}
	for path, text := range map[string]string{l.config(): l.daemonConf(), qemuConf: l.qemuConf()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the configuration of the private libvirt daemon: %w", err)
		}
	}
	return nil
}

// daemonConf is libvirtd.conf. It disables authentication, because the directory of the sockets is
// open to its owner only.
func (l layout) daemonConf() string {
	return `# Written at every start; changes are lost.
listen_tls = 0
listen_tcp = 0
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_ro_perms = "0700"
unix_sock_rw_perms = "0700"
unix_sock_admin_perms = "0700"
unix_sock_dir = "` + l.run + `"
log_level = 3
log_outputs = "3:file:` + l.log() + `"
`
}

// qemuConf is qemu.conf: guests write their logs themselves, so that no virtlogd is needed.
func (l layout) qemuConf() string {
	conf := `# Written at every start; changes are lost.
stdio_handler = "file"
security_driver = "none"
`
	if l.privileged {
		conf += `user = "root"
group = "root"
swtpm_user = "root"
swtpm_group = "root"
remember_owner = 0
namespaces = []
`
	}
	return conf + l.emulators
}
