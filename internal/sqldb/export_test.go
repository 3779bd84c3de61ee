// SPDX-License-Identifier: Apache-2.0

package sqldb

// Statements are those of each step of a schema, as an engine gets them.
func Statements(s *Schema, d *Dialect) (out [][]string, err error) {
	steps, err := s.steps(d)
	for _, step := range steps {
		out = append(out, step.statements)
	}
	return out, err
}
