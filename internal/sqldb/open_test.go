// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	// childEnv makes the test binary another process: "kit|PATH" opens the database as ours do,
	// "sqlite|PATH" as any other program does, and counts its rows.
	childEnv = "SQLDB_TEST_CHILD"
	mark     = 0x74657374
)

func TestMain(m *testing.M) {
	if how, path, is := strings.Cut(os.Getenv(childEnv), "|"); is {
		err := errors.New("no such child")
		switch how {
		case "kit":
			var db *sqldb.DB
			if db, err = sqldb.Open(context.Background(), path, options()); err == nil {
				err = db.Close()
			}
		case "sqlite":
			err = count(path)
		default:
			if n, is := strings.CutPrefix(how, "migrate"); is {
				asleep, _ := strconv.Atoi(n) // it is the test's
				_, err = sqldb.Open(context.Background(), path, growing(asleep))
			}
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func count(path string) (err error) {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.QueryRow("SELECT COUNT(*) FROM t").Scan(new(int))
}

func options() sqldb.Options {
	return sqldb.Options{Schema: &sqldb.Schema{ApplicationID: mark, Steps: fstest.MapFS{
		"sql/0001.sql":      {Data: []byte("CREATE TABLE t (x TEXT);\nCREATE TABLE u (x TEXT);\n")},
		"sql/0002_more.sql": {Data: []byte("ALTER TABLE t ADD COLUMN y TEXT;\n")},
	}}}
}

var must = testproc.Check

func open(t *testing.T, path string) *sqldb.DB {
	t.Helper()
	return testproc.Try(sqldb.Open(t.Context(), path, options())).Or(t)
}

func insert(t *testing.T, db *sqldb.DB) error {
	return db.Write(t.Context(), "inserting into", func(tx *sql.Tx) error {
		_, err := sqldb.Exec(t.Context(), tx, "INSERT INTO t (x) VALUES ('a')")
		return err
	})
}

// child runs another process, which is refused unless says is "".
func child(t *testing.T, how, path, says string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+how+"|"+path)
	out, err := cmd.CombinedOutput()
	if (err == nil) != (says == "") || !strings.Contains(string(out), says) {
		t.Errorf("a process that opens it by %s: %v, %q; want %q", how, err, out, says)
	}
}

// TestOpenWaitsForACommand: a process that starts while a command has the file, such as a backup,
// opens it as soon as that has ended. One that does not end is an error.
func TestOpenWaitsForACommand(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "kit.db")
	must(t, open(t, path).Close())
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []bool{true, false} {
			release := testproc.Try(sqldb.LockFile(t.Context(), path)).Or(t)
			opened := make(chan error, 1)
			go func() {
				db, err := sqldb.Open(t.Context(), path, options())
				if err == nil {
					err = db.Close()
				}
				opened <- err
			}()
			synctest.Wait()
			if len(opened) != 0 {
				t.Fatalf("it did not wait: %v", <-opened)
			}
			if ends {
				must(t, release())
			}
			if err := <-opened; ends && err != nil || !ends && !errors.Is(err, engine.ErrLocked) {
				t.Errorf("the command ends: %v; then: %v", ends, err)
			}
			if !ends {
				must(t, release())
			}
		}
	})
}

// TestOneProcess: a database that is open is refused to other processes, ours and others, and to a
// second one of this process, by whatever name; and no refused attempt takes the locks away. POSIX
// would do so if this process opened and closed the file.
func TestOneProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path)
	must(t, insert(t, db))
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(path, link))
	for _, name := range []string{path, link} {
		for what, again := range map[string]func() error{
			"Open":    func() error { _, err := sqldb.Open(t.Context(), name, options()); return err },
			"Version": func() error { _, err := sqldb.Version(t.Context(), name, options()); return err },
			"BackUpFile": func() error {
				return sqldb.BackUpFile(t.Context(), name,
					filepath.Join(t.TempDir(), "copy"))
			},
			"Hold": func() error { _, err := sqldb.LockFile(t.Context(), name); return err },
		} {
			err := again()
			if !errors.Is(err, engine.ErrLocked) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), fmt.Sprintf("(pid %d) has it open", os.Getpid())) {
				t.Errorf("%s: %v", what, err)
			}
		}
		child(t, "kit", name, fmt.Sprintf("another process (pid %d) has it open", os.Getpid()))
		child(t, "sqlite", name, "database is locked")
	}
	must(t, insert(t, db))
	must(t, db.Close())
	child(t, "kit", path, "")
	child(t, "sqlite", path, "")
}

