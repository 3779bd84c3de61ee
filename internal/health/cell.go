// SPDX-License-Identifier: Apache-2.0

package health

import "time"

// Cell is the cell that has this host, as the agent sees it.
type Cell struct {
	URL string `json:"url"`
	// Up: the cell took the last heartbeat. Since is when that began, or ended; zero: none was tried yet.
	Up    bool      `json:"up"`
	Since time.Time `json:"since,omitzero"`
	// Error is why it did not. Denied: it refuses who the agent says it is.
	Error  string `json:"error,omitempty"`
	Denied bool   `json:"denied,omitempty"`
	// Service is the uuid of this host's service there.
	Service string `json:"service,omitempty"`
	// Nodes are the names of those that it is told of, Refused the uuids of those that it does not take, because another host has them.
	Nodes   []string `json:"nodes,omitempty"`
	Refused []string `json:"refused,omitempty"`
	// Servers are those that it has on this host, Busy those of them that are at work on.
	Servers int `json:"servers"`
	Busy    int `json:"busy"`
	// ReportsWaiting is how many reports it has not taken yet.
	ReportsWaiting int `json:"reports_waiting"`
	// Unknown are guests that drivers made and no server is about.
	Unknown []UnknownGuest `json:"unknown_guests,omitempty"`
	// Stuck are servers that are not as the cell wants them.
	Stuck []StuckServer `json:"stuck,omitempty"`
	// Spawns and Destroys count calls of drivers since the start.
	Spawns   Outcomes `json:"spawns"`
	Destroys Outcomes `json:"destroys"`
}

// UnknownGuest is a guest that a driver made and no server is about.
type UnknownGuest struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	Node string `json:"node"`
}

// StuckServer is a server that is not as the cell wants it, and why.
type StuckServer struct {
	UUID    string    `json:"uuid"`
	Want    string    `json:"want"`
	Since   time.Time `json:"since"`
	Problem string    `json:"problem"`
}

// Outcomes counts by how something ended.
type Outcomes struct {
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
}
