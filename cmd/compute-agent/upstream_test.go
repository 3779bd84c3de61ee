// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// hasUpstream finds out once whether the distribution's OpenStack Placement is there.
var hasUpstream = sync.OnceValue(func() bool {
	return exec.Command("/usr/bin/python3", "-c", "import placement.deploy").
		Run() == nil // it ends by itself
})

func needsUpstream(t testing.TB) {
	t.Helper()
	if !hasUpstream() {
		testproc.NotRun(t, "a database of OpenStack's Placement needs Debian's package python3-placement")
	}
}

// oldPlacement is the command `old-placement FILE N`: OpenStack Placement makes a database in which
// N+1 consumers hold something, and N of them lose their consumer records, as an old Placement left
// them.
func oldPlacement(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: old-placement FILE N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	const host = "11111111-1111-4111-8111-111111111111"
	type m = map[string]any
	requests := [][]any{
		{"POST", "/resource_providers", m{"uuid": host, "name": "host"}},
		{"PUT", "/resource_providers/" + host + "/inventories",
			m{"resource_provider_generation": 0, "inventories": m{"VCPU": m{"total": 64}}}},
	}
	for i := range n + 1 {
		requests = append(requests, []any{"PUT", fmt.Sprintf("/allocations/44444444-4444-4444-8444-%012d", i),
			m{"consumer_generation": nil, "consumer_type": "INSTANCE",
				"project_id": "q", "user_id": "u", "allocations": m{host: m{"resources": m{"VCPU": 4}}}}})
	}
	file := ts.MkAbs(args[0])
	_, err = testproc.AskPlacement(context.Background(), file, requests)
	ts.Check(err)
	db, err := sql.Open("sqlite", file)
	ts.Check(err)
	result, err := db.Exec("DELETE FROM consumers WHERE uuid NOT LIKE '%-000000000000'")
	ts.Check(errors.Join(err, db.Close()))
	if gone, err := result.RowsAffected(); err != nil || gone != int64(n) {
		ts.Fatalf("%d consumer records were removed, %v", gone, err)
	}
}
