// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Users of the examined host.
const (
	agentUID   = 990
	agentGID   = 990
	libvirtGID = 64055
)

// fixture is an examined host below a directory of its own, on which nothing is
// wrong, until a test breaks something.
type fixture struct {
	t       *testing.T
	root    string
	owners  map[string]int // Of paths below which files do not belong to root.
	groups  map[string]int
	denied  map[string]bool // Paths that the doctor must not look at.
	environ []string
	env     Env

	placement  http.HandlerFunc
	tls        func(*httptest.Server)
	space      Space
	synced     error // nil: synchronised; errUnsynced: not; else: unknown.
	hard       uint64
	programs   []string
	slow       bool // Every look at the clock is 3 s after the last.
	address    string
	keepClosed bool // The control socket has no agent behind it.
}

// noon is the time of the examined host and of its Placement: it does not matter how long things
// take here.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

var errUnsynced = errors.New("not synchronised")

const (
	configFile = "/etc/compute-agent/compute-agent.toml"
	stateDir   = "/var/lib/compute-agent"
	runtimeDir = "/run/compute-agent"
	pluginDir  = "/usr/libexec/compute-agent/plugins"
	pluginFile = pluginDir + "/compute-driver-libvirt"
	hostUUID   = "5f2a1f3e-6b1c-4f0e-9d35-0a2f1d6c7b11"
)

func healthy(t *testing.T) *fixture {
	t.Helper()
	// Not t.TempDir: the paths of sockets must be short.
	root := testproc.Try(os.MkdirTemp("", "doctor")).Or(t)
	t.Cleanup(func() {
		// Directories may have been not accessible for their owner, too.
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return os.Chmod(p, 0o700)
			}
			return nil
		})
		testproc.NoErrorf(t, os.RemoveAll(root), "clean up")
	})
	f := &fixture{
		t: t, root: root,
		owners:    map[string]int{stateDir: agentUID, runtimeDir: agentUID},
		groups:    map[string]int{"/run/libvirt/libvirt-sock": libvirtGID},
		denied:    map[string]bool{},
		placement: placementServer("1.39", http.StatusOK, 0),
		space:     Space{BytesFree: 10 << 30, BytesTotal: 20 << 30, InodesFree: 1e6, InodesTotal: 2e6},
		hard:      524288,
		programs:  []string{"timedatectl", "libvirtd"},
	}
	f.write(configFile, "[agent]\nhost = \"node-1\"\n[drivers.libvirt]\n", 0o640)
	f.groups["/etc/compute-agent"] = agentGID
	f.write(stateDir+"/compute_id", hostUUID+"\n", 0o644)
	f.write(stateDir+"/agent.lock", "", 0o600)
	f.write(pluginFile, "#!/bin/true\n", 0o755)
	f.write("/dev/kvm", "", 0o666)
	f.write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx sse\n", 0o444)
	f.write("/run/systemd/system/marker", "", 0o644)
	f.process(4711, "compute-agent", stateDir+"/agent.lock")
	f.process(1, "systemd", "/dev/null")
	f.chmod(stateDir, 0o750)
	f.mkdir(runtimeDir, 0o750)
	f.mkdir("/run/libvirt", 0o755)
	f.listen("/run/libvirt/libvirt-sock", 0o770)
	f.listen("/run/libvirt/libvirt-sock-ro", 0o777)
	return f
}

// powerManaged has two CPUs that the driver switches; one file has a mode.
func (f *fixture) powerManaged(mode os.FileMode) {
	f.t.Helper()
	f.config("[drivers.libvirt.config]\ncpu_power_management = true\n[drivers.libvirt.config.instances]\n")
	for cpu, mode := range map[int]os.FileMode{2: 0o664, 3: mode} {
		name := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu)
		f.write(name, "1\n", mode)
		f.owners[name], f.groups[name] = 0, agentGID
	}
}

func (f *fixture) must(err error) {
	f.t.Helper()
	testproc.Check(f.t, err)
}

func (f *fixture) path(p string) string { return filepath.Join(f.root, p) }

func (f *fixture) mkdir(p string, mode os.FileMode) {
	f.t.Helper()
	f.must(os.MkdirAll(f.path(p), 0o755))
	f.must(os.Chmod(f.path(p), mode))
}

func (f *fixture) write(p, content string, mode os.FileMode) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Dir(f.path(p)), 0o755))
	f.must(os.RemoveAll(f.path(p)))
	f.must(os.WriteFile(f.path(p), []byte(content), 0o600))
	f.must(os.Chmod(f.path(p), mode))
}

func (f *fixture) chmod(p string, mode os.FileMode) { f.t.Helper(); f.must(os.Chmod(f.path(p), mode)) }
func (f *fixture) remove(p string)                  { f.t.Helper(); f.must(os.RemoveAll(f.path(p))) }
func (f *fixture) config(text string)               { f.t.Helper(); f.write(configFile, text, 0o640) }

// process makes the part of /proc that the doctor looks at.
func (f *fixture) process(pid int, comm, open string) {
	f.t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	f.write(dir+"/comm", comm+"\n", 0o444)
	f.mkdir(dir+"/fd", 0o755)
	f.must(os.Symlink(open, f.path(dir+"/fd/7")))
}

