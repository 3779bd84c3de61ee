// SPDX-License-Identifier: Apache-2.0

package observability_test

// placementCases are the cases of prometheus/placement.yaml.
var placementCases = map[string]alertCase{
	"PlacementDown": {
		series: map[string]string{`up{job="compute-agent-placement",instance="p1"}`: "1 0x20",
			`up{job="compute-agent-placement",instance="p2"}`: "1x20"},
		quiet: "2m", fires: "4m",
		want: map[string]string{`job="compute-agent-placement",instance="p1"`: "p1: Placement does not answer"},
	},
	"PlacementDatabaseNotWritable": {
		series: map[string]string{`placement_database_writable{instance="p1"}`: "1 0x20",
			`placement_database_writable{instance="p2"}`: "1x20"},
		quiet: "1m", fires: "3m",
		want: map[string]string{`instance="p1"`: "p1: the database of Placement takes no writes"},
	},
	"PlacementStaleReads": {
		series: map[string]string{`placement_stale_reads_total{instance="p1"}`: "0x5 0+4x20",
			`placement_stale_reads_total{instance="p2"}`: "7x20"},
		quiet: "5m", fires: "10m",
		want: map[string]string{`instance="p1"`: "p1: Placement answers from memory, because its database " +
			"cannot be reached"},
	},
	"PlacementCommitsFail": {
		series: map[string]string{
			`placement_commits_total{instance="p1",outcome="failed"}`:   "0x5 0+2x20",
			`placement_commits_total{instance="p1",outcome="unknown"}`:  "0x20",
			`placement_commits_total{instance="p2",outcome="conflict"}`: "0+9x20",
			`placement_commits_total{instance="p2",outcome="failed"}`:   "3x20",
		},
		quiet: "6m", fires: "15m",
		want: map[string]string{`instance="p1"`: "p1: 10 commits to the database failed within 5 minutes"},
	},
	"PlacementErrors": {
		series: map[string]string{
			`placement_http_requests_total{instance="p1",status="503"}`: "0+60x60",
			`placement_http_requests_total{instance="p1",status="200"}`: "0+600x60",
			`placement_http_requests_total{instance="p2",status="409"}`: "0+60x60",
			`placement_http_requests_total{instance="p2",status="500"}`: "0+1x60",
		},
		quiet: "9m", fires: "25m", want: map[string]string{`instance="p1"`: "p1: 1 requests a second fail with 5xx"},
	},
	"PlacementSlow": {
		series: map[string]string{
			`placement_http_request_duration_seconds_bucket{route="/allocation_candidates",` +
				`method="GET",le="2.5"}`: "0x60",
			`placement_http_request_duration_seconds_bucket{route="/allocation_candidates",` +
				`method="GET",le="10"}`: "0+1x60",
			`placement_http_request_duration_seconds_bucket{route="/allocation_candidates",` +
				`method="GET",le="+Inf"}`: "0+1x60",
			`placement_http_request_duration_seconds_bucket{route="/traits",method="GET",le="0.1"}`:  "0+1x60",
			`placement_http_request_duration_seconds_bucket{route="/traits",method="GET",le="+Inf"}`: "0+1x60",
		},
		quiet: "14m", fires: "30m",
		want: map[string]string{`route="/allocation_candidates",method="GET"`: "GET /allocation_candidates takes " +
			"9.625s for one in twenty"},
	},
	"PlacementWritesWait": {
		series: map[string]string{`placement_writes_waiting{instance="p1"}`: "0 200x20",
			`placement_writes_waiting{instance="p2"}`: "200x3 0 200x3 0 200x3 0 200x3 0 200x3 0"},
		quiet: "5m", fires: "7m", want: map[string]string{`instance="p1"`: "p1: 200 writes have waited for 5 minutes"},
	},
	"PlacementConflictsHigh": {
		series: map[string]string{
			`placement_conflicts_total{cluster="a",code="placement.concurrent_update"}`: "0+60x90",
			`placement_http_requests_total{cluster="a",method="PUT",status="409"}`:      "0+60x90",
			`placement_http_requests_total{cluster="a",method="PUT",status="204"}`:      "0+60x90",
			`placement_conflicts_total{cluster="b",code="placement.concurrent_update"}`: "0+1x90",
			`placement_http_requests_total{cluster="b",method="PUT",status="204"}`:      "0+60x90",
		},
		quiet: "29m", fires: "50m",
		want: map[string]string{`cluster="a"`: "1 writes a second are refused because of a changed generation"},
	},
	"PlacementNoCandidates": {
		series: map[string]string{
			`placement_candidates_returned_bucket{cluster="a",le="0"}`: "0+8x60",
			`placement_candidates_returned_count{cluster="a"}`:         "0+10x60",
			`placement_candidates_returned_bucket{cluster="b",le="0"}`: "0+2x60",
			`placement_candidates_returned_count{cluster="b"}`:         "0+10x60",
			`placement_candidates_returned_bucket{cluster="c",le="0"}`: "0x20 1x60",
			`placement_candidates_returned_count{cluster="c"}`:         "0x20 1x60",
		},
		quiet: "15m", fires: "30m",
		want: map[string]string{`cluster="a"`: "More than half of the searches find no allocation candidates"},
	},
	"PlacementLoadsWhole": {
		series: map[string]string{
			`placement_follows_total{instance="p1",read="whole"}`:   "0x10 5x60",
			`placement_follows_total{instance="p1",read="changes"}`: "0+5x60",
			`placement_follows_total{instance="p2",read="whole"}`:   "0x10 1x60",
		},
		quiet: "9m", fires: "60m",
		want: map[string]string{`instance="p1",read="whole"`: "p1: the whole state was loaded 5 times within an hour"},
	},
	"PlacementHostLimited": {
		series: map[string]string{`placement_host_writes_limited_total{instance="p1"}`: "0x10 30x20",
			`placement_host_writes_limited_total{instance="p2"}`: "30x30"},
		quiet: "10m", fires: "15m",
		want: map[string]string{`instance="p1"`: "p1: 30 writes of hosts were refused with 429"},
	},
	"PlacementHostOverCapacity": {
		series: map[string]string{`placement_host_over_capacity_total{instance="p1"}`: "0x10 30x20",
			`placement_host_over_capacity_total{instance="p2"}`: "30x30"},
		quiet: "10m", fires: "15m",
		want: map[string]string{`instance="p1"`: "p1: 30 writes of hosts were refused, which report more than they " +
			"are admitted to"},
	},
	"PlacementHostTwice": {
		series: map[string]string{`placement_hosts_of_several_agents{instance="p1"}`: "1x20",
			`placement_hosts_of_several_agents{instance="p2"}`: "0x20"},
		quiet: "0m", fires: "2m",
		want: map[string]string{`instance="p1"`: "p1: several agents report as one host, 1 times"},
	},
	"PlacementConsumersMissing": {
		series: map[string]string{`placement_consumers_missing{cluster="a",instance="p1"}`: "12x90",
			`placement_consumers_missing{cluster="b",instance="p2"}`: "0x90"},
		quiet: "59m", fires: "61m",
		want: map[string]string{`cluster="a"`: "12 consumers have allocations and no record"},
	},
}

