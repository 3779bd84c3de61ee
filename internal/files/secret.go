// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// maxSecretSize bounds the file of a secret, in bytes.
const maxSecretSize = 64 << 10

// ReadSecret reads the file of a secret, without the line break at its end. A file that others may
// read or change is refused: the secret is no longer one.
func ReadSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", Denied(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	if err := Private(path, info.Mode()); err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretSize+1))
	if err != nil {
		return "", err
	}
	data = bytes.TrimRight(data, "\r\n")
	switch {
	case len(data) == 0:
		return "", fmt.Errorf("%s is empty", path)
	case len(data) > maxSecretSize:
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxSecretSize)
	case bytes.ContainsAny(data, "\r\n\x00"):
		return "", fmt.Errorf("%s holds more than one line", path)
	}
	return string(data), nil
}
