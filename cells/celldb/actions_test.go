// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// history is the actions of a server, the oldest first: name, request, user, host, and after how
// many seconds each began and ended, with the first line of why it failed.
func history(t *testing.T, s *celldb.DB, uuid string) []string {
	t.Helper()
	answer := testproc.Try(s.Actions(ctx, uuid)).Or(t)
	out := make([]string, len(answer.Actions))
	for i, a := range answer.Actions {
		text := fmt.Sprintf("%d %s %s by %s on %q at %v",
			a.Number, a.Name, a.RequestID, a.UserID, a.Host, a.StartedAt.Sub(start).Seconds())
		if a.FinishedAt != nil {
			text += fmt.Sprint(" to ", a.FinishedAt.Sub(start).Seconds())
		}
		if a.Failed {
			first, _, _ := strings.Cut(a.Details, "\n")
			text += ": " + first
		}
		out[len(out)-1-i] = text
	}
	return out
}

// traceOf is the trace context of a request.
func traceOf(request string) string {
	if request == "" {
		return ""
	}
	return "trace of " + request
}

// requestsOf are the requests that the work of the host h1 is for.
func requestsOf(t *testing.T, s *celldb.DB) string {
	t.Helper()
	work, _, err := s.Work(ctx, "h1", 0, "", moment)
	testproc.Check(t, err)
	var all []string
	for _, item := range work.Items {
		all = append(all, item.RequestID)
		if item.Traceparent != traceOf(item.RequestID) {
			t.Errorf("the work for %q has the trace context %q", item.RequestID, item.Traceparent)
		}
	}
	return strings.Join(all, " ")
}

// TestActions: what is asked for a server is kept with its request, and what came of it; a request
// that changes nothing is not kept.
func TestActions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, actions)
}

