// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

var (
	// ErrUntrusted says that another user could have changed the executable or a directory above
	// it. See [UntrustedError].
	ErrUntrusted = errors.New("executable is not trusted")
	// ErrNotInstalled says that there is no executable. See [NotInstalledError].
	ErrNotInstalled = errors.New("driver not installed")
)

// NotInstalledError is [ErrNotInstalled] with where the executable is expected, and how to install
// it.
type NotInstalledError struct {
	Driver string
	Path   string
	// Searched lists the directories that were searched; none if the path is configured.
	Searched []string
}

func (e *NotInstalledError) Error() string {
	file := filepath.Base(e.Path)
	if len(e.Searched) == 0 {
		return fmt.Sprintf(
			"driver %s is not installed: there is no executable %s. Install it there, or correct drivers.%[1]s.path",
			e.Driver, e.Path)
	}
	return fmt.Sprintf("driver %s is not installed: there is no %s in %s. Install it: install -D -m 0755 %[2]s %[4]s",
		e.Driver, file, strings.Join(e.Searched, " or "), e.Path)
}

// Is makes errors.Is(err, ErrNotInstalled) hold, and errors.Is(err, fs.ErrNotExist).
func (e *NotInstalledError) Is(target error) bool {
	return target == ErrNotInstalled || target == fs.ErrNotExist
}

// UntrustedError is [ErrUntrusted] with the problem and how to fix it.
type UntrustedError struct {
	Path    string
	Problem string
	Hint    string
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s %s; not started. %s", e.Path, e.Problem, e.Hint)
}

// Is makes errors.Is(err, ErrUntrusted) hold.
func (e *UntrustedError) Is(target error) bool { return target == ErrUntrusted }
