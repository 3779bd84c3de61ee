// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"errors"
	"io/fs"
	"os"
	"syscall"
)

// namedFile is a file that a configuration key names: a token, password, certificate or key.
type namedFile struct{ key, path string }

// SecretFiles are the configured files of tokens, passwords, certificates and keys. Those of CAs,
// which are public, are not among them.
func (c *Config) SecretFiles() []string {
	var files []string
	for _, file := range c.named {
		if !strings.HasSuffix(file.key, "ca_file") {
			files = append(files, file.path)
		}
	}
	return files
}

// MissingFiles returns an error for each configured file of a token, password, certificate or key
// that does not exist. Load does not check, because services read them later and maybe as another
// user; so files without permission to check are not missing.
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
			Hint: "create the file, or set the path of an existing file",
		})
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}
