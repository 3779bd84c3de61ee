// SPDX-License-Identifier: Apache-2.0

package cellclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := fmt.Sprintf(`{"uuid":%q}`, uuid)
	tests := []struct {
		call   func(context.Context, *cellclient.Client) (any, error)
		answer string
		want   string // METHOD URI BODY
	}{
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Cell(ctx) }, okInfo, "GET /v1/cell "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Servers(ctx, cellwire.ServerQuery{Limit: 5})
		}, `{"rows":null,"more":true}`, `POST /v1/servers/query {"limit":5}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Server(ctx, uuid) }, server,
			"GET /v1/servers/" + uuid + " "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Release(ctx, uuid) }, server,
			"POST /v1/servers/" + uuid + "/release "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return nil, c.Discard(ctx, uuid) }, "",
			"POST /v1/servers/" + uuid + "/discard "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Delete(ctx, uuid, cellwire.DeleteSoft)
		}, `{"server":` + server + `}`, "POST /v1/servers/" + uuid + `/delete {"kind":"soft"}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Restore(ctx, uuid) }, server,
			"POST /v1/servers/" + uuid + "/restore "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return nil, c.MarkFreed(ctx, uuid) }, "",
			"POST /v1/servers/" + uuid + "/freed "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Patch(ctx, uuid,
				cellwire.ServerPatch{Name: new(string), Tags: &cellwire.TagsPatch{Add: []string{"a"}}})
		}, server, "PATCH /v1/servers/" + uuid + ` {"name":"","tags":{"add":["a"]}}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Power(ctx, uuid, cellwire.PowerRebootHard)
		}, server, "POST /v1/servers/" + uuid + `/power {"action":"reboot-hard"}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Rebuild(ctx, uuid, cellwire.RebuildRequest{ImageRef: "i", Key: &cellwire.ServerKey{}})
		}, server, "POST /v1/servers/" + uuid + `/rebuild {"image_ref":"i","patch":{},"key":{}}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Reset(ctx, uuid, cellwire.ResetRequest{VMState: cellwire.VMError})
		}, server, "POST /v1/servers/" + uuid + `/reset {"vm_state":"error"}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.NodeReporter(ctx, "h/1", uuid)
		}, `{"uuid":"` + uuid + `","host":"h2"}`, "GET /v1/hosts/h%2F1/nodes/" + uuid + " "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Actions(ctx, uuid) }, `{"actions":[]}`,
			"GET /v1/servers/" + uuid + "/actions "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.States(ctx, []string{uuid}) },
			`{"states":[]}`, `POST /v1/servers/states {"uuids":["` + uuid + `"]}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.ServerHosts(ctx, cellwire.HostsRequest{UUIDs: []string{uuid}})
		}, `{"servers":[]}`, `POST /v1/servers/hosts/query {"uuids":["` + uuid + `"]}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.ServerHosts(ctx, cellwire.HostsRequest{On: []string{"h1"}})
		}, `{"servers":[]}`, `POST /v1/servers/hosts/query {"on":["h1"]}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Unfinished(ctx, 1500*time.Millisecond, time.Hour)
		}, `{}`, "GET /v1/servers/unfinished?hidden_for=2&reclaim_after=3600 "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Unfinished(ctx, 0, 0) }, `{}`,
			"GET /v1/servers/unfinished?hidden_for=0 "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Discovery(ctx, "a b&c") },
			`{"usage":{},"services":[],"nodes":null}`, "GET /v1/survey?project_id=a+b%26c "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Usage(ctx, "p") },
			`{"usage":{"cores":1},"services":[],"nodes":[]}`, "GET /v1/survey?only=usage&project_id=p "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.Services(ctx) },
			`{"services":[]}`, "GET /v1/services "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.PatchService(ctx, uuid, cellwire.ServicePatch{DisabledReason: new(string)})
		}, server, "PATCH /v1/services/" + uuid + ` {"disabled_reason":""}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return nil, c.DeleteService(ctx, uuid) }, "",
			"DELETE /v1/services/" + uuid + " "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.ComputeNodes(ctx, true) },
			`{"compute_nodes":[]}`, "GET /v1/compute-nodes?unmapped=true "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) { return c.CountedNodes(ctx) },
			`{"compute_nodes":[]}`, "GET /v1/compute-nodes?servers=true "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return nil, c.MarkMapped(ctx, []string{"n"})
		}, "", `POST /v1/compute-nodes/mapped {"uuids":["n"]}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Report(ctx, "h/1", cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{}})
		}, `{"epoch":"e"}`, `PUT /v1/hosts/h%2F1 {"version":"1","nodes":[]}`},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Work(ctx, "h1", 7, "e", time.Second)
		}, `{"epoch":"e"}`, "GET /v1/hosts/h1/work?after=7&epoch=e&wait=1 "},
		{func(ctx context.Context, c *cellclient.Client) (any, error) {
			return c.Reports(ctx, "h1", []cellwire.Report{{UUID: uuid, Kind: cellwire.ReportGone}})
		}, `{"refused":[""]}`, `POST /v1/hosts/h1/reports {"reports":[{"uuid":"` + uuid +
			`","kind":"gone","power_state":0}]}`},
	}
	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			var got string
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + r.RequestURI + " " + string(body)
				if test.answer == "" {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				answer(200, test.answer)(w, r)
			})
			if _, err := test.call(t.Context(), client); err != nil {
				t.Error(err)
			}
			testproc.Same(t, cmp.Diff(test.want, got))
		})
	}
	t.Run("answers about something else", func(t *testing.T) {
		for _, test := range tests {
			var called bool
			client := serve(t,
				func(w http.ResponseWriter, r *http.Request) { called = true; answer(200, `{"a":1}`)(w, r) })
			_, err := test.call(t.Context(), client)
			var failure *cellclient.Failure
			optional := test.answer == "" || test.answer == "{}" // nothing has to be in those
			if !called || (!errors.As(err, &failure) || failure.Kind != cellclient.Broken) != optional {
				t.Errorf("%s: %v", test.want, err)
			}
		}
	})
}

