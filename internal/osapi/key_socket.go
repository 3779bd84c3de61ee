// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/internal/files"
)

// KeySocket is a unix socket with a key beside it, which those send who may read it. Drivers run as
// the user of their agent: they may connect, and cannot read the key.
type KeySocket struct {
	net.Listener
	path, key string
	close     func() error
}

// ListenWithKey creates the socket, accessible only for its owner, and its key. It replaces the
// socket of a dead process.
//
// Errors: [ErrInUse], if another process serves it.
func ListenWithKey(ctx context.Context, path string) (*KeySocket, error) {
	l, err := Listen(ctx, "unix://"+path)
	if err != nil {
		return nil, err
	}
	s := &KeySocket{Listener: l, path: path, key: rand.Text()}
	s.close = sync.OnceValue(func() error {
		_ = os.Remove(files.KeyPath(path)) // without the socket it opens nothing
		return l.Close()
	})
	if err := files.Replace(files.KeyPath(path), []byte(s.key+"\n")); err != nil {
		return nil, fmt.Errorf("the key of the socket: %w", errors.Join(err, l.Close()))
	}
	return s, nil
}

// Close removes the socket and its key.
func (s *KeySocket) Close() error { return s.close() }

// CheckKey says why a request is refused: it has no key, or another one.
func (s *KeySocket) CheckKey(r *http.Request) error {
	key, found := strings.CutPrefix(r.Header.Get("Authorization"), files.KeyScheme)
	switch {
	case !found:
		return fmt.Errorf("the request has no key: send the content of %s, as the header Authorization: Bearer KEY",
			files.KeyPath(s.path))
	case subtle.ConstantTimeCompare([]byte(key), []byte(s.key)) != 1:
		return fmt.Errorf(
			"the key of the request is not the one in %s: the service was started again meanwhile, or another one "+
				"uses its runtime directory; repeat the command",
			files.KeyPath(s.path),
		)
	}
	return nil
}

// WithKey answers requests that have the key, and 403 with the reason otherwise.
func (s *KeySocket) WithKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.CheckKey(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
