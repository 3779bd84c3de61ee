// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// unchanged looks whether a command that was refused left a database of OpenStack's as it was.
func unchanged(t *testing.T, when, dsn string, rows map[string][]string) {
	t.Helper()
	if found, _ := checkDatabase(t, dsn); found.State != store.StateOpenStack || found.Guarded != 0 {
		t.Errorf("%s: %+v", when, found)
	}
	testproc.Samef(t, cmp.Diff(rows, dump(t, dsn)), "%s: rows are altered", when)
}

// refusesTriggers expects that a command was refused as the user may not make or remove triggers.
func refusesTriggers(t *testing.T, when string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "log_bin_trust_function_creators") ||
		!strings.Contains(err.Error(), "administrator") {
		t.Errorf("%s: %v", when, err)
	}
}

// TestRealAdoptWithBinaryLog: where MariaDB has a binary log, the user whom OpenStack's guide makes
// may neither make triggers nor remove them. Both commands say so before they change anything, and
// work once it is allowed, for an administrator, and without triggers. No table lacks a primary
// key.
func TestRealAdoptWithBinaryLog(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := dbservers.StartMariaDB(t,
		dbservers.Options{Settings: []string{"log-bin=bin", "server-id=1", "innodb-force-primary-key=1"}})
	dsn := theirDatabase(t, func(t testing.TB) string { return s.Database(t, "placement") })
	admin, rows := s.AdminDSN("placement"), dump(t, dsn)
	adopt := func(dsn string, o store.AdoptOptions) error {
		_, err := placement.Adopt(t.Context(), placement.Config{Database: dsn}, o)
		return err
	}
	handBack := func(dsn string) error {
		_, err := placement.HandBack(t.Context(), placement.Config{Database: dsn}, store.AdoptOptions{})
		return err
	}
	trust := func(on int) {
		dbservers.Execute(t, admin, fmt.Sprintf("SET GLOBAL log_bin_trust_function_creators = %d", on))
	}

	if found, findings := checkDatabase(t, dsn); findings["administrator"].Verdict != store.Arrange ||
		found.MustRepair() {
		t.Errorf("the check: %+v", found)
	}
	refusesTriggers(t, "adopting", adopt(dsn, store.AdoptOptions{}))
	unchanged(t, "adopting was refused", dsn, rows)

	trust(1)
	if _, findings := checkDatabase(t, dsn); findings["administrator"].Count != 0 {
		t.Errorf("it is allowed: %+v", findings)
	}
	testproc.Check(t, adopt(dsn, store.AdoptOptions{}))
	trust(0)
	refusesTriggers(t, "handing back", handBack(dsn))
	if found, _ := checkDatabase(t, dsn); found.State != store.StateAdopted || found.Guarded != 12 {
		t.Errorf("handing back was refused: %+v", found)
	}
	expectAll(t, change(), ours(t, dsn, change()))
	testproc.Check(t, handBack(admin))
	rows = dump(t, dsn)

	testproc.Check(t, adopt(admin, store.AdoptOptions{}))
	if err := onServer(t, dsn, "DELETE FROM allocations"); err == nil ||
		!strings.Contains(err.Error(), "adopt --hand-back") {
		t.Errorf("triggers of an administrator: %v", err)
	}
	ours(t, dsn, readAll())
	testproc.Check(t, handBack(admin))
	unchanged(t, "an administrator adopted and handed back", dsn, rows)

	testproc.Check(t, adopt(dsn, store.AdoptOptions{WithoutGuard: true}))
	ours(t, dsn, readAll())
	testproc.Check(t, handBack(dsn))
	unchanged(t, "adopted without triggers", dsn, rows)
}

