// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealStartsThatTakeLong: a service that waits for a step of its database's schema, which
// another process runs, has systemd give it more time while that process shows signs of life, and
// serves when the step is done.
func TestRealStartsThatTakeLong(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		options sqldb.Options
		begun   []string // statements after which a service waits for the last step
	}{
		"placement": {
			[]string{"placement", "serve", "--listen", "127.0.0.1:0"}, store.DatabaseOptions(),
			nil,
		},
		"cell": {
			[]string{"cells", "serve", "--name", "cell1",
				"--listen", "unix://" + filepath.Join(testproc.SocketDir(t), "cell")}, celldb.DatabaseOptions(),
			[]string{"UPDATE cell SET name = 'cell1'"},
		},
		"api": { // which waits only for a database that is being made
			[]string{"cells", "api", "--listen", testproc.FreeAddress(t)}, apidb.DatabaseOptions(),
			[]string{"UPDATE api_schema SET done = 0 WHERE number = 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dsn := dbservers.PostgreSQL(t)
			db := testproc.Try(sqldb.Open(t.Context(), dsn, c.options)).Or(t)
			testproc.Check(t, db.Close())
			last := fmt.Sprintf("UPDATE %s SET done = 0, token = 'other' WHERE number = %d",
				c.options.Schema.Table, c.options.Schema.Newest())
			dbservers.Execute(t, dsn, append(c.begun, last)...)
			socket := filepath.Join(t.TempDir(), "notify")
			manager := testproc.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})).Or(t)
			defer func() { _ = manager.Close() }()
			t.Setenv("NOTIFY_SOCKET", socket)

			dir, ended := t.TempDir(), make(chan int, 1)
			args := append(c.args, "--database", dbservers.WithPasswordFile(t, dsn),
				"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run"))
			var stderr bytes.Buffer
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { ended <- execute(ctx, args, new(bytes.Buffer), &stderr) }()
			// await waits for a message that begins with a text, and calls do now and then.
			await := func(message string, do func()) {
				t.Helper()
				got := make([]byte, 4096)
				testproc.Eventually(t, testproc.Patience, message, func() error {
					select {
					case code := <-ended:
						t.Fatalf("it ended with %d: %s", code, &stderr)
					default:
					}
					do()
					testproc.Check(t, manager.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
					n, err := manager.Read(got)
					if errors.Is(err, os.ErrDeadlineExceeded) || err == nil &&
						!strings.HasPrefix(string(got[:n]), message) {
						return errors.Join(err, errors.New(string(got[:n])))
					}
					return err
				})
			}
			await("EXTEND_TIMEOUT_USEC=120000000", func() {
				dbservers.Execute(t, dsn, "UPDATE "+c.options.Schema.Table+" SET beat = beat + 1 WHERE token = 'other'")
			})
			dbservers.Execute(t, dsn, "UPDATE "+c.options.Schema.Table+" SET done = 1 WHERE token = 'other'")
			await("READY=1", func() {})
			stop()
			if code := <-ended; code != cli.ExitDone {
				t.Errorf("it ended with %d: %s", code, &stderr)
			}
		})
	}
}
