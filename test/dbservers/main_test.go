// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMain: shared servers take no goroutine of the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(dbservers.Tests{M: m}) }

func execute(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func text(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	var out string
	testproc.Checkf(t, db.QueryRowContext(t.Context(), query).Scan(&out), "%s", query)
	return out
}

// childEnv has a test start servers and be killed.
const childEnv = "DBSERVERS_TEST_CHILD"

// TestNothingOutlivesTheTests kills a process of tests that has servers of every kind, also stopped
// ones.
func TestNothingOutlivesTheTests(t *testing.T) {
	testproc.Drawn(t, 2)
	if os.Getenv(childEnv) != "" {
		maria, postgres := dbservers.StartMariaDB(t, dbservers.Options{}),
			dbservers.StartPostgreSQL(t, dbservers.Options{})
		shared := testproc.Try(url.Parse(dbservers.PostgreSQL(t))).Or(t)
		pid := testproc.Try(os.ReadFile(filepath.Join(filepath.Dir(postgres.Log()), "data/postmaster.pid"))).Or(t)
		maria.Pause(t)
		postgres.Pause(t)
		fmt.Println("CHILD", filepath.Dir(filepath.Dir(maria.Log())),
			strings.Fields(strings.Split(string(pid), "\n")[6])[1], maria.Address(), postgres.Address(), shared.Host)
		_, _ = io.ReadAll(os.Stdin)
		return
	}
	testproc.Parallel(t, testproc.Light)
	self := testproc.Try(os.Executable()).Or(t)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"=1", testproc.ServicesEnv+"=") // all servers are its own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin := testproc.Try(cmd.StdinPipe()).Or(t)
	defer func() { _ = stdin.Close() }()
	child := testproc.Start(t, "a process of tests", cmd)
	words := strings.Fields(child.Await(t, 0, "CHILD"))
	dir, segment, addresses := words[1], words[2], words[3:]
	testproc.Contains(t, segments(t), " "+segment+" ", "PostgreSQL has no segment %s of shared memory:\n%s", segment)
	testproc.Check(t, syscall.Kill(-child.Pid(), syscall.SIGKILL))
	<-child.Done()
	testproc.Eventually(t, testproc.Patience, "the servers have ended and "+dir+" is gone", func() error {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(errors.New("the directory is there"), err)
		}
		for _, a := range addresses {
			if c, err := net.Dial("tcp", a); err == nil {
				_ = c.Close()
				return fmt.Errorf("something listens at %s", a)
			}
		}
		if strings.Contains(segments(t), " "+segment+" ") {
			return fmt.Errorf("segment %s of shared memory exists", segment)
		}
		return nil
	})
}

func segments(t testing.TB) string {
	t.Helper()
	all := testproc.Try(os.ReadFile("/proc/sysvipc/shm")).Or(t)
	return string(all)
}
