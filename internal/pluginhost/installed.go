// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

// Entry is one driver that is configured or installed.
type Entry struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// State is "enabled", "disabled" or "not configured".
	State string `json:"state"`
	// Problem is why the driver cannot start, or "".
	Problem string `json:"problem,omitempty"`
}

// List returns the configured drivers, and those that are only installed in plugin directories,
// sorted by name. Of a spec, only name, path, digest, Searched and Disabled count.
//
// Errors: those of the file system.
func List(ctx context.Context, configured []Spec, dirs []string) ([]Entry, error) {
	others, err := launch.Installed(dirs...)
	if err != nil {
		return nil, err
	}
	out := []Entry{}
	for _, s := range configured {
		e := Entry{Name: s.Name, Path: s.Path, State: "enabled"}
		if s.Disabled {
			e.State = "disabled"
		}
		if _, err := os.Stat(s.Path); errors.Is(err, fs.ErrNotExist) {
			e.Problem = (&launch.NotInstalledError{Driver: s.Name, Path: s.Path, Searched: s.Searched}).Error()
		} else if err != nil {
			e.Problem = err.Error()
		} else if sum, err := launch.Digest(ctx, s.Path); s.SHA256 != "" && err == nil && sum != s.SHA256 {
			e.Problem = fmt.Sprintf("its sha256 is %s, but the configuration requires %s", sum, s.SHA256)
		}
		out = append(out, e)
		delete(others, s.Name)
	}
	for name, path := range others {
		out = append(out, Entry{Name: name, Path: path, State: "not configured"})
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
