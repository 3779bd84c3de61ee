// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Placement is the section [placement]: options of the bundled Placement
// server, with the names that OpenStack Placement gives them.
type Placement struct {
	Database                               string // A DSN; empty is placement.db below agent.state_dir.
	IncompleteConsumerProjectID            string
	IncompleteConsumerUserID               string
	MaxAllocationCandidates                int    // -1 is no bound but the server's own.
	AllocationCandidatesGenerationStrategy string // BreadthFirst or DepthFirst.
	RandomizeAllocationCandidates          bool
	Extensions                             []string      // Of placement/api, for all clients.
	StaleReads                             time.Duration // 0: no stale answers.
	Endpoint                               string        // What URLs begin with; empty is what the request says.
	HostCapacityFactor                     int           // 0: no bound.
	HostAdmissionWindow                    time.Duration // 0: hosts report what an operator has stated.
	HostClassRenames                       []string      // OLD=NEW each.
}

// Values of Placement.AllocationCandidatesGenerationStrategy.
const (
	BreadthFirst = "breadth-first"
	DepthFirst   = "depth-first"
)

// PlacementTLS is the section [placement_tls]: how the bundled Placement server
// is reached by TLS. It serves plain HTTP while CertFile is empty.
type PlacementTLS struct {
	CertFile     string
	KeyFile      string
	ClientCAFile string // Not empty: clients must show a certificate of these.
	HostCAFile   string // Not empty: a certificate of these says which host a client is.
}

// PlacementMetrics is the section [placement_metrics]: where else than on its
// admin socket the bundled Placement server shows its metrics.
type PlacementMetrics struct {
	Listen string // HOST:PORT, empty for nowhere; without HOST loopback.
}

// CORS is the section [cors] of the bundled Placement server.
type CORS struct {
	AllowedOrigin    []string
	AllowHeaders     []string
	AllowMethods     []string
	ExposeHeaders    []string
	AllowCredentials bool
	MaxAge           int // Seconds; zero is not to say any.
}

// Policy is the section [policy] of the bundled Placement server.
type Policy struct {
	Defaults string // PolicySecure, PolicyLegacy or PolicyOpen.
	File     string // rules that override them; empty means none
}

// Values of Policy.Defaults.
const (
	PolicySecure = "secure"
	PolicyLegacy = "legacy"
	PolicyOpen   = "open"
)