// TestAnotherCell: the cell that is meant is named, and another one that answers there is no cell.
func TestAnotherCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var named []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		named = append(named, r.Header.Get(cellwire.HeaderCell))
		answer(421, `{"code":"another_cell","message":"this is the cell \"b\""}`)(w, r)
	}))
	defer web.Close()
	for _, name := range []string{"", "a b\n/é"} {
		client := testproc.Try(cellclient.New(cellclient.Config{URL: web.URL, Cell: name})).Or(t)
		_, err := client.Server(t.Context(), uuid)
		var failure *cellclient.Failure
		if !errors.As(err, &failure) || failure.Kind != cellclient.Broken ||
			!strings.Contains(err.Error(), `this is the cell "b"`) {
			t.Errorf("meaning %q: %v", name, err)
		}
		client.CloseIdle()
	}
	testproc.Same(t, cmp.Diff([]string{"", "a%20b%0A%2F%C3%A9"}, named))
}

func TestDiscard(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if err := serve(t, answer(404, `{"code":"not_found","message":"none"}`)).Discard(t.Context(), uuid); err != nil {
		t.Errorf("of what is not there: %v", err)
	}
	if err := serve(t, answer(409, `{"code":"conflict","message":"released"}`)).
		Discard(t.Context(), uuid); !cellclient.IsConflict(err) {
		t.Errorf("of what was released: %v", err)
	}
	if err := serve(t, http.NotFound).Discard(t.Context(), uuid); err == nil {
		t.Error("a 404 of something that is no cell counts")
	}
}

func TestManyStatesAreAskedForInParts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var sizes []int
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var q cellwire.StatesRequest
		_ = json.NewDecoder(r.Body).Decode(&q)
		sizes = append(sizes, len(q.UUIDs))
		answer(200, fmt.Sprintf(`{"states":[{"uuid":%q,"vm_state":"active"}]}`, q.UUIDs[0]))(w, r)
	})
	var uuids []string
	for i := range 2500 {
		uuids = append(uuids, fmt.Sprint(i))
	}
	states, err := client.States(t.Context(), uuids)
	if err != nil || len(states) != 3 {
		t.Errorf("%d states, %v", len(states), err)
	}
	testproc.Same(t, cmp.Diff([]int{1000, 1000, 500}, sizes))
}

// TestHostsOfAnOlderCell: a cell without the call is asked for the servers, page by page.
func TestHostsOfAnOlderCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var asked []string
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+" "+string(body))
		switch len(asked) {
		case 1:
			answer(404, `{"code":"no_call","message":"no"}`)(w, r)
		case 2:
			answer(200, `{"rows":[{"server":{"uuid":"a","host":"h1"},"key":["a"]}],"more":true}`)(w, r)
		default:
			answer(200, `{"rows":[{"server":{"uuid":"b"},"key":["b"]}]}`)(w, r)
		}
	})
	all := testproc.Try(client.ServerHosts(t.Context(), cellwire.HostsRequest{UUIDs: []string{"a", "b"}})).Or(t)
	testproc.Same(
		t, cmp.Diff([]cellwire.ServerHosts{{UUID: "a", Hosts: []string{"h1"}}, {UUID: "b", Hosts: []string{}}}, all),
	)
	testproc.Same(t, cmp.Diff([]string{
		`/v1/servers/hosts/query {"uuids":["a","b"]}`,
		`/v1/servers/query {"soft_deleted":true,"uuids":["a","b"],"limit":1000}`,
		`/v1/servers/query {"soft_deleted":true,"uuids":["a","b"],"after":["a"],"limit":1000}`,
	}, asked))
}

func TestInvalidNamesAreRejected(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	client := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	for _, name := range []string{"", ".", ".."} {
		if _, err := client.Server(t.Context(), name); !cellclient.IsNotFound(err) {
			t.Errorf("Server(%q): got %v, want not found", name, err)
		}
	}
}
