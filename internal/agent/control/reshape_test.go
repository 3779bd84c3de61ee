// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestPlanOfAReshapeArrivesWhole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path, stop := serve(t, fakeAgent{})
	defer stop()
	client := control.NewClient(path)
	plan, err := client.Plan(t.Context(), true)
	if err != nil || !plan.Refused() {
		t.Fatalf("Plan of a reshape: got %+v, %v, want it refused", plan, err)
	}
	n := plan.Nodes[0]
	if n.Reshape.Consumers != 2 || n.Reshape.Moved != 1 ||
		strings.Join(n.Violations, " ") != "a b" || n.Hint != "r" || n.Error != "no" {
		t.Errorf("the plan's node: got %+v, want the reshape with its violations, hint and error", n)
	}
	if plain, err := client.Plan(t.Context(), false); err != nil || plain.Refused() || plain.Nodes[0].Reshape != nil {
		t.Errorf("Plan without a reshape: got %+v, %v, want it not refused", plain, err)
	}
}

func TestRefresh(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var asked int
	path, stop := serve(t, fakeAgent{refreshed: &asked})
	defer stop()
	if err := control.NewClient(path).Refresh(t.Context()); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// TestUndoTellsRefusalFromFailure: scripts must see which of the two it is.
func TestUndoTellsRefusalFromFailure(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path, stop := serve(t, fakeAgent{})
	client := control.NewClient(path)
	testproc.NoError(t, client.UndoReshape(t.Context(), 1))
	err := client.UndoReshape(t.Context(), 3)
	if !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "another client has written since") {
		t.Errorf("UndoReshape: got %v, want ErrRefused with the reason", err)
	}
	stop()
	testproc.ErrorIs(t, client.UndoReshape(t.Context(), 1), control.ErrNotRunning, "UndoReshape: %v")
	path, stop = serve(t, fakeAgent{err: errors.New("placement is down")})
	defer stop()
	if err := control.NewClient(path).UndoReshape(t.Context(), 1); err == nil || errors.Is(err, control.ErrRefused) ||
		!strings.Contains(err.Error(), "placement is down") {
		t.Errorf("UndoReshape: got %v, want the failure, and not ErrRefused", err)
	}
}