// TestRealAdoptAsReader: a user who may only read gets the whole check, and changes nothing.
func TestRealAdoptAsReader(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	read := func(t *testing.T, dsn, reader string) {
		rows := dump(t, dsn)
		want, _ := checkDatabase(t, dsn)
		got, _ := checkDatabase(t, reader)
		if diff := cmp.Diff(want.Counts, got.Counts); diff != "" ||
			got.State != store.StateOpenStack || got.MustRepair() {
			t.Errorf("the check of a reader: %+v\n%s", got, diff)
		}
		if _, err := placement.Adopt(t.Context(), placement.Config{Database: reader},
			store.AdoptOptions{}); !errors.Is(err, engine.ErrDenied) {
			t.Errorf("a reader adopted: %v", err)
		}
		unchanged(t, "a reader's adoption was refused", dsn, rows)
	}
	t.Run("mariadb", func(t *testing.T) {
		s := dbservers.StartMariaDB(t, dbservers.Options{})
		dsn := theirDatabase(t, func(t testing.TB) string { return s.Database(t, "placement") })
		dbservers.Execute(t, s.AdminDSN("placement"), "CREATE USER reader@'%' IDENTIFIED BY 'r'",
			"GRANT SELECT ON placement.* TO reader@'%'")
		read(t, dsn, "mysql://reader:r@"+s.Address()+"/placement")
	})
	t.Run("postgresql", func(t *testing.T) {
		s := dbservers.StartPostgreSQL(t, dbservers.Options{})
		dsn := theirDatabase(t, func(t testing.TB) string { return s.Database(t, "placement") })
		dbservers.Execute(t, s.AdminDSN("placement"), "CREATE ROLE reader LOGIN PASSWORD 'r'",
			"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
		read(t, dsn, "postgres://reader:r@"+s.Address()+"/placement")
	})
}

// TestDatabasesAdoptGalera: a database on three nodes is adopted at one while OpenStack's Placement
// writes at another. What that acknowledged is there, and it can write nothing more at any node.
// It is served at the nodes, and handed back at another one than it was adopted.
func TestDatabasesAdoptGalera(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	testproc.NeedPlacement(t)
	c := dbservers.StartGalera(t, 3,
		dbservers.Options{Settings: []string{"wsrep-certify-nonPK=OFF", "innodb-force-primary-key=1"}})
	nodes := c.Database(t, "placement")
	expectAll(t, cloud(), upstream(t, nodes[1], cloud()))
	rows := dump(t, nodes[1])
	if found, findings := checkDatabase(t, nodes[0]); found.Nodes != 3 ||
		findings["administrator"].Verdict != store.Arrange || found.MustRepair() {
		t.Errorf("the check: %+v", found)
	}
	_, err := placement.Adopt(t.Context(), placement.Config{Database: nodes[0]}, store.AdoptOptions{})
	refusesTriggers(t, "adopting", err)
	unchanged(t, "adopting was refused", nodes[2], rows)

	var writes []upstreamCall
	for n := range 300 {
		writes = append(writes, upstreamCall{"PUT", fmt.Sprintf("/traits/CUSTOM_N%d", n), "", at139})
	}
	answers := make(chan []reply, 1)
	go func() {
		defer close(answers)
		answers <- upstream(t, nodes[1], writes)
	}()
	db := dbservers.Open(t, nodes[0])
	testproc.Eventually(t, testproc.Patience, "OpenStack's Placement writes at another node", func() error {
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM traits WHERE name LIKE 'CUSTOM\\_N%'").
			Scan(&n); err != nil || n == 0 {
			return fmt.Errorf("%d traits, %w", n, err)
		}
		return nil
	})
	testproc.Check(t, db.Close())
	dbservers.Execute(t, c.Nodes[0].AdminDSN("placement"), "SET GLOBAL log_bin_trust_function_creators = 1")
	if done := adoptDatabase(t, nodes[0]); done.Guarded != 12 || done.Rows != 5 {
		t.Errorf("adopted: %+v", done)
	}
	for n, dsn := range nodes {
		refused := upstream(t, dsn, []upstreamCall{{"PUT", "/traits/CUSTOM_LATE", "", at139}})
		if refused[0].Status < http.StatusInternalServerError {
			t.Errorf("OpenStack's Placement writes at node %d: %+v", n, refused)
		}
	}
	served, made := fmt.Sprint(
		ours(t, nodes[2], []upstreamCall{{"GET", "/traits?name=startswith:CUSTOM_N", "", at139}})), 0
	for n, r := range <-answers {
		if there := strings.Contains(served, fmt.Sprintf("CUSTOM_N%d ", n)) ||
			strings.Contains(served, fmt.Sprintf("CUSTOM_N%d]", n)); there != (r.Status < 300) {
			t.Errorf("trait %d: OpenStack's Placement answered %d, and that it is served is %v", n, r.Status, there)
		} else if there {
			made++
		}
	}
	t.Logf("OpenStack's Placement made %d of %d traits", made, len(writes))

	expectAll(t, change(), ours(t, nodes[1], change()))
	direct, err := placement.NewDirect(t.Context(), placement.Config{Database: nodes[2], Logger: zerolog.Nop()})
	testproc.Check(t, err)
	during := unorderedAll(ours(t, nodes[0], readAll()))
	_, err = placement.HandBack(t.Context(), placement.Config{Database: nodes[0]}, store.AdoptOptions{})
	if !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "is served by") {
		t.Errorf("handed back beside a server at another node: %v", err)
	}
	testproc.Check(t, direct.Close())
	if done := handDatabaseBack(t, nodes[0]); done.After != store.StateOpenStack {
		t.Errorf("handed back: %+v", done)
	}
	after := upstream(t, nodes[1], slices.Concat(readAll(), later()))
	expectAll(t, later(), after[len(readAll()):])
	compareReplies(t, "handed back", readAll(), unorderedAll(after[:len(readAll())]), during)
}
