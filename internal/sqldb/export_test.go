// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Statements are those of each step of a schema, as an engine gets them.
func Statements(s *Schema, d *engine.Dialect) (out [][]string, err error) {
	steps, err := s.steps(d)
	for _, step := range steps {
		out = append(out, step.statements)
	}
	return out, err
}

// Progress is how far the tables of a schema are made, as a process finds it that opens a database.
func Progress(ctx context.Context, s *Schema, d *engine.Dialect, q Querier) (had int, made bool, err error) {
	return s.progress(ctx, d, q, s.Newest())
}
