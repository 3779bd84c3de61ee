// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Limits on what is read.
const (
	maxFileSize = 1 << 20 // bytes of one file
	maxFiles    = 1000
)

var (
	errNotRegular = errors.New("this is not a regular file")
	errTooBig     = fmt.Errorf("the file is larger than %d bytes", maxFileSize)
)

// Load reads the files *.yaml of a directory, sorted by name. A missing directory is an empty
// configuration. The error is a [Problems] with everything that is wrong in any of the files; then
// there is no Config.
//
// Warnings are for the operator. They are returned with an error, too.
func Load(dir string) (*Config, []Warning, error) {
	names, warnings, err := list(dir)
	if err != nil {
		return nil, nil, Problems{fileProblem(dir, err)}
	}
	if len(names) > maxFiles {
		return nil, nil, Problems{{
			Place: Place{File: dir},
			What:  fmt.Sprintf("holds %d files *.yaml, more than the %d that are read", len(names), maxFiles),
			Hint:  "put the entries into fewer files",
		}}
	}
	c := &Config{byID: map[identity]int{}}
	var problems Problems
	sum := sha256.New()
	for _, name := range names {
		path := filepath.Join(dir, name)
		data, err := readFile(path)
		if err != nil {
			problems = append(problems, fileProblem(path, err))
			continue
		}
		_, _ = fmt.Fprintf(sum, "%q %d\n", name, len(data)) // a hash takes everything
		_, _ = sum.Write(data)
		c.files = append(c.files, path)
		p := parse(path, data)
		warnings = append(warnings, p.warnings...)
		for i, e := range p.entries {
			if first, twice := c.byID[e.identity()]; twice {
				p.problemf(p.ids[i], p.paths[i]+".identification", "merge them into one entry",
					"%s already has an entry, at %s", clip(e.ID()), c.entries[first].Place.line())
				continue
			}
			c.byID[e.identity()] = len(c.entries)
			c.entries = append(c.entries, e)
		}
		problems = append(problems, p.inOrder()...)
	}
	if err := problems.err(); err != nil {
		return nil, warnings, err
	}
	sum.Sum(c.digest[:0])
	return c, warnings, nil
}

// list is the names of the files to read, sorted, and a warning for each that looks as if it were
// one.
func list(dir string) ([]string, []Warning, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var names []string
	var warnings []Warning
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case strings.HasSuffix(name, ".yaml"):
			names = append(names, name)
		case strings.HasSuffix(name, ".yml"):
			warnings = append(warnings, Warning{
				Place: Place{File: filepath.Join(dir, name)},
				What:  "the file is not read: only files *.yaml are, as with Nova",
				Hint:  "rename it to " + strings.TrimSuffix(name, ".yml") + ".yaml, or move it away",
			})
		}
	}
	return names, warnings, nil
}

// readFile follows symbolic links, and does not wait for a pipe without a writer.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = errTooBig
	}
	return data, err
}

func fileProblem(path string, err error) *Problem {
	p := &Problem{Place: Place{File: path}, cause: err}
	why, command := files.WhyDenied(err)
	var inPath *fs.PathError
	if errors.As(err, &inPath) { // the error has the path
		err = inPath.Err
	}
	p.What = "cannot be read: " + err.Error()
	switch {
	case errors.Is(err, errNotRegular):
		p.What, p.Hint = err.Error(), "put a file there, or move it away"
	case errors.Is(err, errTooBig):
		p.What, p.Hint = err.Error(), "split it: every file *.yaml of the directory is read"
	case errors.Is(err, fs.ErrNotExist):
		p.Hint = "this is a dangling symbolic link: fix or remove it"
	case errors.Is(err, syscall.ELOOP):
		p.Hint = "this is a symbolic link that leads to itself: fix or remove it"
	case errors.Is(err, syscall.ENOTDIR):
		p.Hint = "make it a directory and put the files there"
	case why != "":
		p.What, p.Hint = p.What+": "+why, "run: "+command
	}
	return p
}
