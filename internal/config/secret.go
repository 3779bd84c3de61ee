// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/compute-agent/compute-agent/internal/files"
)

// maxSecretSize bounds the file of a secret, in bytes.
const maxSecretSize = 64 << 10

// ErrSecret is wrapped by every error of ReadSecret.
var ErrSecret = errors.New("secret not usable")

// Secret is a value that prints as nothing but its kind.
type Secret struct{ value string }

// NewSecret wraps a value so that it cannot be logged by mistake.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal is the value itself, for the one place that sends it.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (s Secret) String() string { return "(secret)" }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the value from JSON and logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadSecret reads the file of a secret, without the line break at its end. A
// file that others may read or change is refused: the secret is no longer one.
func ReadSecret(path string) (Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w; check the path and that the agent's user may read it", ErrSecret, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	if !info.Mode().IsRegular() {
		return Secret{}, fmt.Errorf("%w: %s is not a regular file", ErrSecret, path)
	}
	if err := files.Private(path, info.Mode()); err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretSize+1))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	data = bytes.TrimRight(data, "\r\n")
	switch {
	case len(data) == 0:
		return Secret{}, fmt.Errorf("%w: %s is empty", ErrSecret, path)
	case len(data) > maxSecretSize:
		return Secret{}, fmt.Errorf("%w: %s is larger than %d bytes", ErrSecret, path, maxSecretSize)
	case bytes.ContainsAny(data, "\r\n\x00"):
		return Secret{}, fmt.Errorf("%w: %s holds more than one line", ErrSecret, path)
	}
	return Secret{string(data)}, nil
}
