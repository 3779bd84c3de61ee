// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// NamedFile is a file that a configuration key names: a token, password, certificate, key or list.
type NamedFile struct{ Key, Path string }

// ServiceFiles are the files that keys of a service's sections name, by key. credentials is where
// systemd passes them to its unit.
func (c *Config) ServiceFiles(s Service, credentials string) (out []NamedFile) {
	all := slices.Clone(c.named)
	for _, unused := range c.unusedCredentials {
		all = append(all, NamedFile{unused.Key, filepath.Join(credentials, unused.Path)})
	}
	for _, policy := range []NamedFile{{"policy.file", c.Policy.File},
		{"compute_api.policy_file", c.ComputeAPI.PolicyFile}} {
		if policy.Path != "" {
			all = append(all, policy)
		}
	}
	for _, file := range all {
		if section, _, _ := strings.Cut(file.Key, "."); slices.Contains(c.section(section).Readers, s) {
			out = append(out, file)
		}
	}
	slices.SortFunc(out, func(a, b NamedFile) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// SecretFiles are the configured files of tokens, passwords, certificates and keys, the directory
// of a CA, and the configuration itself. TrustedFiles are not among them.
func (c *Config) SecretFiles() []string {
	files := []string{c.file}
	for _, file := range c.named {
		if !file.trusted() {
			files = append(files, file.Path)
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
			files = append(files, file.Path)
		}
	}
	if path := c.EnrolmentClient.CAFile; path != "" {
		files = append(files, path)
	}
	return files
}

func (f NamedFile) trusted() bool { return strings.HasSuffix(f.Key, "ca_file") }

// MissingFiles returns an error for each configured file of a token, password, certificate or key
// that does not exist. Load does not check, because services read them later and maybe as another
// user; so files without permission to check are not missing.
func (c *Config) MissingFiles() error {
	var problems Problems
	for _, file := range c.named {
		info, err := os.Stat(file.Path)
		what := ""
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			what = "there is no file " + file.Path
		case err == nil && info.IsDir():
			what = file.Path + " is a directory"
		default:
			continue
		}
		problems = append(problems, &Problem{
			Source: c.sources[file.Key].orDefault(""), Key: file.Key, What: what, cause: err,
			Hint: "create the file, or set the path of an existing file",
		})
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}