func (f *fixture) listen(p string, mode os.FileMode) net.Listener {
	f.t.Helper()
	l := testproc.Try(net.Listen("unix", f.path(p))).Or(f.t)
	f.t.Cleanup(func() { _ = l.Close() })
	f.must(os.Chmod(f.path(p), mode))
	return l
}

// abandon leaves a socket behind on which no process listens.
func (f *fixture) abandon(p string, mode os.FileMode) {
	f.t.Helper()
	f.remove(p)
	l := testproc.Try(net.ListenUnix("unix", &net.UnixAddr{Name: f.path(p), Net: "unix"})).Or(f.t)
	l.SetUnlinkOnClose(false)
	f.must(l.Close())
	f.must(os.Chmod(f.path(p), mode))
}

// agent answers on the control socket, and says of itself that these conditions are there.
func (f *fixture) agent(status int, conditions ...health.Condition) {
	f.t.Helper()
	said, err := json.Marshal(health.Status{Summary: "degraded: the driver is gone", Conditions: conditions})
	f.must(err)
	l := f.listen(runtimeDir+"/agent.sock", 0o600)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/status" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			_, _ = w.Write(said)
		}),
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	f.t.Cleanup(func() { _ = server.Close(); <-served })
}

// placementServer answers as Placement does, with a clock that is off by skew.
func placementServer(max string, auth int, skew time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", noon.Add(skew).Format(http.TimeFormat))
		if r.URL.Path == "/" {
			_, _ = fmt.Fprintf(w,
				`{"versions": [{"id": "v1.0", "max_version": %q, "min_version": "1.0", "status": "CURRENT"}]}`, max)
			return
		}
		if r.URL.Path != "/resource_providers" || r.URL.Query().Get("name") != "node-1" ||
			r.Header.Get("X-Auth-Token") == "" {
			auth = http.StatusBadRequest
		}
		w.WriteHeader(auth)
	}
}

// examine runs the doctor on the host as it now is.
func (f *fixture) examine() []Result {
	f.t.Helper()
	if !f.keepClosed {
		f.agent(http.StatusOK)
	}
	server := httptest.NewUnstartedServer(f.placement)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if f.tls != nil {
		f.tls(server)
	} else {
		server.Start()
	}
	f.t.Cleanup(server.Close)
	f.address = server.URL
	url := "COMPUTE_AGENT_PLACEMENT_CLIENT_URL=" + server.URL
	cfg, err := config.Load(config.Options{
		File: configFile, Root: f.root, Environ: append([]string{url}, f.environ...),
		Hostname: func() (string, error) { return "node-1", nil }, UID: func() int { return 0 },
		Executable: func() (string, error) { return "/opt/agent/bin/compute-agent", nil },
	})
	e := f.env
	e.Config, e.ConfigErr, e.Root = cfg, err, f.root
	if e.Examine == nil {
		e.Examine = func(context.Context) ([]commands.DriverCheck, error) {
			return []commands.DriverCheck{{Driver: "libvirt"}}, nil
		}
	}
	if e.Agent.Name == "" {
		e.Agent = Account{Name: ServiceUser, UID: agentUID, GIDs: []int{agentGID}}
		if e.createsGuests() {
			e.Agent.GIDs = append(e.Agent.GIDs, libvirtGID)
		}
	}
	e.Stat, e.Now, e.DialUnix = f.stat, func() time.Time { return noon }, dialUnix
	e.Timeout = cmp.Or(e.Timeout, time.Minute)
	e.Kernel = func() launch.Kernel { return launch.Kernel{Landlock: 6, Seccomp: true} }
	e.Statfs = func(string) (Space, error) { return f.space, nil }
	e.OpenFiles = func() (uint64, uint64, error) { return 1024, f.hard, nil }
	e.ClockSynced = func() (bool, error) {
		if errors.Is(f.synced, errUnsynced) {
			return false, nil
		}
		return true, f.synced
	}
	if e.LookupGroup == nil {
		e.LookupGroup = func(string) (int, error) { return libvirtGID, nil }
	}
	e.LookPath = func(p string) (string, error) {
		for _, known := range f.programs {
			if p == known {
				return "/usr/bin/" + p, nil
			}
		}
		return "", os.ErrNotExist
	}
	if f.slow {
		now := noon
		e.Now = func() time.Time { now = now.Add(3 * time.Second); return now }
	}
	f.env = e
	return Run(context.Background(), e)
}

// stat is the real one with the owners that the test gives.
func (f *fixture) stat(p string) (File, error) {
	file, err := statFile(p)
	rel := strings.TrimPrefix(p, f.root)
	if rel == "" {
		rel = "/"
	}
	if f.denied[rel] {
		return File{}, &os.PathError{Op: "stat", Path: p, Err: os.ErrPermission}
	}
	file.UID, file.GID = under(f.owners, rel), under(f.groups, rel)
	if rel == "/" {
		file.Mode = os.ModeDir | 0o755 // The directory that stands for the root is private.
	}
	return file, err
}

// under is the value of the longest path that p lies at or below, or 0.
func under(values map[string]int, p string) int {
	best, value := "", 0
	for at, v := range values {
		if (p == at || strings.HasPrefix(p, at+"/")) && len(at) > len(best) {
			best, value = at, v
		}
	}
	return value
}
