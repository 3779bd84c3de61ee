// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

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

// uuidZero is what Placement records as project and user of consumers that
// were made by microversions that did not carry them.
const uuidZero = "00000000-0000-0000-0000-000000000000"

func (p *Placement) section() section {
	return section{"placement", []Service{PlacementService},
		"The bundled Placement server, with Placement's own option names.",
		[]key{
			{"database", restart, "The database. Several servers can share one on MariaDB, MySQL or PostgreSQL. " +
				"Empty means placement.db in agent.state_dir.", databaseText(&p.Database)},
			{"stale_reads", restart, "How old an answer to a GET may be while the database cannot be reached. It has " +
				"the header Placement-Stale-Seconds then. Otherwise, and for\nall writes, the answer is 503. It has " +
				"no effect on SQLite.", span(&p.StaleReads, time.Second, time.Hour, "no stale answers")},
			{"endpoint", restart, "Base URL of the URLs in responses, for a server behind a proxy that has another " +
				"address or path, or ends TLS. Empty means the\nURL of the request.", urlText(&p.Endpoint)},
			{"incomplete_consumer_project_id", restart,
				"Project of consumers made by microversions below 1.8, which carry none.",
				text{at: &p.IncompleteConsumerProjectID, def: uuidZero, words: idWords, check: consumerID}},
			{"incomplete_consumer_user_id", restart,
				"User of consumers made by microversions below 1.8, which carry none.",
				text{at: &p.IncompleteConsumerUserID, def: uuidZero, words: idWords, check: consumerID}},
			{"max_allocation_candidates", restart, "Maximum number of allocation candidates for one request, " +
				"whatever its limit; -1 means\nthe server's own maximum.",
				number{at: &p.MaxAllocationCandidates, def: 100_000, min: -1, max: math.MaxInt32}},
			{"allocation_candidates_generation_strategy", restart,
				"Which candidates come first if there are more than the limit: \"breadth-first\" alternates\nbetween " +
					"root providers, \"depth-first\" returns all of one root before those of the next.",
				choice{&p.AllocationCandidatesGenerationStrategy, BreadthFirst, []string{BreadthFirst, DepthFirst}}},
			{"randomize_allocation_candidates", restart,
				"Whether candidates are in random order, and a random selection if there are more than\nthe limit.",
				toggle{&p.RandomizeAllocationCandidates, false}},
			{"extensions", restart, "Extensions of GET /allocation_candidates for all clients, from microversion " +
				"1.25 on. Other extensions must be requested; see docs/placement-extensions.md.",
				list{at: &p.Extensions, words: "an array of " + quotedSeries(wire.Extensions[:], "and"),
					check: placementExtension}},
			{"host_capacity_factor", restart, "How many times as much of each resource class a host may report, with " +
				"its own credential, as it reported when it came or as\nan operator has stated (cells manage " +
				"admit-host); 0: any amount of any class, and any traits. See docs/identity.md.",
				number{at: &p.HostCapacityFactor, def: 2, max: 1000}},
			{"host_admission_window", restart, "How long after its first report all that a host reports is admitted.",
				duration{at: &p.HostAdmissionWindow, def: time.Hour, min: time.Minute, max: 30 * 24 * time.Hour,
					zero: "a host reports what an operator has stated"}},
			{"host_class_renames", restart, "Resource classes of hosts that have another name now, as \"VCPU=PCPU\": " +
				"with its own credential, a host may give allocations the\nother name in a reshape, in either " +
				"direction, and amounts of both count as those of one. See docs/identity.md.",
				list{at: &p.HostClassRenames, words: classRenameWords, check: classRename}},
		}}
}

// PlacementTLS is the section [placement_tls]: how the bundled Placement server
// is reached by TLS. It serves plain HTTP while CertFile is empty.
type PlacementTLS struct {
	CertFile     string
	KeyFile      string
	ClientCAFile string // Not empty: clients must show a certificate of these.
	HostCAFile   string // Not empty: a certificate of these says which host a client is.
}

