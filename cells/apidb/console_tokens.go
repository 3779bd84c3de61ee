// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// hashOf is what is kept of the token of a console: who reads the database has no token.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// AddConsoleToken implements [Store]. Cost: one fsync.
func (db *DB) AddConsoleToken(ctx context.Context, token, instance string, expires time.Time) error {
	if token == "" || instance == "" {
		return fmt.Errorf("a token of a console needs a server: %w", ErrInvalid)
	}
	return db.write(ctx, "adding a token for the console of server "+instance, func(tx *sql.Tx) error {
		if _, err := sqldb.Exec(ctx, tx, "DELETE FROM console_tokens WHERE expires_at <= ?",
			micros(db.now())); err != nil {
			return err
		}
		_, err := sqldb.Exec(ctx, tx, "INSERT INTO console_tokens (hash, instance_uuid, expires_at) VALUES (?, ?, ?)",
			hashOf(token), instance, micros(expires))
		return err
	})
}

// ConsoleToken implements [Store].
func (db *DB) ConsoleToken(ctx context.Context, token string) (string, error) {
	uuid, found, err := sqldb.One(ctx, db.kit.Reader, sqldb.Value[string],
		"SELECT instance_uuid FROM console_tokens WHERE hash = ? AND expires_at > ?", hashOf(token), micros(db.now()))
	if err == nil && !found {
		err = notFound("the token of a console")
	}
	return uuid, db.failed(ctx, "looking for the token of a console", err)
}
