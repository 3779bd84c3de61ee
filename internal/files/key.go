// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// KeyPath is the path of the key that requests on a socket of a service come with. It is made with
// the socket, and for the same users. The sandbox of drivers, which may connect to sockets, closes
// it with the rest of the runtime directory.
func KeyPath(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".key" }

// KeyScheme precedes a key in the header Authorization.
const KeyScheme = "Bearer "

// SetKey adds the key of a socket to the header of a request. Without a key nothing runs there, or
// a version that needs none.
//
// Errors: [fs.ErrPermission] for other users than the service's and root.
func SetKey(h http.Header, socket string) error {
	key, err := os.ReadFile(KeyPath(socket))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the key of the socket: %w", err)
	}
	h.Set("Authorization", KeyScheme+strings.TrimSpace(string(key)))
	return nil
}