func (p *PlacementTLS) section() section {
	return section{"placement_tls", []Service{PlacementService},
		"TLS of the bundled Placement server. It serves plain HTTP while cert_file is empty. Files that\nchange are " +
			"read again while it runs.",
		[]key{
			{"cert_file", restart, "File of the server's certificate and those between it and its CA, in PEM, or the " +
				"name\nof a credential.", secretText(&p.CertFile)},
			keyFile("", &p.KeyFile),
			{"client_ca_file", restart, "File of the PEM certificates of CAs, or the name of a credential. If it is " +
				"set, clients must present a certificate of one of them, in addition to --auth.",
				secretText(&p.ClientCAFile)},
			{"host_ca_file", restart, "File of the PEM certificates of the CAs of hosts, or the name of a " +
				"credential. If it is set, a client without a token that presents a certificate of one of them is " +
				"the host that the certificate names, whatever --auth is; see docs/identity.md.",
				secretText(&p.HostCAFile)},
		}}
}

// PlacementMetrics is the section [placement_metrics]: where else than on its
// admin socket the bundled Placement server shows its metrics.
type PlacementMetrics struct {
	Listen string // HOST:PORT, empty for nowhere; without HOST loopback.
}

func (p *PlacementMetrics) section() section {
	return section{"placement_metrics", []Service{PlacementService},
		"Metrics of the bundled Placement server for Prometheus. They are always on its admin socket.",
		[]key{
			{"listen", restart, "Address to serve /metrics, /healthz and /readyz on in addition, by plain HTTP " +
				"without authentication. The default host is 127.0.0.1. Empty\nmeans none.", listenText(&p.Listen)},
		}}
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

// Headers that Placement lets pages of other origins send and read by default.
var (
	corsAllowHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Identity-Status", "X-Roles",
		"X-Service-Catalog", "X-User-Id", "X-Tenant-Id", "OpenStack-API-Version"}
	corsExposeHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Subject-Token",
		"X-Service-Token", "OpenStack-API-Version"}
)

func (c *CORS) section() section {
	return section{"cors", []Service{PlacementService},
		"Cross-origin requests to the bundled Placement server. Off while allowed_origin is empty.",
		[]key{
			{"allowed_origin", restart, "Origins whose pages may call Placement.",
				list{at: &c.AllowedOrigin, words: "an array of origins such as [\"https://dashboard.example\"]",
					check: origin}},
			{"allow_headers", restart, "Request headers that such pages may send.",
				list{at: &c.AllowHeaders, def: corsAllowHeaders,
					words: "an array of header names such as [\"X-Auth-Token\"]", check: headerName}},
			{"allow_methods", restart, "Methods that such pages may use.",
				list{at: &c.AllowMethods, def: []string{"GET", "PUT", "POST", "DELETE", "PATCH"},
					words: "an array of methods such as [\"GET\"], at least one", check: methodName, required: true}},
			{"expose_headers", restart, "Response headers that such pages may read.",
				list{at: &c.ExposeHeaders, def: corsExposeHeaders,
					words: "an array of header names such as [\"X-Openstack-Request-Id\"]", check: headerName}},
			{"allow_credentials", restart, "Whether such pages may send cookies and client certificates.",
				toggle{&c.AllowCredentials, true}},
			{"max_age", restart, "How many seconds a browser may cache the permission; 0 omits the header.",
				number{at: &c.MaxAge, def: 3600, max: 86400}},
		}}
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

func (p *Policy) section() section {
	return section{"policy", []Service{PlacementService}, "Access policy of the bundled Placement server.", []key{
		{"defaults", restart, "The set of rules: \"secure\" (Placement's own: admin and service, reshaping for " +
			"service\nonly, usages for readers of the project too), \"legacy\" (the same, and admin may reshape) or " +
			"\"open\"\n(all users).",
			choice{&p.Defaults, PolicySecure, []string{PolicySecure, PolicyLegacy, PolicyOpen}}},
		{"file", restart, "File of rules that override them, like Placement's policy.yaml. A changed file is\n" +
			"reloaded. Empty means none.", pathText(&p.File)},
	}}
}
