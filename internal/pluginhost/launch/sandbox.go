// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sandbox says what a plugin's process, and what it starts, can do. Under Landlock it reads
// everything that its user may read, but for secrets; and of what its user may write, it writes to
// these paths. Neither can it read the memory, the environment and the descriptors of the agent and
// of other plugins, and, from version 6 of Landlock on, send them signals or connect to abstract
// sockets. A filter of system calls refuses what no plugin needs, and to change the modes of files.
//
// A symbolic link is followed to one of these paths only if root made it where the process cannot
// write: others the plugin may have made at its last start, to have secrets opened for it.
//
// Connections to other sockets are not restricted.
type Sandbox struct {
	// Required refuses to start the plugin if the kernel lacks Landlock or seccomp filters. Without
	// it the plugin runs with what the kernel has.
	Required bool
	// Secrets are files and directories that the process must not read, but for the names in a
	// directory. They are exempt from Write.
	Secrets []string
	// Protected are files and directories that it may read and that are exempt from Write. In a
	// directory of Secrets it may read what Write has.
	Protected []string
	// Write are files and directories that it may write to. One that contains secrets is open
	// without them, and one in a directory of Secrets is open for reading.
	Write []string
	// GrantRead and GrantWrite are what an operator allows in any case, secrets or not.
	GrantRead, GrantWrite []string
	// Modes lets the process change modes, owners and extended attributes of files: of all files of
	// its user, because Landlock does not restrict that.
	Modes bool
}

// Equal reports whether both are the same.
func (s *Sandbox) Equal(o *Sandbox) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Required == o.Required && s.Modes == o.Modes && slices.Equal(s.Secrets, o.Secrets) &&
		slices.Equal(s.Protected, o.Protected) &&
		slices.Equal(s.Write, o.Write) && slices.Equal(s.GrantRead, o.GrantRead) &&
		slices.Equal(s.GrantWrite, o.GrantWrite)
}

// instanceDirs are the directories of guests' disks that a driver uses without naming them in its
// configuration: the package's, Nova's, and libvirt's default storage pool.
var instanceDirs = []string{"/var/lib/compute-agent-instances", "/var/lib/libvirt/images", "/var/lib/nova/instances"}

// WritePaths are the directories of guests' disks and the paths in a driver's own configuration,
// which it may write to: sorted, for [Sandbox.Write].
func WritePaths(config any) []string {
	paths := append(slices.Clone(instanceDirs), absolutePaths(config)...)
	slices.Sort(paths)
	return slices.Compact(paths)
}

// absolutePaths are the paths in a driver's own configuration, whatever their keys are called. The
// root is what much is relative to, not what a driver writes to.
func absolutePaths(value any) (paths []string) {
	switch value := value.(type) {
	case string:
		if filepath.IsAbs(value) && filepath.Clean(value) != "/" {
			paths = append(paths, filepath.Clean(value))
		}
	case []any:
		for _, one := range value {
			paths = append(paths, absolutePaths(one)...)
		}
	case map[string]any:
		for _, one := range value {
			paths = append(paths, absolutePaths(one)...)
		}
	}
	return paths
}

// StandardSandbox is what an agent starts a driver in if its configuration has the driver's own
// keys alone: with the standard directories of the agent, and no secrets elsewhere. It is for
// drivers that are tried without an agent. Configurations that are not JSON name no paths.
func StandardSandbox(configs ...json.RawMessage) *Sandbox {
	var all []any
	for _, raw := range configs {
		var config any
		if json.Unmarshal(raw, &config) == nil {
			all = append(all, config)
		}
	}
	return &Sandbox{Secrets: []string{"/etc/compute-agent", "/run/compute-agent", "/var/lib/compute-agent"},
		Write: WritePaths(all)}
}

// writable is what plugins may write to, as far as their user may: devices, temporary files, and
// the kernel's own files. Of the files of processes a plugin's own are added when it is started:
// with /proc/PID/oom_score_adj one could have the kernel end the agent.
var writable = []string{"/dev", "/tmp", "/var/tmp", "/proc/sys", "/sys"}

// Rights of Landlock, see landlock(7).
const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	ownRights  = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// landlockABI is the version of Landlock that the kernel has, 0 if it has none or if it was not
// switched on.
func landlockABI() int {
	version, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if failed != 0 {
		return 0
	}
	return int(version)
}

// allRights are the rights to files that a version of Landlock knows. That to control devices
// (version 5) is left to the permissions of the devices.
func allRights(abi int) uint64 {
	rights := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1)
	if abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return rights
}

// scopeABI is the first version of Landlock that restricts signals and abstract sockets.
const scopeABI = 6

// ruleset is a set of rules of Landlock in the making.
type ruleset struct {
	file    *os.File
	all     uint64
	skipped []string // paths that got no rule because of where they lead
}

