// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// probeTimeout bounds the wait for one socket. A daemon that systemd starts on demand needs about a
// second.
const probeTimeout = 5 * time.Second

// Candidate is a place where a daemon usually listens.
type Candidate struct {
	// Socket is the Unix socket.
	Socket string
	// URI is what libvirt's library calls the daemon behind it.
	URI string
}

// Candidates are the usual sockets of this user, the best first: the read-only ones of the system
// (they are open to all users by default and enough for an inventory), those with write access, and
// for other users than root the ones of the session. Both the monolithic daemon (libvirtd) and the
// modular one (virtqemud) are named.
func Candidates() []Candidate {
	session := ""
	if os.Geteuid() != 0 {
		session = os.Getenv("XDG_RUNTIME_DIR")
		if session == "" {
			if cache := os.Getenv("HOME"); cache != "" {
				session = filepath.Join(cache, ".cache")
			}
		}
	}
	return candidates("/run/libvirt", session)
}

func candidates(system, session string) []Candidate {
	var list []Candidate
	for _, name := range []string{"virtqemud-sock-ro", "libvirt-sock-ro", "virtqemud-sock", "libvirt-sock"} {
		list = append(list, Candidate{Socket: filepath.Join(system, name), URI: "qemu:///system"})
	}
	if session != "" {
		for _, name := range []string{"virtqemud-sock", "libvirt-sock"} {
			list = append(list, Candidate{Socket: filepath.Join(session, "libvirt", name), URI: "qemu:///session"})
		}
	}
	return list
}

// Find looks for a daemon that answers at one of the usual sockets and returns its URI for
// libvirt's library. If none does, why is the problem of each socket.
func Find(ctx context.Context) (uri string, ok bool, why string) {
	return find(ctx, Candidates())
}

func find(ctx context.Context, list []Candidate) (string, bool, string) {
	var absent, other []string
	for _, c := range list {
		one, cancel := context.WithTimeout(ctx, probeTimeout)
		err := Probe(one, c.Socket)
		cancel()
		switch {
		case err == nil:
			return c.URI, true, ""
		case errors.Is(err, ErrNotRunning):
			absent = append(absent, c.Socket)
		default:
			other = append(other, err.Error())
		}
	}
	if len(absent) > 0 {
		other = append(other, "no process listens on "+strings.Join(absent, ", "))
	}
	return "", false, strings.Join(other, "; ")
}

// Sockets are the local sockets at which libvirt's library may look for the daemon behind a URI, in
// its order; none for a daemon on another host and for a driver without a daemon. Of the parameters
// it goes by socket and mode.
func Sockets(uri string, write bool) []string {
	u, err := url.Parse(uri)
	if err != nil || u.Host != "" {
		return nil
	}
	driver, transport, _ := strings.Cut(u.Scheme, "+")
	if driver == "test" || (transport != "" && transport != "unix") {
		return nil
	}
	if s := u.Query().Get("socket"); s != "" {
		return []string{s}
	}
	names := []string{"virtqemud-sock", "libvirt-sock"}
	switch u.Query().Get("mode") {
	case "direct":
		names = names[:1]
	case "legacy":
		names = names[1:]
	}
	dir, suffix := "/run/libvirt", "-ro"
	if u.Path == "/session" {
		dir, write = filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "libvirt"), true
	}
	if write {
		suffix = ""
	}
	for i, n := range names {
		names[i] = filepath.Join(dir, n+suffix)
	}
	return names
}

// DevicesSocket is where the modular QEMU daemon behind a socket of the system asks for the host's
// devices. modular is false for other sockets.
func DevicesSocket(socket string) (devices string, modular bool) {
	dir, name := filepath.Split(socket)
	suffix, modular := strings.CutPrefix(name, "virtqemud-sock")
	return dir + "virtnodedevd-sock" + suffix, modular && dir == "/run/libvirt/"
}
