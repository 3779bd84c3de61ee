// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func direct(dir string) (*placement.Direct, error) {
	return placement.NewDirect(context.Background(),
		placement.Config{StateDir: dir, Policy: api.Legacy, Logger: zerolog.Nop()})
}

// TestOneProcess: a database file belongs to one process: not two servers, and not what runs in a
// process of its own beside one. Each refusal names the file, the process that has it, and what to
// do, and ends with its cause.
func TestOneProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir := place(t)
	server := start(t, nil, "--state-dir", dir)
	server.quietly(t)
	holder := fmt.Sprintf("another process (pid %d) has it open", server.Pid())
	_, err := direct(dir)
	testproc.ErrorIs(t, err, engine.ErrLocked, "beside a server: %v")
	testproc.ErrorHas(t, err, holder, "beside a server: %v")
	testproc.ErrorHas(t, err, "stop that one first", "beside a server: %v")
	start(t, nil, "--state-dir", dir).refuses(t, 1, dir+"/placement.db", holder)
	server.Stop(t)
	d := testproc.Try(direct(dir)).Or(t)
	start(t, nil, "--state-dir", dir).refuses(t, 1, "stop that one first")
	check(t, d.Close())
	server = start(t, nil, "--state-dir", dir)
	server.quietly(t)
	server.Stop(t)
}
