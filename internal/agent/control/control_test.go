// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fakeAgent answers what these tests ask; no test asks for the rest.
type fakeAgent struct {
	control.Agent
	err       error
	refreshed *int
}

var used int64 = 3

func (a fakeAgent) Status(context.Context) health.Status {
	return health.Status{State: "reporting", PID: 42, Drivers: []health.Driver{{Name: "libvirt"}}}
}

func (a fakeAgent) Tree(_ context.Context, opts control.TreeOptions) (control.Tree, error) {
	if opts.Servers {
		return control.Tree{Nodes: []control.NodeTree{{Node: "with servers"}}}, a.err
	}
	return control.Tree{Nodes: []control.NodeTree{{Node: "cn1", Providers: []control.Provider{{
		Name: "cn1", Inventories: []control.Inventory{{Class: "VCPU", Inventory: providertree.Inventory{Total: 8},
			Used: &used}, {Class: "DISK_GB"}},
	}}}}}, a.err
}

func (a fakeAgent) Refresh(context.Context) {
	if a.refreshed != nil {
		*a.refreshed++
	}
}

func (a fakeAgent) UndoReshape(_ context.Context, id int64) error {
	if id == 3 {
		return &reshape.UndoError{ID: id, Reason: "another client has written since"}
	}
	return a.err
}

func (a fakeAgent) Plan(_ context.Context, opts resourcetracker.PlanOptions) (control.Plan, error) {
	if opts.Reshape {
		return control.Plan{Nodes: []control.NodePlan{{
			Node: "cn1", Refused: true, Error: "no", Violations: []string{"a", "b"}, Hint: "r",
			Operations: []reportclient.Operation{},
			Reshape:    &reshape.Preview{Consumers: 2, Moved: 1},
		}}}, a.err
	}
	return control.Plan{Nodes: []control.NodePlan{{Node: "cn1", Operations: []reportclient.Operation{{
		Kind: reportclient.SetInventories, Provider: "cn1", Inventories: providertree.Inventories{"VCPU": {Total: 8}},
	}}}}}, a.err
}

func serve(t *testing.T, agent control.Agent) (path string, stop func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.sock")
	socket := testproc.Try(control.Open(t.Context(), path)).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- socket.Serve(ctx, agent, zerolog.Nop()) }()
	stop = func() {
		cancel()
		testproc.NoError(t, <-done)
	}
	return path, stop
}

func TestQuestionsAndAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path, stop := serve(t, fakeAgent{})
	client := control.NewClient(path)
	status, err := client.Status(t.Context())
	if err != nil || status.PID != 42 || status.Drivers[0].Name != "libvirt" {
		t.Errorf("Status: got %+v, %v, want process 42 and libvirt", status, err)
	}
	for _, opts := range []control.TreeOptions{{}, {Servers: true}} {
		tree, err := client.Tree(t.Context(), opts)
		want, _ := fakeAgent{}.Tree(t.Context(), opts)
		if d := cmp.Diff(want, tree); err != nil || d != "" {
			t.Errorf("Tree(%+v): %v\n%s", opts, err, d)
		}
	}
	plan, err := client.Plan(t.Context(), false)
	if err != nil || plan.Nodes[0].Operations[0].Text != "set the inventory of cn1: +VCPU 8" {
		t.Errorf("Plan: got %+v, %v, want the operation's text", plan, err)
	}
	files := []string{path, files.KeyPath(path)}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	stop()
	for _, file := range files {
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("%s is left behind", file)
		}
	}
}

func TestFailureArrivesInWords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path, stop := serve(t, fakeAgent{err: errors.New("the driver is not ready: libvirtd does not answer")})
	defer stop()
	if _, err := control.NewClient(path).Tree(t.Context(), control.TreeOptions{}); err == nil ||
		!strings.Contains(err.Error(), "libvirtd does not answer") {
		t.Error(err)
	}
}

func TestNoAgentListens(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l := testproc.Try(net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})).Or(t)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for _, path := range []string{filepath.Join(dir, "none.sock"), stale} {
		testproc.Try(control.NewClient(path).Status(t.Context())).ErrorIs(t, control.ErrNotRunning, "%s: %v", path)
	}
	again, err := control.Open(t.Context(), stale)
	testproc.Checkf(t, err, "the socket of a dead agent is in the way")
	defer func() { _ = again.Close() }()
	testproc.Try(control.Open(t.Context(), stale)).ErrorHas(t, "another agent", "two agents on one socket: %v")
}
