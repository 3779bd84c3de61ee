// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Template is a database that is made once in a process, and that tests have copies of: to run the
// steps of a schema takes longer than most tests.
type Template struct {
	fill  func(dsn string) error
	file  func() ([]byte, error)
	pools []*pool
}

// NewTemplate is for databases as what opens an empty one, by its DSN, leaves it when it is closed.
func NewTemplate[C io.Closer](open func(dsn string) (C, error)) *Template {
	fill := func(dsn string) error {
		opened, err := open(dsn)
		if err != nil {
			return err
		}
		return opened.Close()
	}
	return &Template{fill: fill, pools: []*pool{{of: sharedMariaDB}, {of: sharedPostgreSQL}},
		file: sync.OnceValues(func() (content []byte, err error) {
			dir, err := memory()
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			path := filepath.Join(dir, "template.db")
			if err := fill("sqlite://" + path); err != nil {
				return nil, err
			}
			return os.ReadFile(path)
		})}
}

// NewTemplates is [NewTemplate] for databases that differ by a name.
func NewTemplates[C io.Closer](open func(dsn, name string) (C, error)) func(name string) *Template {
	var made sync.Map
	return func(name string) *Template {
		m, _ := made.LoadOrStore(name, NewTemplate(func(dsn string) (C, error) { return open(dsn, name) }))
		return m.(*Template) // nothing else is stored
	}
}

// Fresh makes a database as [Fresh] does, which is as the template.
func (tm *Template) Fresh(t testing.TB) string {
	t.Helper()
	engine := Engine(t)
	for _, p := range tm.pools {
		if strings.EqualFold(p.of.kind.String(), engine) {
			return p.database(t, tm.fill)
		}
	}
	dsn := Fresh(t)
	testproc.Checkf(t, tm.Copy(dsn), "copying the template of a database")
	return dsn
}

// Copy makes the file of a DSN or a path, which does not exist. It does nothing for databases of
// servers.
func (tm *Template) Copy(dsn string) error {
	path := strings.TrimPrefix(dsn, "sqlite://")
	if strings.Contains(path, "://") {
		return nil
	}
	content, err := tm.file()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// Memory makes a directory in memory, where there is one with enough space, and on the disk
// otherwise: a test whose databases are on the disk waits for it most of the time. The directory
// lives as long as the test.
func Memory(t testing.TB) string {
	t.Helper()
	dir := testproc.Try(memory()).Or(t)
	t.Cleanup(func() { testproc.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func memory() (string, error) {
	const enough = 1 << 30
	parent := sharedMemory
	if !hasSpace(parent, enough) {
		parent = "" // that of temporary files
	}
	return os.MkdirTemp(parent, "compute-agent-test-")
}

// sharedMemory is a file system in memory.
const sharedMemory = "/dev/shm"

// hasSpace reports whether a directory is there with so many bytes of space.
func hasSpace(dir string, enough uint64) bool {
	var space unix.Statfs_t
	err := unix.Statfs(dir, &space)
	return err == nil && space.Bavail*uint64(space.Bsize) >= enough // a block's size is not negative
}

// AboutServers skips a test that is about what several processes do with a database, unless the
// suite runs on an engine with a server.
func AboutServers(t testing.TB) {
	t.Helper()
	if !OnServer(t) {
		t.Skip("It is about a database of several processes: make test-real runs it, on MariaDB or PostgreSQL.")
	}
}
