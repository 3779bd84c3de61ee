// SPDX-License-Identifier: Apache-2.0

package health

import "time"

// Cell is the state of this host's cell, as the agent sees it.
type Cell struct {
	URL string `json:"url"`
	// Up: the cell accepted the last heartbeat. Since is the time of the last change; zero: no
	// attempt yet.
	Up    bool      `json:"up"`
	Since time.Time `json:"since,omitzero"`
	// Error is why it did not. Denied: it rejects the agent's credentials.
	Error  string `json:"error,omitempty"`
	Denied bool   `json:"denied,omitempty"`
	// Service is the uuid of this host's service there.
	Service string `json:"service,omitempty"`
	// Nodes are the names of the reported nodes, Refused the uuids of those that belong to another
	// host.
	Nodes   []string `json:"nodes,omitempty"`
	Refused []string `json:"refused,omitempty"`
	// Servers counts the cell's servers on this host, Busy those with an operation in progress.
	Servers int `json:"servers"`
	Busy    int `json:"busy"`
	// ReportsWaiting counts reports that the cell has not accepted yet.
	ReportsWaiting int `json:"reports_waiting"`
	// Unknown are guests that drivers created and the cell does not know.
	Unknown []UnknownGuest `json:"unknown_guests,omitempty"`
	// Stuck are servers that are not in their desired state.
	Stuck []StuckServer `json:"stuck,omitempty"`
	// Spawns and Destroys count calls of drivers since the start.
	Spawns   Outcomes `json:"spawns"`
	Destroys Outcomes `json:"destroys"`
}

// UnknownGuest is a guest that a driver created and the cell does not know.
type UnknownGuest struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	Node string `json:"node"`
}

// StuckServer is a server that is not in its desired state.
type StuckServer struct {
	UUID    string    `json:"uuid"`
	Want    string    `json:"want"`
	Since   time.Time `json:"since"`
	Problem string    `json:"problem"`
}

// Outcomes counts outcomes of calls.
type Outcomes struct {
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
}
