// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// serve listens on a socket in a temporary directory and lets answer deal with every connection.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	dir := testproc.SocketDir(t)
	socket := filepath.Join(dir, "sock")
	l := testproc.Try(net.Listen("unix", socket)).Or(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return socket
}

func words(w ...uint32) []byte {
	var b []byte
	for _, x := range w {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

func readCall(c net.Conn) { _, _ = io.CopyN(io.Discard, c, rpcHeader) }

func TestProbeReportsWhatIsWrong(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	if l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"}); err != nil {
		t.Fatal(err)
	} else {
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	plain := filepath.Join(dir, "file")
	testproc.Check(t, os.WriteFile(plain, nil, 0o600))
	for _, tc := range []struct {
		name, socket string
		want         error
		says         string
	}{
		{"absent", filepath.Join(dir, "none"), ErrNotRunning, "does not exist"},
		{"left behind", stale, ErrNotRunning, "no process listens"},
		{"a plain file", plain, ErrNotRunning, "no process listens"},
		{"a daemon", serve(t, func(c net.Conn) {
			readCall(c)
			_, _ = c.Write(words(36, rpcProgramRemote, rpcVersion, rpcProcAuthList, rpcTypeReply, 1, 0, 1, 0))
		}), nil, ""},
		{"hangs up", serve(t, readCall), ErrNotLibvirt, "closed without an answer"},
		{"cut off", serve(t, func(c net.Conn) { readCall(c); _, _ = c.Write([]byte{0, 0, 0, 36}) }), ErrNotLibvirt,
			"middle"},
		{"another protocol", serve(t, func(c net.Conn) {
			readCall(c)
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
		}), ErrNotLibvirt, ""},
		{"another reply", serve(t, func(c net.Conn) {
			readCall(c)
			_, _ = c.Write(words(36, rpcProgramRemote, rpcVersion, 1, rpcTypeReply, 1, 0, 1, 0))
		}), ErrNotLibvirt, ""},
		{"a huge reply", serve(t, func(c net.Conn) {
			readCall(c)
			_, _ = c.Write(words(1<<31, rpcProgramRemote, rpcVersion, rpcProcAuthList, rpcTypeReply, 1, 0))
		}), ErrNotLibvirt, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Probe(t.Context(), tc.socket)
			if !errors.Is(err, tc.want) {
				t.Fatalf("Probe: %v, want %v", err, tc.want)
			}
			if err != nil && (!strings.Contains(err.Error(), tc.socket) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%q does not name %q and %q", err, tc.socket, tc.says)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		socket := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := Probe(ctx, socket); !errors.Is(err, ErrSilent) {
			t.Fatalf("Probe: %v, want %v", err, ErrSilent)
		}
	})
}

func TestFindTakesTheFirstThatAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	alive := serve(t, func(c net.Conn) {
		readCall(c)
		_, _ = c.Write(words(32, rpcProgramRemote, rpcVersion, rpcProcAuthList, rpcTypeReply, 1, 0, 0))
	})
	broken := serve(t, readCall)
	absent := filepath.Join(t.TempDir(), "none")
	list := []Candidate{{absent, "a"}, {broken, "b"}, {alive, "c"}, {alive, "d"}}
	if uri, ok, why := find(t.Context(), list); uri != "c" || !ok || why != "" {
		t.Errorf("find: %q %v %q", uri, ok, why)
	}
	uri, ok, why := find(t.Context(), list[:2])
	if uri != "" || ok || !strings.Contains(why, broken) || !strings.Contains(why, "no process listens on "+absent) {
		t.Errorf("find: %q %v %q", uri, ok, why)
	}
}

func TestCandidatesNameBothKindsOfDaemon(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var got []string
	for _, c := range candidates("/S", "/X") {
		got = append(got, c.Socket+" "+c.URI)
	}
	want := "/S/virtqemud-sock-ro qemu:///system,/S/libvirt-sock-ro qemu:///system,/S/virtqemud-sock " +
		"qemu:///system,/S/libvirt-sock qemu:///system," +
		"/X/libvirt/virtqemud-sock qemu:///session,/X/libvirt/libvirt-sock qemu:///session"
	if s := strings.Join(got, ","); s != want {
		t.Errorf("candidates:\n%s\nwant\n%s", s, want)
	}
	testproc.Equal(t, len(candidates("/S", "")), 4, "%d candidates without a session")
}

// TestPermissionHintFitsTheSocket: what sets the mode depends on the socket: one for reading and
// one for all that the daemon can do have options of their own.
func TestPermissionHintFitsTheSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	for name, want := range map[string]string{
		"libvirt-sock": "its mode is -rwx------, see unix_sock_rw_perms in libvirtd.conf, or SocketMode of " +
			"libvirtd.socket if systemd listens on it",
		"libvirt-sock-ro": "its mode is -rwx------, see unix_sock_ro_perms in libvirtd.conf, or SocketMode of " +
			"libvirtd-ro.socket if systemd listens on it",
		"virtqemud-sock": "its mode is -rwx------, see unix_sock_rw_perms in virtqemud.conf, or SocketMode of " +
			"virtqemud.socket if systemd listens on it",
		"virtqemud-sock-ro": "its mode is -rwx------, see unix_sock_ro_perms in virtqemud.conf, or SocketMode of " +
			"virtqemud-ro.socket if systemd listens on it",
		"mine": "its mode is -rwx------, see unix_sock_rw_perms in libvirtd.conf, or SocketMode of libvirtd.socket " +
			"if systemd listens on it",
	} {
		socket := filepath.Join(dir, name)
		if err := os.WriteFile(socket, nil, 0o700); err != nil { // the mode is what is tested
			t.Fatal(err)
		}
		testproc.Equal(t, permissionHint(socket), want, "%s: %s", name)
	}
	if got := permissionHint(filepath.Join(dir, "none", "libvirt-sock")); !strings.HasPrefix(got,
		"its directory is closed to ") {
		t.Error(got)
	}
}

func TestDevicesSocketIsOfModularDaemonsOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for socket, want := range map[string]string{
		"/run/libvirt/virtqemud-sock":    "/run/libvirt/virtnodedevd-sock",
		"/run/libvirt/virtqemud-sock-ro": "/run/libvirt/virtnodedevd-sock-ro",
		"/run/libvirt/libvirt-sock":      "", "/run/user/7/libvirt/virtqemud-sock": "", "/run/mine/virtqemud-sock": "",
	} {
		if got, modular := DevicesSocket(socket); modular != (want != "") || modular && got != want {
			t.Errorf("%s: %s %t, want %s", socket, got, modular, want)
		}
	}
}