// build makes the rules of [Sandbox.Confine]. The caller closes the ruleset.
func (s *Sandbox) build(abi int, exe *os.File, own ...string) (r *ruleset, err error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: allRights(abi)}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if abi >= scopeABI {
		attr.Scoped, size = unix.LANDLOCK_SCOPE_SIGNAL|unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET,
			unsafe.Offsetof(attr.Quiet_access_fs)
	}
	fd, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if failed != 0 {
		return nil, fmt.Errorf("landlock_create_ruleset: %w", failed)
	}
	r = &ruleset{file: os.NewFile(fd, "landlock"), all: attr.Handled_access_fs}
	secrets := resolved(s.Secrets)
	unwritable := append(resolved(s.Protected), secrets...)
	opened := s.opened(own)
	err = r.allow(int(exe.Fd()), readRights&fileRights)
	// Names may be listed everywhere: many programs open a directory such as / to begin from there.
	err = errors.Join(err, r.allowPath("/", unix.LANDLOCK_ACCESS_FS_READ_DIR), r.allowExcept("/", secrets, readRights))
	for _, path := range absolute(slices.Concat(writable, s.Write, own)) {
		real, ok := r.resolve(path, opened)
		switch {
		case !ok || s.leadsToSecret(path, real):
			r.skip(path)
		case atOrBelow(real, secrets...) && !atOrBelow(path, absolute(own)...):
			err = errors.Join(err, r.allowExcept(real, secrets, readRights))
		default:
			err = errors.Join(err, r.allowExcept(real, unwritable, r.all))
		}
	}
	grant := func(paths []string, rights uint64) {
		for _, path := range absolute(paths) {
			if real, ok := r.resolve(path, opened); ok {
				err = errors.Join(err, r.allowPath(real, rights))
			} else {
				r.skip(path)
			}
		}
	}
	grant(s.GrantRead, readRights)
	grant(s.GrantWrite, r.all)
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// resolved are paths without symbolic links, as far as they exist.
func resolved(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, path := range absolute(paths) {
		rest := ""
		for {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				out = append(out, filepath.Join(real, rest))
				break
			}
			path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
		}
	}
	return out
}

// absolute are the absolute ones of these paths, cleaned.
func absolute(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, path := range paths {
		if filepath.IsAbs(path) {
			out = append(out, filepath.Clean(path))
		}
	}
	return out
}

// atOrBelow reports whether a path is one of these, or below one.
func atOrBelow(path string, dirs ...string) bool {
	for _, dir := range dirs {
		if path == dir || dir == "/" || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// opened are the paths that the process can write to, by their names and by where they lead.
func (s *Sandbox) opened(own []string) []string {
	paths := absolute(slices.Concat(writable, s.Write, own, s.GrantWrite))
	return append(paths, resolved(paths)...)
}

// leadsToSecret reports whether a path that is not named as one of a secret directory is one.
func (s *Sandbox) leadsToSecret(path, real string) bool {
	for _, secret := range absolute(s.Secrets) {
		is := resolved([]string{secret})[0]
		if atOrBelow(real, is) && !atOrBelow(path, secret, is) {
			return true
		}
	}
	return false
}

// maxLinks is how many symbolic links a path may have, as for the kernel.
const maxLinks = 40

// resolve returns a path without symbolic links, as far as it exists. It is false if a link is not
// to be trusted.
func (r *ruleset) resolve(path string, opened []string) (string, bool) {
	real, rest, links := "/", path, 0
	for rest != "" {
		var name string
		if name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/"); name == "" {
			continue
		}
		next := filepath.Join(real, name)
		var st unix.Stat_t
		if err := unix.Lstat(next, &st); err != nil {
			return filepath.Join(next, rest), true
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			real = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks || st.Uid != 0 || atOrBelow(real, opened...) || !closed(real) {
			return "", false
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = target + "/" + rest
	}
	return real, true
}

// closed reports whether only root can replace what root has in a directory.
func closed(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Uid == 0 && (st.Mode&0o022 == 0 || st.Mode&unix.S_ISVTX != 0)
}

// skip keeps a path that gets no rule. What all plugins may write to, such as a device that a link
// in /dev leads to, needs none.
func (r *ruleset) skip(path string) {
	if !atOrBelow(resolved([]string{path})[0], resolved(writable)...) {
		r.skipped = append(r.skipped, path)
	}
}

// allowExcept allows what is at a path, except for some paths: of a directory that contains some,
// the entries that exist now are allowed one by one. Landlock has no rules that deny.
func (r *ruleset) allowExcept(path string, except []string, rights uint64) error {
	below := false
	for _, one := range except {
		if one == path {
			return nil
		}
		below = below || path == "/" || strings.HasPrefix(one, path+"/")
	}
	if !below {
		return r.allowPath(path, rights)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil //nolint:nilerr // what the agent cannot list, a plugin cannot either
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSymlink != 0 {
			continue // where it leads to, its own path allows or not
		}
		if err := r.allowExcept(filepath.Join(path, entry.Name()), except, rights); err != nil {
			return err
		}
	}
	return nil
}

// allowPath allows what is at a path without symbolic links, and all below it. What does not exist,
// or became a link meanwhile, gets no rule.
func (r *ruleset) allowPath(path string, rights uint64) error {
	fd, err := openWithoutLinks(path)
	if err != nil {
		return nil // nor can a plugin open it
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
	default:
		rights &= fileRights
	}
	if err := r.allow(fd, rights); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// openWithoutLinks opens a path that has no symbolic links. It does not use openat2, which
// RestrictSUIDSGID= of a unit refuses.
func openWithoutLinks(path string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := unix.Open("/", flags, 0)
	for rest := strings.Trim(path, "/"); err == nil && rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		var next int
		if rest == "" {
			next, err = unix.Openat(at, name, flags, 0)
		} else {
			next, err = unix.Openat(at, name, flags|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(at)
		at = next
	}
	return at, err
}

func (r *ruleset) allow(fd int, rights uint64) error {
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.all, Parent_fd: int32(fd)}
	if _, _, failed := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, r.file.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); failed != 0 {
		return fmt.Errorf("landlock_add_rule: %w", failed)
	}
	return nil
}

func (r *ruleset) close() { _ = r.file.Close() }
