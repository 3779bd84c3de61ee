// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// connectAs connects to a unix socket as another user, which only root can; as the own user if uid
// is that one.
func connectAs(ctx context.Context, uid int, path string) (c net.Conn, err error) {
	dial := func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
	if uid == os.Geteuid() {
		return dial()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread, which has another user now, ends with the goroutine
		if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0),
			uintptr(uid), ^uintptr(0)); failed != 0 {
			err = failed
			return
		}
		fd, failed := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if failed != nil {
			err = failed
			return
		}
		if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			_ = syscall.Close(fd)
			return
		}
		file := os.NewFile(uintptr(fd), path)
		c, err = net.FileConn(file)
		_ = file.Close()
	}()
	<-done
	return c, err
}

// TestPeerUserDecidesAccess: the kernel says which user a client is, and that decides what it may
// do.
func TestPeerUserDecidesAccess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	self := os.Geteuid()
	text := strconv.Itoa(self)
	const another, agent = 54321, 54322
	type client struct {
		uid  int
		host string // of its call as an agent
		api  int    // status of a call of the compute API
		work int    // status of a call of an agent
	}
	cases := map[string]struct {
		api, agents []string
		clients     []client
	}{
		"the compute API": {[]string{text}, nil, []client{{self, "h1", 200, 403}}},
		"the agent":       {nil, []string{text}, []client{{self, "h1", 403, 200}, {self, "h2", 403, 403}}},
		"both": {[]string{text},
			[]string{text}, []client{{self, "h1", 200, 200}, {self, "h2", 200, 403}}},
		"no user is allowed": {nil, nil, []client{{self, "h1", 403, 403}}},
	}
	if self == 0 {
		cases["two users by name and number, and others"] = struct {
			api, agents []string
			clients     []client
		}{[]string{"root"}, []string{strconv.Itoa(agent)}, []client{
			{0, "h1", 200, 403}, {agent, "h1", 403, 200}, {agent, "h2", 403, 403}, {another, "h1", 403, 403},
		}}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			auth := testproc.Try(cell.Peer(c.api, c.agents, "h1")).Or(t)
			w := begin(t, func(config *cell.Config) { config.Auth = auth })
			path := listenPeers(t, w.cell, auth)
			for _, one := range c.clients {
				for target, want := range map[string]int{
					"/v1/services": one.api, "/v1/hosts/" + one.host + "/work": one.work,
				} {
					conn, err := connectAs(t.Context(), one.uid, path)
					testproc.Checkf(t, err, "uid %d cannot connect", one.uid)
					transport := &http.Transport{DisableKeepAlives: true,
						DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cell"+target, nil)
					got := testproc.Try(transport.RoundTrip(r)).Or(t)
					_ = got.Body.Close()
					// Of calls that are allowed, those of an unknown host are answered 404.
					if allowed := got.StatusCode != http.StatusForbidden &&
						got.StatusCode != http.StatusUnauthorized; allowed != (want == 200) || got.StatusCode >= 500 {
						t.Errorf("uid %d, %s: answered %d, want %d", one.uid, target, got.StatusCode, want)
					}
				}
			}
		})
	}
}

// listenPeers serves the cell on a unix socket that all users can reach.
func listenPeers(t *testing.T, handler http.Handler, auth cell.Auth) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "peer") // t.TempDir is closed to other users
	testproc.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testproc.Check(t, os.Chmod(dir, 0o711))
	path = filepath.Join(dir, "run", "cell.sock")
	l := testproc.Try(osapi.ListenPeers(t.Context(), "unix://"+path)).Or(t)
	testproc.NoError(t, auth.CheckListen(l.Addr()))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- (&osapi.Server{Handler: handler, Logger: zerolog.Nop()}).Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		testproc.NoError(t, <-ended)
	})
	return path
}

// TestPeerNeedsAUnixSocket: without a unix socket there is no user to ask for.
func TestPeerNeedsAUnixSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	auth := testproc.Try(cell.Peer([]string{"0"}, []string{strconv.Itoa(os.Geteuid())}, "h1")).Or(t)
	for _, address := range []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{Port: 1}} {
		testproc.ErrorHas(t, auth.CheckListen(address), "unix:///PATH", "%s: %v", address)
	}
	w := begin(t, func(config *cell.Config) { config.Auth = auth })
	w.refused(401, cellwire.CodeUnauthorized, "GET", "/v1/services", nil)
	testproc.Try(cell.Peer([]string{"no-such-user-here"}, nil, "h1")).ErrorHas(t, "api_users", "an unknown user: %v")
	testproc.Try(cell.Peer(nil, []string{"-1"}, "h1")).ErrorHas(t, "agent_users", "no uid: %v")
}
