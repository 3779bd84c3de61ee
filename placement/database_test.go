// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// upstreamCall is a request and the microversion that it is sent at.
type upstreamCall struct {
	method, path, body, version string
}

// reply is an answer as far as two Placements must agree: the status, the code of an error, and
// else the body.
type reply struct {
	Status int
	Code   string
	Body   any
}

func replyOf(status int, body any) reply {
	r := reply{Status: status, Body: body}
	if object, ok := body.(map[string]any); ok && status >= 400 {
		r.Body = nil
		if list, ok := object["errors"].([]any); ok && len(list) == 1 {
			r.Code, _ = list[0].(map[string]any)["code"].(string)
		}
	}
	return r
}

// answer is a status and a body.
type answer struct {
	status int
	body   any
}

func repliesOf(answers []answer) []reply {
	replies := make([]reply, len(answers))
	for i, a := range answers {
		replies[i] = replyOf(a.status, a.body)
	}
	return replies
}

// upstream sends requests to the distribution's own Placement on a database: a file, or a DSN.
func upstream(t *testing.T, file string, calls []upstreamCall) []reply {
	t.Helper()
	return repliesOf(upstreamAnswers(t, file, calls))
}

// ours sends requests to this Placement on a database: a file, or a DSN.
func ours(t *testing.T, file string, calls []upstreamCall) []reply {
	t.Helper()
	return repliesOf(ourAnswers(t, file, calls))
}

func upstreamAnswers(t *testing.T, file string, calls []upstreamCall) []answer {
	t.Helper()
	var requests [][]any
	for _, c := range calls {
		var body any
		if c.body != "" {
			body = json.RawMessage(c.body)
		}
		requests = append(requests, []any{c.method, c.path, body, c.version})
	}
	raw := testproc.Try(testproc.AskPlacement(t.Context(), file, requests)).Or(t)
	var answers []answer
	for _, r := range raw {
		var body any
		testproc.Check(t, json.Unmarshal(r.Body, &body))
		answers = append(answers, answer{r.Status, body})
	}
	return answers
}

func ourAnswers(t *testing.T, file string, calls []upstreamCall) []answer {
	t.Helper()
	if !strings.Contains(file, "://") {
		file = "sqlite://" + file
	}
	direct := testproc.Try(placement.NewDirect(t.Context(),
		placement.Config{Database: file, Logger: zerolog.Nop()})).Or(t)
	defer func() { testproc.NoError(t, direct.Close()) }()
	client := &http.Client{Transport: direct}
	var answers []answer
	for _, c := range calls {
		r := testproc.Send(t, client, c.method, "http://placement"+c.path, "placement "+c.version, c.body,
			"Accept", "application/json")
		var body any
		if len(r.Body) > 0 {
			r.Into(t, &body)
		}
		answers = append(answers, answer{r.Code, body})
	}
	return answers
}

const theHost = "11111111-1111-4111-8111-111111111111"

func guest(n int) string { return fmt.Sprintf("44444444-4444-4444-8444-%012d", n) }

// claimOf is the body with which a guest holds an amount; the parts from 1.28 and 1.38 on are left
// out before.
func claimOf(vcpu int, version string) string {
	body := fmt.Sprintf(`{"allocations":{"%s":{"resources":{"VCPU":%d}}},"project_id":"p","user_id":"u"`, theHost, vcpu)
	switch version {
	case "1.28":
		body += `,"consumer_generation":null`
	case "1.39":
		body += `,"consumer_generation":null,"consumer_type":"INSTANCE"`
	}
	return body + "}"
}

// oldDatabase is a database that OpenStack Placement made, where guests 1 to n hold 4 VCPU each and
// have no consumer records, as was possible with an old one; guest 0 has one.
func oldDatabase(t *testing.T, n int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "placement.db")
	calls := []upstreamCall{
		{"POST", "/resource_providers", `{"uuid":"` + theHost + `","name":"host"}`, "1.39"},
		{"PUT", "/resource_providers/" + theHost + "/inventories",
			`{"resource_provider_generation":0,"inventories":{"VCPU":{"total":64},"DISK_GB":{"total":10}}}`, "1.39"},
	}
	for i := range n + 1 {
		calls = append(calls, upstreamCall{"PUT", "/allocations/" + guest(i), claimOf(4, "1.39"), "1.39"})
	}
	for i, r := range upstream(t, file, calls) {
		if r.Status >= 300 {
			t.Fatalf("%v is answered with %+v, want a success", calls[i], r)
		}
	}
	execute(t, file, "DELETE FROM consumers WHERE uuid != '"+guest(0)+"'")
	return file
}

func execute(t *testing.T, file, statement string) {
	t.Helper()
	db := testproc.Try(sql.Open("sqlite", file)).Or(t)
	_, err := db.ExecContext(t.Context(), statement)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from string) string {
	t.Helper()
	content := testproc.Try(os.ReadFile(from)).Or(t)
	to := filepath.Join(t.TempDir(), "copy.db")
	testproc.Check(t, os.WriteFile(to, content, 0o600))
	return to
}

