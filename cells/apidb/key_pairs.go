// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// The types of key pairs.
const (
	KeySSH  = "ssh"
	KeyX509 = "x509"
)

// KeyPair is the public half of a key pair of a user.
type KeyPair struct {
	ID          int64
	UserID      string
	Name        string // unique among those of the user
	Type        string
	Fingerprint string
	PublicKey   string
	CreatedAt   time.Time
}

const keyPairs = "SELECT id, user_id, name, type, fingerprint, public_key, created_at FROM key_pairs WHERE user_id = ?"

func scanKeyPair(row sqldb.Row) (k KeyPair, err error) {
	var created int64
	err = row.Scan(&k.ID, &k.UserID, &k.Name, &k.Type, &k.Fingerprint, &k.PublicKey, &created)
	k.CreatedAt = fromMicros(created)
	return k, err
}

// KeyPairs implements [Store]. Cost: those that are answered, in the order of an index.
func (db *DB) KeyPairs(ctx context.Context, userID, after string, limit int) ([]KeyPair, error) {
	all, err := sqldb.All(ctx, db.kit.Reader, scanKeyPair,
		keyPairs+" AND name > ? ORDER BY name LIMIT ?", userID, after, limitOf(limit))
	return all, db.failed(ctx, "listing the key pairs of user "+userID, err)
}

// KeyPair implements [Store].
func (db *DB) KeyPair(ctx context.Context, userID, name string) (KeyPair, error) {
	k, found, err := sqldb.One(ctx, db.kit.Reader, scanKeyPair, keyPairs+" AND name = ?", userID, name)
	if err == nil && !found {
		err = notFound("key pair %q of user %s", name, userID)
	}
	return k, db.failed(ctx, "reading a key pair of user "+userID, err)
}

// CreateKeyPair implements [Store]. check must not use the store: it runs under the write lock, in
// a database of servers perhaps more than once. Cost: one fsync.
func (db *DB) CreateKeyPair(ctx context.Context, k KeyPair, check func(has int64) error) (KeyPair, error) {
	if k.UserID == "" || k.Name == "" || k.Type == "" || k.PublicKey == "" {
		return KeyPair{}, fmt.Errorf("a key pair needs a user, a name, a type and a public key: %w", ErrInvalid)
	}
	now := micros(db.now())
	k.CreatedAt = fromMicros(now)
	err := db.write(ctx, "creating a key pair of user "+k.UserID, func(tx *sql.Tx) error {
		if check != nil {
			has, _, err := sqldb.One(ctx, tx, sqldb.Value[int64],
				"SELECT COUNT(*) FROM key_pairs WHERE user_id = ?", k.UserID)
			if err != nil {
				return err
			}
			if err := check(has); err != nil {
				return err
			}
		}
		_, found, err := sqldb.One(ctx, tx, sqldb.Value[int64],
			"SELECT id FROM key_pairs WHERE user_id = ? AND name = ?", k.UserID, k.Name)
		switch {
		case err != nil:
			return err
		case found:
			return fmt.Errorf("key pair %q of user %s: %w", k.Name, k.UserID, ErrExists)
		}
		k.ID, err = db.kit.Dialect.Insert(ctx, tx,
			"INSERT INTO key_pairs (user_id, name, type, fingerprint, public_key, created_at) VALUES (?, ?, "+
				"?, ?, ?, ?)",
			k.UserID, k.Name, k.Type, k.Fingerprint, k.PublicKey, now)
		return err
	})
	if err != nil {
		return KeyPair{}, err
	}
	return k, nil
}

// DeleteKeyPair implements [Store].
func (db *DB) DeleteKeyPair(ctx context.Context, userID, name string) error {
	return db.write(ctx, "deleting a key pair of user "+userID, func(tx *sql.Tx) error {
		n, err := sqldb.Exec(ctx, tx, "DELETE FROM key_pairs WHERE user_id = ? AND name = ?", userID, name)
		if err == nil && n == 0 {
			err = notFound("key pair %q of user %s", name, userID)
		}
		return err
	})
}
