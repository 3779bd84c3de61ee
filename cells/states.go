// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/files"
)

// StatesPath is where the compute API answers on its admin socket how the cells are.
const StatesPath = "/cells"

// CellState is how a cell is, as a compute API has it.
type CellState struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	URL  string `json:"url"`
	Up   bool   `json:"up"`
	// Since is when it came up or went down, as far as the process has run, and Cause why it is
	// down.
	Since time.Time `json:"since"`
	Cause string    `json:"cause,omitempty"`
}

// serveStates answers how the cells are. Those that were not asked yet are asked before.
func (a *API) serveStates(w http.ResponseWriter, r *http.Request) {
	a.ready.current(r.Context())
	states := []CellState{}
	for _, s := range a.gatherer.States() {
		if s.State != 0 {
			states = append(states,
				CellState{s.Cell.Name, s.Cell.UUID, s.Cell.URL, s.State == gather.OK, s.Since, s.Cause})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(states) // a client that went away needs nothing
}

// AskStates asks a compute API, at its admin socket, how the cells are. One request.
func AskStates(ctx context.Context, socket string) (states []CellState, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://compute-api"+StatesPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := files.Client(socket).Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the compute API at %s for the cells: %w", socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the compute API at %s for the cells: it answers %s", socket, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&states); err != nil {
		return nil, fmt.Errorf("reading which cells the compute API at %s has: %w", socket, err)
	}
	return states, nil
}
