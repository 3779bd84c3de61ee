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

// SecretFiles are the configured files of tokens, passwords, certificates and keys, the directory
// of a CA, and the configuration itself. TrustedFiles are not among them.
func (c *Config) SecretFiles() []string {
	files := []string{c.file}
	for _, file := range c.named {
		if !file.trusted() {
			files = append(files, file.path)
		}
	}
	for _, path := range []string{c.EnrolmentClient.IdentityFile, c.Enrolment.CADir} {
		if path != "" {
			files = append(files, path)
		}
	}
	return files
}

// TrustedFiles are the configured files of the certificates of CAs, and of what is reported about
// providers: everyone may read them.
func (c *Config) TrustedFiles() []string {
	files := []string{c.ProviderConfigDir()}
	for _, file := range c.named {
		if file.trusted() {
			files = append(files, file.path)
		}
	}
	if path := c.EnrolmentClient.CAFile; path != "" {
		files = append(files, path)
	}
	return files
}

func (f namedFile) trusted() bool { return strings.HasSuffix(f.key, "ca_file") }

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
