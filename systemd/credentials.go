// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoCredential is wrapped when systemd did not pass a credential.
var ErrNoCredential = errors.New("no such credential")

// CredentialPath returns the file of a credential that the unit loads with LoadCredential= or
// SetCredential=. dir is $CREDENTIALS_DIRECTORY; a name that leads out of it is an error.
func CredentialPath(dir, name string) (string, error) {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return "", fmt.Errorf("%w: %q is not a valid name", ErrNoCredential, name)
	case dir == "":
		return "", fmt.Errorf("%w: %s, because $CREDENTIALS_DIRECTORY is not set", ErrNoCredential, name)
	case !filepath.IsAbs(dir):
		return "", fmt.Errorf("%w: %s, because $CREDENTIALS_DIRECTORY is not an absolute path", ErrNoCredential, name)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrNoCredential, name, err)
	}
	return path, nil
}
