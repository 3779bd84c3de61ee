// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// KeyPath is the path of the key that requests on a socket of a service come with. It is made with
// the socket, and for the same users. The sandbox of drivers, which may connect to sockets, closes
// it with the rest of the runtime directory.
func KeyPath(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".key" }

// KeyScheme precedes a key in the header Authorization.
const KeyScheme = "Bearer "

// maxKeySize bounds the file of a key, in bytes.
const maxKeySize = 1 << 10

// SetKey adds the key of a socket to the header of a request. Without a key nothing runs there, or
// a version that needs none.
//
// The directory is the service's, and root may ask: a symbolic link, a file with another name as
// well, and one of another user than the socket's or the directory's are refused, so that the
// service's user gets no other file of root's as a key.
//
// Errors: [fs.ErrPermission] for other users than the service's and root.
func SetKey(h http.Header, socket string) error {
	key, err := readKey(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the key of the socket: %w", err)
	}
	h.Set("Authorization", KeyScheme+strings.TrimSpace(string(key)))
	return nil
}

// Client returns an HTTP client of the process at a unix socket, whatever the address of a request
// is.
func Client(socket string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
}

func readKey(socket string) ([]byte, error) {
	f, err := os.OpenFile(KeyPath(socket), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return readKeyFile(f, socket)
}

// readKeyFile reads the key of a socket. The file has no name any more if the service restarts.
func readKeyFile(f *os.File, socket string) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var of, dir syscall.Stat_t
	if err := errors.Join(syscall.Lstat(socket, &of), syscall.Stat(filepath.Dir(socket), &dir)); err != nil {
		return nil, err
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || file.Nlink > 1 ||
		file.Uid != of.Uid && file.Uid != dir.Uid || info.Size() > maxKeySize {
		return nil, fmt.Errorf("%s %w: it is not a short file with one name, of the user of the socket",
			f.Name(), ErrUnreadable)
	}
	return io.ReadAll(io.LimitReader(f, maxKeySize))
}