// TestRealConsumersWithoutRecords: what holds allocations and has no consumer record is treated as
// OpenStack Placement does: it counts as used, is shown nowhere, and gets a record when it is
// written.
func TestRealConsumersWithoutRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	file := oldDatabase(t, 9)
	rp := "/resource_providers/" + theHost
	look := []upstreamCall{
		{"GET", rp + "/usages", "", "1.39"},
		{"GET", rp + "/allocations", "", "1.39"},
		{"GET", "/usages?project_id=p", "", "1.37"},
	}
	for i := range 10 {
		look = append(look, upstreamCall{"GET", "/allocations/" + guest(i), "", "1.37"})
	}
	post := func(list ...string) string { return "{" + strings.Join(list, ",") + "}" }
	entry := func(n int, body string) string { return fmt.Sprintf("%q:%s", guest(n), body) }
	calls := append([]upstreamCall{}, look...)
	calls = append(calls,
		upstreamCall{"DELETE", rp, "", "1.39"},
		upstreamCall{"DELETE", rp + "/inventories/VCPU", "", "1.39"},
		upstreamCall{"PUT", "/allocations/" + guest(20), claimOf(30, "1.39"), "1.39"}, // 64 - 40 are left
		upstreamCall{"DELETE", "/allocations/" + guest(1), "", "1.39"},
		upstreamCall{"PUT", "/allocations/" + guest(1), strings.Replace(claimOf(5, "1.28"), "null", "1", 1), "1.28"},
		upstreamCall{"PUT", "/allocations/" + guest(1), claimOf(5, "1.28"), "1.28"},
		upstreamCall{"PUT", "/allocations/" + guest(2), claimOf(6, "1.12"), "1.12"},
		upstreamCall{"PUT", "/allocations/" + guest(3), claimOf(7, "1.39"), "1.39"},
		upstreamCall{"PUT", "/allocations/" + guest(4), `{"allocations":[{"resource_provider":{"uuid":"` + theHost +
			`"},"resources":{"VCPU":3}}]}`, "1.0"},
		upstreamCall{"POST", "/allocations", post(entry(5, claimOf(8, "1.28"))), "1.28"},
		upstreamCall{"POST", "/allocations", post(entry(6, claimOf(2, "1.13")), entry(21, claimOf(1, "1.13"))), "1.13"},
		upstreamCall{"POST", "/reshaper", `{"inventories":{"` + theHost +
			`":{"resource_provider_generation":17,"inventories":{"VCPU":{"total":99}}}},"allocations":{` +
			entry(7, claimOf(9, "1.28")) + `}}`, "1.30"},
		upstreamCall{"PUT", "/allocations/" + guest(8),
			`{"allocations":{},"project_id":"p","user_id":"u","consumer_generation":null}`, "1.28"},
	)
	calls = append(calls, look...)
	theirs, mine := upstream(t, copyFile(t, file), calls), ours(t, copyFile(t, file), calls)
	refused := 0
	for i, c := range calls {
		if theirs[i].Status >= 300 {
			refused++
		}
		if diff := cmp.Diff(theirs[i], mine[i]); diff != "" {
			t.Errorf("%s %s %s at %s: Placement -, ours +\n%s", c.method, c.path, c.body, c.version, diff)
		}
	}
	if refused > 5 {
		t.Errorf("%d requests were refused: the story does not tell what it should:\n%+v", refused, theirs)
	}
}