func actions(t *testing.T, s *celldb.DB) {
	t.Helper()
	_, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{Version: "1"}, moment)
	testproc.Check(t, err)
	at := func(seconds int) celldb.Moment {
		return celldb.Moment{Now: start.Add(time.Duration(seconds) * time.Second), DownTime: time.Hour}
	}
	from := func(request string) context.Context {
		return cellwire.WithOrigin(ctx,
			cellwire.Origin{RequestID: request, UserID: "u", ProjectID: "p", Traceparent: traceOf(request)})
	}
	report := func(n, second int, kind cellwire.ReportKind, power plugins.PowerState, fault *cellwire.Fault) {
		t.Helper()
		applied, err := s.Apply(ctx,
			"h1", []cellwire.Report{{UUID: sid(n), Kind: kind, PowerState: power, Revision: 1 << 40, Fault: fault}},
			at(second))
		testproc.Check(t, err)
		if refused := applied.Refused; refused[0] != "" {
			t.Fatalf("%s: %s", kind, refused[0])
		}
	}
	power := func(second int, request string, action cellwire.PowerAction) {
		t.Helper()
		testproc.Try(s.Power(from(request), sid(1), action, at(second))).Or(t)
	}
	insert(t, s, building(1))
	if got := history(t, s, sid(1)); len(got) > 0 {
		t.Errorf("a hidden server has actions: %q", got)
	}
	for _, request := range []string{"req-1", "req-1b"} { // and its repetition
		_, err = s.Release(from(request), sid(1), at(2))
		testproc.Check(t, err)
	}
	if answer, err := s.Actions(ctx, sid(1)); err != nil ||
		len(answer.Actions) != 1 || answer.Actions[0].Details != "" {
		t.Errorf("while it is built: %+v, %v", answer, err)
	}
	want := []string{`1 create req-1 by u on "h1" at 1`}
	if diff := cmp.Diff(want, history(t, s, sid(1))); diff != "" {
		t.Fatalf("while it is built (-want +got):\n%s", diff)
	}
	report(1, 4, cellwire.ReportSpawned, plugins.PowerRunning, nil)
	testproc.Equal(t, requestsOf(t, s), "", "nothing is under way, and the work of the host is for %q")
	power(5, "req-2", cellwire.PowerStop)
	testproc.Equal(t, requestsOf(t, s), "req-2", "the work of the host is for %q")
	report(1, 6, cellwire.ReportSettled, plugins.PowerShutdown, nil)
	power(7, "req-3", cellwire.PowerStart)
	report(1, 8, cellwire.ReportSettled, plugins.PowerShutdown,
		&cellwire.Fault{Code: 500, Message: "no memory", Details: "more of it"})
	power(9, "req-4", cellwire.PowerRebootHard)
	report(1, 10, cellwire.ReportSettled, plugins.PowerShutdown, nil) // the first half
	report(1, 11, cellwire.ReportSettled, plugins.PowerRunning, nil)
	power(12, "req-5", cellwire.PowerReboot)
	if _, err := s.Power(from("req-6"), sid(1), cellwire.PowerReboot, at(13)); err == nil {
		t.Error("a second reboot is taken")
	}
	testproc.Try(s.Delete(from("req-7"), sid(1), cellwire.DeleteNormal, at(14))).Or(t)
	testproc.Try(s.Delete(from("req-8"), sid(1), cellwire.DeleteNormal, at(15))).Or(t)
	report(1, 16, cellwire.ReportGone, 0, nil)
	want = []string{
		`1 create req-1 by u on "h1" at 1 to 4`, `2 stop req-2 by u on "h1" at 5 to 6`,
		`3 start req-3 by u on "h1" at 7 to 8: no memory`,
		`4 reboot req-4 by u on "h1" at 9 to 11`,
		`5 reboot req-5 by u on "h1" at 12 to 14: It had not ended when the action delete began.`,
		`6 delete req-7 by u on "h1" at 14 to 16`,
	}
	testproc.Same(t, cmp.Diff(want, history(t, s, sid(1))))
	answer, err := s.Actions(ctx, sid(1))
	if err != nil || !answer.Deleted || answer.Actions[3].Details != "no memory\nmore of it" {
		t.Errorf("the actions: got %+v, %v, want those of a deleted server, with the details of the failure",
			answer, err)
	}
	for _, a := range answer.Actions {
		if !a.Failed && a.Details != "" || a.Traceparent != "" {
			t.Errorf("%s has the details %q and the trace context %q", a.RequestID, a.Details, a.Traceparent)
		}
	}

	// One that could not be placed, one whose build fails, and one deleted without its host.
	nowhere := building(2)
	nowhere.Host, nowhere.Node, nowhere.VMState, nowhere.TaskState = "", "", cellwire.VMError, ""
	nowhere.Fault = &cellwire.Fault{Code: 500, Message: "No valid host was found.",
		Created: start.Add(20 * time.Second)}
	insert(t, s, nowhere)
	testproc.Try(s.Release(from("req-9"), sid(2), at(21))).Or(t)
	release(t, s, building(3))
	report(3, 22, cellwire.ReportFailed, 0, &cellwire.Fault{Message: "no such image"})
	elsewhere := building(4)
	elsewhere.Host = "down"
	release(t, s, elsewhere)
	testproc.Try(s.Delete(from("req-10"), sid(4), cellwire.DeleteNormal, at(23))).Or(t)
	for n, want := range map[int][]string{
		2: {`1 create req-9 by u on "" at 2 to 20: No valid host was found.`},
		3: {`1 create  by  on "h1" at 3 to 22: no such image`},
		4: {`1 create  by  on "down" at 4 to 23: It had not ended when the action delete began.`,
			`2 delete req-10 by u on "down" at 23 to 23`},
	} {
		testproc.Samef(t, cmp.Diff(want, history(t, s, sid(n))), "server %d", n)
	}

	var refusal *cellwire.Error
	if _, err := s.Actions(ctx, sid(5)); !errors.As(err, &refusal) || refusal.Code != cellwire.CodeNotFound {
		t.Errorf("actions of what is not there: %v", err)
	}
}

// TestActionsAreBounded: of very many actions the newest are kept.
func TestActionsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, actionsAreBounded)
}

func actionsAreBounded(t *testing.T, s *celldb.DB) {
	t.Helper()
	release(t, s, building(1))
	const before = cellwire.MaxActions - 2
	for i := range before {
		testproc.Check(t,
			s.Execute(ctx,
				fmt.Sprintf(
					"INSERT INTO instance_actions (instance_uuid, number, action, "+
						"request_id, user_id, project_id, host, started_at, finished_at, failed, "+
						"details) VALUES ('%s', %d, 'stop', '', '', '', '', 1, 1, 0, '')", sid(1),
					i+2)))
	}
	_, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{Version: "1"}, moment)
	testproc.Check(t, err)
	for range 3 {
		testproc.Try(s.Delete(ctx, sid(1), cellwire.DeleteNormal, moment)).Or(t)
		testproc.Check(t, s.Execute(ctx, "UPDATE instances SET task_state = ''"))
	}
	answer := testproc.Try(s.Actions(ctx, sid(1))).Or(t)
	if n := len(answer.Actions); n != cellwire.MaxActions || answer.Actions[0].Number != before+4 ||
		answer.Actions[n-1].Number != 3 {
		t.Errorf("%d actions, %d to %d", n, answer.Actions[n-1].Number, answer.Actions[0].Number)
	}
}
