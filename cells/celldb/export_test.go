// SPDX-License-Identifier: Apache-2.0

package celldb

import "context"

// Execute runs statements on the database of the store, whatever they change there.
func (s *DB) Execute(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.kit.Writer.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// LookAgain has the next Check look at the tables.
func (s *DB) LookAgain() { s.whole.at.Store(0) }
