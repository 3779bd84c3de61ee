// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCost: the processor time and the memory are those of the processes that were started and of
// their children.
func TestCost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p := &peer{Name: "a shell", dir: t.TempDir()}
	if _, err := p.CPU(); err == nil {
		t.Error("a peer without processes has used CPU time")
	}
	proc, err := p.start(t.Context(), "shell", nil, "/bin/sh", "-c", "sleep 600 & trap 'kill $!' TERM; : >ready; wait")
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.NoError(t, p.Close()) })
	testproc.Check(t, p.await(t.Context(), proc, func(context.Context) error {
		_, err := os.Stat(filepath.Join(p.dir, "ready"))
		return err
	}))
	pids, err := p.pids()
	if err != nil || len(pids) != 2 {
		t.Errorf("the processes are %v, %v, not the shell and its child", pids, err)
	}
	first, err := p.CPU()
	if err != nil || first <= 0 {
		t.Errorf("%v, %v of CPU time", first, err)
	}
	memory, err := p.Memory()
	if err != nil || memory.PSS <= 0 || memory.RSS < memory.PSS {
		t.Errorf("the memory is %+v, %v", memory, err)
	}
}

// TestRowsAsSQL: rows go to another database as they are.
func TestRowsAsSQL(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db := testproc.Try(sql.Open("sqlite", filepath.Join(t.TempDir(), "db"))).Or(t)
	t.Cleanup(func() { _ = db.Close() })
	testproc.Try(db.ExecContext(t.Context(), `CREATE TABLE things (created_at DATETIME, id INTEGER, name VARCHAR(255), ratio FLOAT);
		INSERT INTO things VALUES ('2026-01-02 03:04:05', 0, 'it''s \a', 1.5), (NULL, 2, NULL, 16)`)).Or(t)
	var got strings.Builder
	w := bufio.NewWriter(&got)
	testproc.Check(t, writeRows(t.Context(), w, db, "things"))
	testproc.Check(t, w.Flush())
	want := "INSERT INTO things (created_at,id,name,ratio) VALUES\n" +
		`('2026-01-02 03:04:05',0,'it''s \\a',1.5),(NULL,2,NULL,16);` + "\n"
	testproc.Same(t, cmp.Diff(want, got.String()))
}
