// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// testKeyPairs: each user has their own names, which are compared as bytes; lists are by name, in
// pages; the limit holds when several are made at once.
func testKeyPairs(t *testing.T, e testEngine) {
	stores := e.processes(t)
	s := stores[0]
	wants[[]apidb.KeyPair](t, "none")(s.KeyPairs(ctx, "u", "", 0))(nil)
	create := func(user, name string) apidb.KeyPair {
		t.Helper()
		k, err := s.CreateKeyPair(ctx, apidb.KeyPair{UserID: user, Name: name, Type: apidb.KeySSH, Fingerprint: "aa:bb",
			PublicKey: "ssh-rsa A"}, nil)
		must(t, err)
		return k
	}
	_, err := s.CreateKeyPair(ctx, apidb.KeyPair{UserID: "u", Name: "k", Type: apidb.KeySSH}, nil)
	wantError(t, "without a key", err, apidb.ErrInvalid)
	b, a, upper, other := create("u", "b"), create("u", "a"), create("u", "A"), create("v", "a")
	_, err = s.CreateKeyPair(ctx, apidb.KeyPair{UserID: "u", Name: "a", Type: apidb.KeySSH, PublicKey: "x"}, nil)
	wantError(t, "twice", err, apidb.ErrExists)
	wants[[]apidb.KeyPair](t, "all")(s.KeyPairs(ctx, "u", "", 0))([]apidb.KeyPair{upper, a, b})
	wants[[]apidb.KeyPair](t, "a page")(s.KeyPairs(ctx, "u", "A", 1))([]apidb.KeyPair{a})
	wants[apidb.KeyPair](t, "one")(s.KeyPair(ctx, "v", "a"))(other)
	must(t, s.DeleteKeyPair(ctx, "u", "a"))
	wantError(t, "once more", s.DeleteKeyPair(ctx, "u", "a"), apidb.ErrNotFound)
	_, err = s.KeyPair(ctx, "u", "a")
	wantError(t, "a deleted one", err, apidb.ErrNotFound)
	wants[apidb.KeyPair](t, "that of another user")(s.KeyPair(ctx, "v", "a"))(other)

	full := errors.New("full")
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			_, err := stores[i%len(stores)].CreateKeyPair(
				ctx, apidb.KeyPair{UserID: "w", Name: string(rune('a' + i)), Type: apidb.KeySSH, PublicKey: "x"},
				func(has int64) error {
					if has >= 4 {
						return full
					}
					return nil
				})
			if err != nil && !errors.Is(err, full) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made, err := s.KeyPairs(ctx, "w", "", 0); err != nil || len(made) != 4 {
		t.Errorf("%d key pairs, %v", len(made), err)
	}
}
