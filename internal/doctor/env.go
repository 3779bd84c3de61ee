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

	"github.com/compute-agent/compute-agent/internal/config"
)

// ServiceUser is the user that the packaged service runs as.
const ServiceUser = "compute-agent"

// Account is a user with its groups.
type Account struct {
	Name string
	UID  int
	GIDs []int
}

// Space is what is left in a file system; InodesTotal is zero where inodes are
// made as needed.
type Space struct {
	BytesFree, BytesTotal   uint64
	InodesFree, InodesTotal uint64
	ReadOnly                bool
}

// Examined is what a driver says of its configuration on this machine.
type Examined struct {
	Driver string
	// Warnings are what it warns of, by name.
	Warnings map[string]string
	// Problem is why it could not look, or what it refuses; "" if it did.
	Problem string
}

// Env is the host as the doctor sees it. Host makes one for the real machine.
type Env struct {
	Config    *config.Config // Never nil; with ConfigErr it holds what could be read.
	ConfigErr error          // What Load returned.
	// Judged says whose configuration it is, "" for the one of --config or of no agent.
	Judged string
	// Examine has the enabled drivers look at the machine with this configuration; nil: they are not asked.
	Examine func(ctx context.Context) ([]Examined, error)

	Root  string  // Prefix of all paths that are looked at; empty for the real machine.
	Self  int     // The user who asks; commands for others begin with sudo.
	Agent Account // The user that the agent runs as.

	Stat        func(path string) (File, error)
	LookupGroup func(name string) (gid int, err error)
	Statfs      func(path string) (Space, error)
	OpenFiles   func() (soft, hard uint64, err error)
	ClockSynced func() (bool, error)
	Now         func() time.Time
	LookPath    func(program string) (string, error)
	DialUnix    func(ctx context.Context, path string) (net.Conn, error)
	// HTTP sends requests to Placement and Keystone; nil means that a client is made
	// of the configuration.
	HTTP http.RoundTripper
	// Timeout bounds every check; zero means DefaultTimeout.
	Timeout time.Duration

	probe func() probe
}

// Host is the machine that this process runs on. agentUser is the user to judge
// for; empty means ServiceUser when root asks and the state directory belongs
// to that user, and else whoever asks.
func Host(cfg *config.Config, cfgErr error, agentUser string) (Env, error) {
	env := Env{
		Config: cfg, ConfigErr: cfgErr, Self: os.Geteuid(),
		Stat: statFile, LookupGroup: lookupGroup, Statfs: statfs, OpenFiles: openFiles,
		ClockSynced: clockSynced, Now: time.Now, LookPath: lookPath, DialUnix: dialUnix,
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
	if err != nil {
		return Account{}, fmt.Errorf("look up the agent's user: %w", err)
	}
	a := Account{Name: u.Username}
	if a.UID, err = strconv.Atoi(u.Uid); err != nil {
		return Account{}, fmt.Errorf("look up the agent's user %s: %w", name, err)
	}
	gids, err := u.GroupIds()
	if err != nil {
		return Account{}, fmt.Errorf("look up the groups of %s: %w", name, err)
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

// clockSynced asks the kernel whether somebody disciplines its clock (adjtimex(2)).
func clockSynced() (bool, error) {
	state, err := unix.Adjtimex(&unix.Timex{})
	if err != nil {
		return false, err
	}
	return state != unix.TIME_ERROR, nil
}

// programDirs are where programs are looked for besides $PATH, which for users
// other than root seldom has them.
var programDirs = []string{"/usr/local/sbin", "/usr/sbin", "/sbin"}

// lookPath finds a program; it is not going to be run.
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

// command is a command that only root may run, or several joined by &&, for the
// user who asks.
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

// systemd tells whether systemd runs the host (sd_booted(3)); in a container it
// often does not, and systemctl is of no use.
func (e *Env) systemd() bool {
	_, err := e.stat("/run/systemd/system")
	return err == nil
}

// runsDriver tells whether a driver is configured and enabled.
func (e *Env) runsDriver(name string) bool {
	return slices.Contains(e.Config.EnabledDrivers(), name)
}