// TestRealMigrateConsumers: what the online migration leaves in the database is what OpenStack
// Placement's own leaves, and both Placements show it the same.
func TestRealMigrateConsumers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	file := oldDatabase(t, 5)
	theirs, owned := copyFile(t, file), copyFile(t, file)
	cfg := placement.Config{Database: "sqlite://" + file, Logger: zerolog.Nop()}
	beside, err := placement.New(t.Context(),
		placement.Config{Database: cfg.Database,
			Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	testproc.Equal(t, beside.Status().ConsumersMissing, 5, "a server counts %d missing records")
	step := func(how func(context.Context, int) (int, int, error), step [3]int) {
		t.Helper()
		missing, made, err := how(t.Context(), step[0])
		if err != nil || missing != step[1] || made != step[2] {
			t.Errorf("at most %d: %d missing, %d made, %v; want %d and %d",
				step[0], missing, made, err, step[1], step[2])
		}
	}
	alone := func(ctx context.Context, most int) (int, int, error) {
		return placement.MigrateConsumers(ctx, cfg, most)
	}
	// A server that has the database open makes the records itself, and shows them.
	step(beside.MigrateConsumers, [3]int{2, 5, 2})
	if _, _, err := alone(t.Context(), 0); !errors.Is(err, engine.ErrLocked) {
		t.Errorf("beside a server: %v", err)
	}
	testproc.Equal(t, beside.Status().ConsumersMissing, 3, "the server still counts %d missing records")
	testproc.NoError(t, beside.Close())
	for _, s := range [][3]int{{3, 3, 3}, {2, 0, 0}, {0, 0, 0}} {
		step(alone, s)
	}
	manage := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", manageOnline, theirs)
	if out, err := manage.CombinedOutput(); err != nil {
		t.Fatalf("placement-manage: %v\n%s", err, out)
	}
	const rows = "SELECT c.uuid || ' ' || c.generation || ' ' || p.external_id || ' ' || u.external_id || ' ' || " +
		"COALESCE(c.consumer_type_id, 'no type') FROM consumers c JOIN projects p ON p.id = c.project_id JOIN users " +
		"u ON u.id = c.user_id ORDER BY c.uuid"
	want, got := column(t, theirs, rows), column(t, file, rows)
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 6 {
		t.Errorf("the records: Placement -, ours +\n%s", diff)
	}
	// The configured owner gets them.
	cfg.Database, cfg.Placement = "sqlite://"+owned,
		api.Options{IncompleteProjectID: "no-project", IncompleteUserID: "no-user"}
	step(alone, [3]int{0, 5, 5})
	const owners = "SELECT p.external_id || ' ' || u.external_id FROM consumers c JOIN projects p ON p.id = " +
		"c.project_id JOIN users u ON u.id = c.user_id WHERE p.external_id LIKE 'no-%'"
	if got := column(t, owned, owners); len(got) != 5 || got[0] != "no-project no-user" {
		t.Errorf("the owners are %v", got)
	}
	calls := []upstreamCall{
		{"GET", "/usages?project_id=00000000-0000-0000-0000-000000000000", "", "1.39"},
		{"GET", "/allocations/" + guest(3), "", "1.39"},
		{"GET", "/resource_providers/" + theHost + "/allocations", "", "1.39"},
		{"PUT", "/allocations/" + guest(3), strings.Replace(claimOf(5, "1.39"), "null", "0", 1), "1.39"},
		{"GET", "/allocations/" + guest(3), "", "1.39"},
	}
	testproc.Samef(t, cmp.Diff(upstream(t, theirs, calls), ours(t, file, calls)), "afterwards: Placement -, ours +")
}

// manageOnline is placement-manage db online_data_migrations on an SQLite file.
const manageOnline = `
import sys, tempfile
from placement.cmd import manage
with tempfile.NamedTemporaryFile('w', suffix='.conf') as f:
    f.write('[placement_database]\nconnection = sqlite:///%s\n' % sys.argv[1])
    f.flush()
    sys.argv = ['placement-manage', '--config-file', f.name, 'db', 'online_data_migrations']
    manage.main()
`

func column(t *testing.T, file, query string) (out []string) {
	t.Helper()
	db := testproc.Try(sql.Open("sqlite", file)).Or(t)
	defer func() { _ = db.Close() }()
	rows := testproc.Try(db.QueryContext(context.Background(), query)).Or(t)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		testproc.Check(t, rows.Scan(&s))
		out = append(out, s)
	}
	testproc.Check(t, rows.Err())
	return out
}

// TestUpgradeDatabase: from nothing, and from OpenStack Placement's tables; a second time changes
// nothing.
func TestUpgradeDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cfg := placement.Config{StateDir: filepath.Join(t.TempDir(), "state")}
	before, after, err := placement.UpgradeDatabase(t.Context(), cfg)
	if err != nil || before.Exists || !after.Exists || after.Schema.NeedsUpgrade() ||
		after.Schema.Migration != after.Schema.Newest || before.Schema.Newest != after.Schema.Newest {
		t.Fatalf("a new one: %+v, %+v, %v", before, after, err)
	}
	again, still, err := placement.UpgradeDatabase(t.Context(), cfg)
	if err != nil || again != after || still != after {
		t.Errorf("again: %+v, %+v, %v", again, still, err)
	}
	// A newer program was here.
	execute(t, after.Path, "INSERT INTO ledger_migrations (number) VALUES (99)")
	if db, err := placement.ReadDatabase(t.Context(), cfg); err != nil ||
		!db.Schema.IsNewer() || db.Schema.NeedsUpgrade() {
		t.Errorf("of a newer program: %+v, %v", db, err)
	}
	if _, _, err := placement.UpgradeDatabase(t.Context(), cfg); err == nil ||
		!strings.Contains(err.Error(), "newer program") {
		t.Errorf("of a newer program: %v", err)
	}
	if _, _, err := placement.MigrateConsumers(t.Context(),
		placement.Config{Database: "sqlite:///nonexistent/placement.db"}, 0); !errors.Is(err, placement.ErrConfig) {
		t.Errorf("no database: %v", err)
	}
	letter := filepath.Join(t.TempDir(), "letter")
	testproc.Check(t, os.WriteFile(letter,
		[]byte("Dear Sir, this is no database, and it is long enough to look like one to those who do not look.\n"),
		0o600))
	if _, err := placement.ReadDatabase(t.Context(), placement.Config{Database: "sqlite://" + letter}); err == nil {
		t.Error("a letter is taken for a database")
	}
}