// TestOpenedFileDropsLocks is why: a file that is opened and closed beside SQLite is not locked any
// more.
func TestOpenedFileDropsLocks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path)
	defer func() { must(t, db.Close()) }()
	child(t, "sqlite", path, "database is locked")
	f := testproc.Try(os.Open(path)).Or(t)
	must(t, f.Close())
	child(t, "sqlite", path, "")
	child(t, "kit", path, "has it open")
}

// TestPlantedLock: a symbolic link in the place of the lock is not followed, since root's commands
// give the lock to the owner of the database.
func TestPlantedLock(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	must(t, open(t, path).Close())
	must(t, os.Remove(path+"-lock"))
	must(t, os.Symlink(path, path+"-lock"))
	if db, err := sqldb.Open(t.Context(), path, options()); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("opened %v, %v", db, err)
	}
}

// TestBackup: a copy of a database in use, by its process and through the socket of that, is whole
// and private, and replaces nothing.
func TestBackup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	db := open(t, path)
	must(t, insert(t, db))
	socket := filepath.Join(dir, "admin.sock")
	l := testproc.Try(net.Listen("unix", socket)).Or(t)
	server := &http.Server{Handler: http.HandlerFunc(db.ServeBackup)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	db.AnswersAt(socket)
	if h := sqldb.HolderOf(path); h.PID != os.Getpid() || h.Socket != socket {
		t.Errorf("the holder is %+v", h)
	}
	backups := map[string]func(file string) error{
		"DB.Backup":   func(file string) error { return db.Backup(t.Context(), file) },
		"FetchBackup": func(file string) error { return sqldb.FetchBackup(t.Context(), socket, file) },
	}
	check := func(what string, backup func(string) error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "copy.db")
		must(t, backup(file))
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", what, info, err)
		}
		before := testproc.Try(os.ReadFile(file)).Or(t)
		testproc.ErrorIs(t, backup(file), fs.ErrExist, "%s over a file: %v", what)
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the refused file was changed, %v", what, err)
		}
		copied := open(t, file)
		var n int
		if err := copied.Reader.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: the copy has %d rows, %v", what, n, err)
		}
		must(t, copied.Close())
	}
	for what, backup := range backups {
		check(what, backup)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".backup-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	must(t, server.Close())
	<-ended
	missing := filepath.Join(t.TempDir(), "copy.db")
	if err := sqldb.FetchBackup(t.Context(), socket, missing); err == nil {
		t.Error("a backup of a process that does not answer")
	}
	testproc.Try(os.Stat(missing)).ErrorIs(t, fs.ErrNotExist, "a failed backup left %v")
	must(t, db.Close())
	check("BackUpFile", func(file string) error { return sqldb.BackUpFile(t.Context(), path, file) })
}

// TestFailedBackup: a database that cannot be read to its end leaves no copy, which someone would
// trust.
func TestFailedBackup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path)
	must(t, insert(t, db))
	must(t, db.Close())
	f := testproc.Try(os.OpenFile(path, os.O_RDWR, 0)).Or(t)
	size := testproc.Try(f.Stat()).Or(t).Size()
	testproc.Try(f.WriteAt(bytes.Repeat([]byte{0xff}, 4096), size-4096)).Or(t)
	must(t, f.Close())
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := sqldb.BackUpFile(t.Context(), path, copied); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a backup of a damaged database: %v", err)
	}
	testproc.Try(os.Stat(copied)).ErrorIs(t, fs.ErrNotExist, "a failed backup left %v")
}

