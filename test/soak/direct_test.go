// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func direct(dir string) (*placement.InProcess, error) {
	return placement.Direct(context.Background(), placement.Config{StateDir: dir, Policy: api.Legacy, Logger: zerolog.Nop()})
}

// TestOneProcess: a database file belongs to one process: not two servers, and not what runs in a
// process of its own beside one. Each refusal names the file, the process that has it, and what to
// do, and ends with its cause.
func TestOneProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir := place(t)
	server := start(t, nil, onStateDir(dir)...)
	server.quietly(t)
	holder := fmt.Sprintf("another process (pid %d) has it open", server.Pid())
	if _, err := direct(dir); !errors.Is(err, sqldb.ErrLocked) || !strings.Contains(err.Error(), holder) || !strings.Contains(err.Error(), "stop that one first") {
		t.Errorf("beside a server: %v", err)
	}
	second := start(t, nil, onStateDir(dir)...)
	if code, said := second.Exit(t), strings.Join(second.Lines(), "\n"); code != 1 || !strings.Contains(said, dir+"/placement.db") || !strings.Contains(said, holder) {
		t.Errorf("a second server ended with %d and printed: %s", code, said)
	}
	server.Stop(t)
	d := testproc.Try(direct(dir)).Or(t)
	server = start(t, nil, onStateDir(dir)...)
	if code, said := server.Exit(t), strings.Join(server.Lines(), "\n"); code != 1 || !strings.Contains(said, "stop that one first") {
		t.Errorf("a server beside it ended with %d and printed: %s", code, said)
	}
	check(t, d.Close())
	server = start(t, nil, onStateDir(dir)...)
	server.quietly(t)
	server.Stop(t)
}
