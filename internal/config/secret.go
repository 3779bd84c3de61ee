// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/files"
)

// ErrSecret is wrapped by every error of ReadSecret.
var ErrSecret = errors.New("secret not usable")

// Secret is a value that prints as nothing but its kind.
type Secret struct{ value string }

// Reveal is the value itself, for the one place that sends it.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (s Secret) String() string { return "(secret)" }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the value from JSON and logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadSecret reads the file of a secret; see files.ReadSecret.
func ReadSecret(path string) (Secret, error) {
	value, err := files.ReadSecret(path)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	return Secret{value}, nil
}
