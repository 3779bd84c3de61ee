// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

// ServiceUser is the user that the packaged service runs as.
const ServiceUser = "compute-agent"

// Account is a user with its groups.
type Account struct {
	Name string
	UID  int
	GIDs []int
	// ReadsAll is set if its service reads all files, by CAP_DAC_READ_SEARCH.
	ReadsAll bool
}

// Space is the free space of a file system. InodesTotal is 0 if inodes are allocated dynamically.
type Space struct {
	BytesFree, BytesTotal   uint64
	InodesFree, InodesTotal uint64
	ReadOnly                bool
}

// Env is the access of checks to a host. [Host] returns that of the real machine.
type Env struct {
	Config    *config.Config // never nil; with ConfigErr it holds what could be read
	ConfigErr error          // from config.Load
	// AgentDescription describes the agent whose configuration it is, "" for none.
	AgentDescription string
	// Examine lets the enabled drivers check the machine with this configuration. It may be nil.
	Examine func(ctx context.Context) ([]commands.DriverCheck, error)
	// Services are the units of this project on this machine, including the agent's. On a machine
	// that has some, but no agent, only these are checked.
	Services []Service
	// Databases are the databases on servers that the configuration names.
	Databases []Database

	Root  string  // prefix of all paths; empty for the real machine
	Self  int     // the current user; commands that need root begin with sudo
	Agent Account // the user that the agent runs as

	Stat        func(path string) (File, error)
	LookupGroup func(name string) (gid int, err error)
	LookupUser  func(name string) (Account, error)
	// Become calls f with the rights of a user to files; an error, and no call, if it cannot. Nil:
	// modes alone say who may do what.
	Become      func(a Account, f func()) error
	Statfs      func(path string) (Space, error)
	OpenFiles   func() (soft, hard uint64, err error)
	ClockSynced func() (bool, error)
	Now         func() time.Time
	LookPath    func(program string) (string, error)
	DialUnix    func(ctx context.Context, path string) (net.Conn, error)
	Kernel      func() launch.Kernel
	// HTTP sends requests to Placement and Keystone; nil means a client as configured.
	HTTP http.RoundTripper
	// Timeout limits all checks; 0 means DefaultTimeout.
	Timeout time.Duration

	probe func() probe
}

// Host returns the Env of this machine. agentUser is the user that the agent runs as; "" means
// ServiceUser for root if the state directory belongs to that user, else the current user.
func Host(cfg *config.Config, cfgErr error, agentUser string) (Env, error) {
	env := Env{
		Config: cfg, ConfigErr: cfgErr, Self: os.Geteuid(),
		Stat: statFile, Become: actAs, LookupGroup: lookupGroup, LookupUser: lookupAccount,
		Statfs: statfs, OpenFiles: openFiles,
		ClockSynced: clockSynced, Now: time.Now, LookPath: lookPath, DialUnix: dialUnix, Kernel: launch.OwnKernel,
	}
	if agentUser != "" {
		account, err := lookupAccount(agentUser)
		if err != nil {
			return Env{}, err
		}
		env.Agent = account
		return env, nil
	}
	env.Agent = currentAccount()
	if env.Self == 0 {
		account, err := lookupAccount(ServiceUser)
		info, statErr := statFile(cfg.Agent.StateDir)
		if err == nil && statErr == nil && info.UID == account.UID {
			env.Agent = account
		}
	}
	return env, nil
}

func currentAccount() Account {
	a := Account{UID: os.Geteuid(), GIDs: []int{os.Getegid()}}
	if groups, err := os.Getgroups(); err == nil {
		a.GIDs = append(a.GIDs, groups...)
	}
	a.Name = strconv.Itoa(a.UID)
	if u, err := user.LookupId(a.Name); err == nil {
		a.Name = u.Username
	}
	return a
}

func lookupAccount(name string) (Account, error) {
	u, err := user.Lookup(name)
	if _, number := strconv.Atoi(name); err != nil && number == nil { // as User= of a unit may have it
		u, err = user.LookupId(name)
	}
	if err != nil {
		return Account{}, fmt.Errorf("looking up the user: %w", err)
	}
	a := Account{Name: u.Username}
	if a.UID, err = strconv.Atoi(u.Uid); err != nil {
		return Account{}, fmt.Errorf("looking up the user %s: %w", name, err)
	}
	gids, err := u.GroupIds()
	if err != nil {
		return Account{}, fmt.Errorf("looking up the groups of %s: %w", name, err)
	}
	for _, gid := range gids {
		if n, err := strconv.Atoi(gid); err == nil {
			a.GIDs = append(a.GIDs, n)
		}
	}
	return a, nil
}

func lookupGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if gid, number := strconv.Atoi(name); err != nil && number == nil { // as Group= of a unit may have it
		return gid, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

func statfs(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	size := uint64(max(st.Bsize, 0))
	return Space{
		BytesFree: st.Bavail * size, BytesTotal: st.Blocks * size,
		InodesFree: st.Ffree, InodesTotal: st.Files,
		ReadOnly: st.Flags&unix.ST_RDONLY != 0,
	}, nil
}

func openFiles() (soft, hard uint64, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, 0, err
	}
	return limit.Cur, limit.Max, nil
}

// clockSynced asks the kernel whether its clock is synchronised (adjtimex(2)).
func clockSynced() (bool, error) {
	state, err := unix.Adjtimex(&unix.Timex{})
	if err != nil {
		return false, err
	}
	return state != unix.TIME_ERROR, nil
}

// programDirs are searched besides $PATH, which often lacks them for users other than root.
var programDirs = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// lookPath finds a program without running it.
func lookPath(program string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), programDirs...) {
		path := filepath.Join(dir, program)
		if f, err := statFile(path); err == nil && f.Mode.IsRegular() && f.Mode.Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("program %s: %w", program, os.ErrNotExist)
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// command returns a command line that needs root, with sudo if the current user is not root.
func (e *Env) command(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	if e.Self == 0 {
		return text
	}
	if !strings.HasPrefix(text, "sh -c ") {
		text = strings.ReplaceAll(text, " && ", " && sudo ")
	}
	return "sudo " + text
}

// systemd reports whether the host runs systemd (sd_booted(3)).
func (e *Env) systemd() bool {
	_, err := e.stat("/run/systemd/system")
	return err == nil
}

// runsLibvirt reports whether the libvirt driver is configured and enabled.
func (e *Env) runsLibvirt() bool {
	return slices.Contains(e.Config.EnabledDrivers(), libvirtDriver)
}
