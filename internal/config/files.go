// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// namedFile is the file of a token, a password, a certificate or a key that a key of the configuration names.
type namedFile struct{ key, path string }

// MissingFiles says which files of tokens, passwords, certificates and keys are named and are not there, in whatever section; nil if all are.
// Loading does not look: services read them when they are needed, and perhaps as another user. For the same reason a file that cannot be looked at
// because of permissions is not said to be missing.
func (c *Config) MissingFiles() error {
	var problems Problems
	for _, file := range c.named {
		info, err := os.Stat(file.path)
		what := ""
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			what = "there is no file " + file.path
		case err == nil && info.IsDir():
			what = file.path + " is a directory"
		default:
			continue
		}
		problems = append(problems, &Problem{
			Source: c.sources[file.key].orDefault(""), Key: file.key, What: what, cause: err,
			Remedy: "create the file, or set the path of an existing file",
		})
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}