// TestLostDatabase: where there was a database, a new one is not made until that is meant.
func TestLostDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, lose := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"emptied": func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) },
		"all removed": func(t *testing.T, path string) {
			files := testproc.Try(filepath.Glob(path + "*")).Or(t)
			for _, file := range files {
				must(t, os.Remove(file))
			}
		},
		"removed with the marker, and its log is left": func(t *testing.T, path string) {
			must(t, errors.Join(os.Remove(path), os.Remove(sqldb.Marker(path)),
				os.WriteFile(path+"-wal", []byte("x"), 0o600)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			db := open(t, path)
			must(t, insert(t, db))
			must(t, db.Close())
			lose(t, path)
			for range 2 {
				if _, err := sqldb.Open(t.Context(), path, options()); !errors.Is(err, engine.ErrLost) ||
					!strings.Contains(err.Error(), path) {
					t.Errorf("got %v", err)
				}
			}
			for _, file := range []string{path, path + "-wal", path + "-lock", sqldb.Marker(path)} {
				_ = os.Remove(file) // it is meant
			}
			must(t, open(t, path).Close())
		})
	}
}

// TestSchemaSteps: older files are upgraded, or refused where that is not wanted; newer ones are
// refused.
func TestSchemaSteps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	o := options()
	o.Steps = 1
	db := testproc.Try(sqldb.Open(t.Context(), path, o)).Or(t)
	must(t, db.Close())
	o = options()
	o.Schema.OlderHint = "upgrade it"
	if _, err := sqldb.Open(t.Context(), path, o); !errors.Is(err, engine.ErrSchema) ||
		!strings.Contains(err.Error(), "1 of 2 steps of the schema; upgrade it") {
		t.Errorf("an older one: %v", err)
	}
	db = open(t, path)
	if had, has := db.Steps(); had != 1 || has != 2 {
		t.Errorf("it had %d steps and has %d", had, has)
	}
	must(t, db.Close())
	if has, err := sqldb.Version(t.Context(), path, options()); err != nil || has != 2 {
		t.Errorf("version %d, %v", has, err)
	}
	o = options()
	o.Steps = 1
	if _, err := sqldb.Open(t.Context(), path, o); !errors.Is(err, engine.ErrSchema) ||
		!strings.Contains(err.Error(), "newer program") {
		t.Errorf("a newer one: %v", err)
	}
}

func TestPathOf(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for dsn, want := range map[string]string{
		"sqlite:///var/lib/api.db": "/var/lib/api.db", "sqlite:////var//lib/api.db": "/var/lib/api.db",
		"sqlite:///a%20b%3Fc": "/a b?c",
		"sqlite://":           "", "sqlite:///": "", "sqlite://host/api.db": "", "/var/lib/api.db": "",
		"mysql://a/b": "", "sqlite:///a?mode=ro": "",
		"sqlite:///%zz": "", "sqlite:///a%00b": "", "": "",
	} {
		got, err := engine.PathOf(dsn)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", dsn, got, err, want)
		}
	}
}

// FuzzPathOf: whatever an address is, its path is absolute and clean, and leads to one place when
// it is written as an address again.
func FuzzPathOf(f *testing.F) {
	for _, seed := range []string{"sqlite:///var/lib/api.db", "sqlite:////a//b/../c", "sqlite:///a%20b%3Fc%23d%25",
		"sqlite:///%2e%2e/x", "sqlite://host/x", "sqlite:///a?b", "sqlite:///%", "sqlite:///\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		path, err := engine.PathOf(dsn)
		if err != nil {
			return
		}
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsRune(path, 0) {
			t.Errorf("%q is at %q", dsn, path)
		}
		if again, err := engine.PathOf((&url.URL{Scheme: "sqlite", Path: "//" + path}).String()); err != nil ||
			again != path {
			t.Errorf("%q is at %q; written again it is at %q, %v", dsn, path, again, err)
		}
	})
}