// computeCases are the cases of prometheus/compute.yaml.
var computeCases = map[string]alertCase{
	"ComputeAPIDown": {
		series: map[string]string{`up{job="compute-agent-api",instance="api1"}`: "1 0x20",
			`up{job="compute-agent-api",instance="api2"}`: "1x20"},
		quiet: "2m", fires: "4m",
		want: map[string]string{`job="compute-agent-api",instance="api1"`: "api1: the compute API does not answer"},
	},
	"ComputeAPIDatabaseUnreadable": {
		series: map[string]string{`compute_agent_api_database_up{instance="api1"}`: "1 0x20",
			`compute_agent_api_database_up{instance="api2"}`: "1x20"},
		quiet: "1m", fires: "3m", want: map[string]string{`instance="api1"`: "api1: the API database cannot be read"},
	},
	"ComputeAPIDatabaseNotWritable": {
		series: map[string]string{`compute_agent_api_database_writable{instance="api1"}`: "1 0x20",
			`compute_agent_api_database_writable{instance="api2"}`: "1x20"},
		quiet: "1m", fires: "3m", want: map[string]string{`instance="api1"`: "api1: the API database takes no writes"},
	},
	"ComputeNoScheduler": {
		series: map[string]string{
			`compute_agent_api_scheduling{cluster="a",instance="api1"}`: "1 0x20",
			`compute_agent_api_scheduling{cluster="a",instance="api2"}`: "0x20",
			`compute_agent_api_scheduling{cluster="b",instance="api3"}`: "1x20",
			`compute_agent_api_scheduling{cluster="b",instance="api4"}`: "0x20",
		},
		quiet: "2m", fires: "4m", want: map[string]string{`cluster="a"`: "No compute API schedules"},
	},
	"ComputeBuildsStuck": {
		series: map[string]string{
			`compute_agent_api_build_requests{instance="api1"}`:                "0 4x40",
			`compute_agent_api_builds_total{instance="api1",outcome="placed"}`: "7x40",
			`compute_agent_api_scheduling{instance="api1"}`:                    "1x40",
			`compute_agent_api_build_requests{instance="api2"}`:                "0 4x40",
			`compute_agent_api_builds_total{instance="api2",outcome="placed"}`: "7x40",
			`compute_agent_api_scheduling{instance="api2"}`:                    "0x40",
			`compute_agent_api_build_requests{instance="api3"}`:                "0 4x40",
			`compute_agent_api_builds_total{instance="api3",outcome="placed"}`: "0+3x40",
			`compute_agent_api_scheduling{instance="api3"}`:                    "1x40",
		},
		quiet: "15m", fires: "16m",
		want: map[string]string{`instance="api1"`: "4 servers stay in BUILD, and none was placed for 15 minutes"},
	},
	"ComputeServersFindNoHost": {
		series: map[string]string{
			`compute_agent_api_builds_total{instance="api1",outcome="unplaced"}`: "0+1x40",
			`compute_agent_api_builds_total{instance="api2",outcome="unplaced"}`: "0x10 2x40",
			`compute_agent_api_builds_total{instance="api1",outcome="placed"}`:   "0+9x40",
		},
		quiet: "0m", fires: "20m",
		want: map[string]string{`instance="api1",outcome="unplaced"`: "15 servers found no host within 15 minutes"},
	},
	"ComputeClaimsStay": {
		series: map[string]string{
			`compute_agent_api_claims_open{instance="api1"}`:    "0 2x90",
			`compute_agent_api_build_requests{instance="api1"}`: "0x90",
			`compute_agent_api_claims_open{instance="api2"}`:    "0 2x90",
			`compute_agent_api_build_requests{instance="api2"}`: "1x90",
		},
		quiet: "60m", fires: "62m",
		want: map[string]string{`instance="api1"`: "No cell accounts for the allocations of 2 servers"},
	},
	"ComputeCorrectionsRepeat": {
		series: map[string]string{
			`compute_agent_api_corrections_total{instance="api1",kind="claim"}`:     "0+1x200",
			`compute_agent_api_corrections_total{instance="api1",kind="reclaimed"}`: "0+9x200",
			`compute_agent_api_corrections_total{instance="api1",kind="unfreed"}`:   "0x20 5x200",
		},
		quiet: "75m", fires: "150m",
		want: map[string]string{`kind="claim"`: "The reconciler completed 60 interrupted operations (claim) " +
			"within an hour"},
	},
	"ComputeAPISlow": {
		series: map[string]string{
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/servers",` +
				`method="GET",le="5"}`: "0x60",
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/servers",` +
				`method="GET",le="10"}`: "0+1x60",
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/servers",` +
				`method="GET",le="+Inf"}`: "0+1x60",
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/flavors",` +
				`method="GET",le="1"}`: "0+1x60",
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/flavors",` +
				`method="GET",le="+Inf"}`: "0+1x60",
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/os-keypairs",` +
				`method="POST",le="10"}`: "0+1x60",
			`compute_agent_api_http_request_duration_seconds_bucket{route="/v2.1/os-keypairs",` +
				`method="POST",le="+Inf"}`: "0+1x60",
		},
		quiet: "14m", fires: "30m",
		want: map[string]string{`route="/v2.1/servers"`: "GET /v2.1/servers takes 9.75s for one in twenty"},
	},
	"ComputeAPIErrors": {
		series: map[string]string{
			`compute_agent_api_http_requests_total{instance="api1",status="503"}`: "0+60x60",
			`compute_agent_api_http_requests_total{instance="api2",status="404"}`: "0+60x60",
		},
		quiet: "9m", fires: "25m",
		want: map[string]string{`instance="api1"`: "api1: 1 requests a second fail with 5xx"},
	},
	"ComputeHostIdentityTwice": {
		series: map[string]string{
			`compute_agent_api_enrolment_refusals_total{instance="api1",` +
				`route="/v1/renew",code="key_unknown"}`: "0x5 1x30",
			`compute_agent_api_enrolment_refusals_total{instance="api2",` +
				`route="/v1/confirm",code="key_unknown"}`: "0x30",
			`compute_agent_api_enrolment_refusals_total{instance="api2",` +
				`route="/v1/renew",code="evicted"}`: "0x5 1x30",
		},
		quiet: "5m", fires: "10m",
		want: map[string]string{`instance="api1"`: "api1: two machines have the identity of one host"},
	},
	"ComputeEnrolmentRefusals": {
		series: map[string]string{
			`compute_agent_api_enrolment_refusals_total{instance="api1",` +
				`route="/v1/enrol",code="token_unknown"}`: "0+2x30",
			`compute_agent_api_enrolment_refusals_total{instance="api1",` +
				`route="/v1/renew",code="evicted"}`: "0x10 1x30",
			`compute_agent_api_enrolment_refusals_total{instance="api1",` +
				`route="/v1/enrol",code="bad_request"}`: "0+9x30",
		},
		quiet: "0m", fires: "20m",
		want: map[string]string{`instance="api1",code="token_unknown"`: "api1: the enrolment service refused 30 " +
			"requests within 15 minutes: token_unknown"},
	},
	"ComputeCellDown": {
		series: map[string]string{`compute_agent_api_cell_up{instance="api1",cell="cell1"}`: "1 0x20",
			`compute_agent_api_cell_up{instance="api1",cell="cell2"}`: "1x20"},
		quiet: "2m", fires: "4m",
		want: map[string]string{`instance="api1",cell="cell1"`: "Cell cell1 is down for api1"},
	},
	"ComputeCellFlaps": {
		series: map[string]string{
			`compute_agent_api_cell_up{instance="api1",cell="cell1"}`: "1 0 1 0 1 0 1 1x30",
			`compute_agent_api_cell_up{instance="api1",cell="cell2"}`: "1 0x5 1x30",
		},
		quiet: "4m", fires: "10m",
		want: map[string]string{`instance="api1",cell="cell1"`: "Cell cell1 went up and down 6 times " +
			"within 30 minutes"},
	},
	"ComputeCellFails": {
		series: map[string]string{
			`compute_agent_api_cell_requests_total{instance="api1",cell="cell1",outcome="answered"}`:  "0+8x60",
			`compute_agent_api_cell_requests_total{instance="api1",cell="cell1",outcome="timed_out"}`: "0+1x60",
			`compute_agent_api_cell_requests_total{instance="api1",cell="cell2",outcome="answered"}`:  "0+99x60",
			`compute_agent_api_cell_requests_total{instance="api1",cell="cell2",outcome="failed"}`:    "0+1x60",
		},
		quiet: "14m", fires: "30m",
		want: map[string]string{`instance="api1",cell="cell1"`: "Cell cell1 fails more than one in twenty " +
			"requests of api1"},
	},
	"ComputeCellDatabaseSuspect": {
		series: map[string]string{
			`compute_agent_api_cell_database_suspect{instance="api1",cell="cell1"}`: "0 1x20",
			`compute_agent_api_cell_database_suspect{instance="api2",cell="cell1"}`: "0 1x20",
			`compute_agent_api_cell_database_suspect{instance="api1",cell="cell2"}`: "0x20",
		},
		quiet: "0m", fires: "2m",
		want: map[string]string{`cell="cell1"`: "Cell cell1 has a different database than before, or an " +
			"older copy of it"},
	},
	"ComputeCellDatabaseFails": {
		series: map[string]string{
			`compute_agent_cell_database_write_failures_total{instance="cell1"}`: "0x5 3x20",
			`compute_agent_cell_database_up{instance="cell1"}`:                   "1x20",
			`compute_agent_cell_database_writable{instance="cell1"}`:             "1x20",
			`compute_agent_cell_database_write_failures_total{instance="cell2"}`: "0x20",
			`compute_agent_cell_database_up{instance="cell2"}`:                   "1 1 1 1 1 1 0x20",
			`compute_agent_cell_database_writable{instance="cell2"}`:             "1x20",
			`compute_agent_cell_database_write_failures_total{instance="cell3"}`: "0x20",
			`compute_agent_cell_database_up{instance="cell3"}`:                   "1x20",
			`compute_agent_cell_database_writable{instance="cell3"}`:             "1 1 1 1 1 1 0x20",
			`compute_agent_cell_database_write_failures_total{instance="cell4"}`: "9x20",
			`compute_agent_cell_database_up{instance="cell4"}`:                   "1x20",
			`compute_agent_cell_database_writable{instance="cell4"}`:             "1x20",
		},
		quiet: "5m", fires: "7m", want: map[string]string{
			`instance="cell1"`: "cell1: the cell's database cannot be used",
			`instance="cell2"`: "cell2: the cell's database cannot be used",
			`instance="cell3"`: "cell3: the cell's database cannot be used",
		},
	},
	"ComputeCellNotScraped": {
		series: map[string]string{`up{job="compute-agent-cell",instance="cell1"}`: "0x20",
			`up{job="compute-agent-cell",instance="cell2"}`: "1x20"},
		quiet: "9m", fires: "11m",
		want: map[string]string{`job="compute-agent-cell",instance="cell1"`: "cell1: the metrics of a cell " +
			"cannot be read"},
	},
	"ComputeCellHostsDown": {
		series: map[string]string{
			`compute_agent_cell_hosts{instance="cell1",state="down",disabled="false"}`: "2x20",
			`compute_agent_cell_hosts{instance="cell1",state="up",disabled="false"}`:   "8x20",
			`compute_agent_cell_hosts{instance="cell2",state="down",disabled="false"}`: "1x20",
			`compute_agent_cell_hosts{instance="cell2",state="up",disabled="false"}`:   "9x20",
			`compute_agent_cell_hosts{instance="cell3",state="down",disabled="true"}`:  "5x20",
			`compute_agent_cell_hosts{instance="cell3",state="down",disabled="false"}`: "0x20",
		},
		quiet: "4m", fires: "6m", want: map[string]string{`instance="cell1"`: "cell1: 2 of the cell's hosts are down"},
	},
	"ComputeCellHostTwice": {
		series: map[string]string{`compute_agent_cell_hosts_of_several_agents{instance="cell1"}`: "1x20",
			`compute_agent_cell_hosts_of_several_agents{instance="cell2"}`: "0x20"},
		quiet: "0m", fires: "2m",
		want: map[string]string{`instance="cell1"`: "cell1: several agents report as one host, 1 times"},
	},
	"ComputeCellNodesContested": {
		series: map[string]string{`compute_agent_cell_nodes{instance="cell1",state="contested"}`: "1x20",
			`compute_agent_cell_nodes{instance="cell2",state="contested"}`: "0x20",
			`compute_agent_cell_nodes{instance="cell2",state="present"}`:   "9x20"},
		quiet: "4m", fires: "6m",
		want: map[string]string{`instance="cell1",state="contested"`: "cell1: 1 nodes are reported by several hosts"},
	},
	"ComputeCellNodesRefused": {
		series: map[string]string{
			`compute_agent_cell_nodes_refused_total{instance="cell1",reason="not-in-certificate"}`: "0+1x60",
			`compute_agent_cell_nodes_refused_total{instance="cell1",reason="another-host"}`:       "0+1x60",
			`compute_agent_cell_nodes_refused_total{instance="cell2",reason="too-many"}`:           "4x60",
		},
		quiet: "14m", fires: "20m",
		want: map[string]string{`instance="cell1",reason="not-in-certificate"`: "cell1: a host reports nodes that " +
			"the cell refuses: not-in-certificate"},
	},
	"ComputeCellReportsRefused": {
		series: map[string]string{
			`compute_agent_cell_reports_total{instance="cell1",kind="gone",outcome="refused"}`: "0+20x60",
			`compute_agent_cell_reports_total{instance="cell2",kind="gone",outcome="refused"}`: "0+1x60",
			`compute_agent_cell_reports_total{instance="cell2",kind="gone",outcome="taken"}`:   "0+60x60",
		},
		quiet: "14m", fires: "30m",
		want: map[string]string{`instance="cell1"`: "cell1: reports of agents about servers are refused"},
	},
	"ComputeCellHostLimited": {
		series: map[string]string{`compute_agent_cell_host_requests_limited_total{instance="cell1"}`: "0x10 30x20",
			`compute_agent_cell_host_requests_limited_total{instance="cell2"}`: "30x30"},
		quiet: "10m", fires: "15m",
		want: map[string]string{`instance="cell1"`: "cell1: 30 requests of hosts were refused with 429"},
	},
}
