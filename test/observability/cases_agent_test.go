// SPDX-License-Identifier: Apache-2.0

package observability_test

// alertCase is one case of an alert.
type alertCase struct {
	// every is the time between two samples of a series, and between two evaluations; "" is 1m.
	every  string
	series map[string]string
	// quiet is a time at which the alert does not fire yet, fires one at which it does.
	quiet, fires string
	// want are the summaries of what fires, by its labels except for severity: all that does. The
	// other series are those for which it must not.
	want map[string]string
}

// agentCases are the cases of prometheus/agent.yaml.
var agentCases = map[string]alertCase{
	"ComputeAgentDown": {
		series: map[string]string{
			`up{job="compute-agent",instance="cn1"}`: "1 0x20", `up{job="compute-agent",instance="cn2"}`: "1x20",
			`up{job="node",instance="cn3"}`:          "0x20",
			`up{job="compute-agent",instance="cn4"}`: "1 0x3 1x20",
		},
		quiet: "5m", fires: "7m",
		want: map[string]string{`job="compute-agent",instance="cn1"`: "cn1: the agent does not answer"},
	},
	"ComputeAgentsDown": {
		series: map[string]string{
			`up{job="compute-agent",instance="a1",cluster="a"}`: "0x20",
			`up{job="compute-agent",instance="a2",cluster="a"}`: "1x20",
			`up{job="compute-agent",instance="b1",cluster="b"}`: "1x20",
			`up{job="compute-agent",instance="b2",cluster="b"}`: "1x20",
		},
		quiet: "4m", fires: "6m",
		want: map[string]string{`cluster="a"`: "More than a tenth of the agents do not answer: 1"},
	},
	"ComputeAgentRestarts": {
		series: map[string]string{
			`compute_agent_start_time_seconds{instance="cn1"}`: "100x10 200x10 300x10 400x10 500x40",
			`compute_agent_start_time_seconds{instance="cn2"}`: "100x10 200x80",
		},
		quiet: "35m", fires: "50m",
		want: map[string]string{`instance="cn1"`: "cn1: the agent was started 4 times within an hour"},
	},
	"ComputeAgentCriticalCondition": {
		series: map[string]string{
			`compute_agent_conditions{instance="cn1",code="credentials-refused",severity="critical"}`:  "0 2x10",
			`compute_agent_conditions{instance="cn1",code="sync-old",severity="critical"}`:             "0x10",
			`compute_agent_conditions{instance="cn1",code="placement-unreachable",severity="warning"}`: "1x10",
		},
		quiet: "1m", fires: "3m",
		want: map[string]string{`instance="cn1",code="credentials-refused"`: "cn1: credentials-refused"},
	},
	"ComputeAgentWarningCondition": {
		series: map[string]string{
			`compute_agent_conditions{instance="cn1",code="placement-unreachable",severity="warning"}`: "0 1x30",
			`compute_agent_conditions{instance="cn2",code="placement-unreachable",severity="warning"}`: "0 1x8 0x30",
			`compute_agent_conditions{instance="cn1",code="node-disabled",severity="info"}`:            "1x30",
		},
		quiet: "15m", fires: "17m",
		want: map[string]string{`instance="cn1",code="placement-unreachable"`: "cn1: placement-unreachable"},
	},
	"ComputeAgentsCannotReachPlacement": {
		series: map[string]string{
			`compute_agent_conditions{instance="a1",cluster="a",code="placement-unreachable",` +
				`severity="warning"}`: "1x20",
			`compute_agent_conditions{instance="a2",cluster="a",code="placement-unreachable",` +
				`severity="warning"}`: "1x20",
			`compute_agent_conditions{instance="b1",cluster="b",code="placement-unreachable",` +
				`severity="warning"}`: "0x20",
			`compute_agent_build_info{instance="a1",cluster="a"}`: "1x20",
			`compute_agent_build_info{instance="a2",cluster="a"}`: "1x20",
			`compute_agent_build_info{instance="b1",cluster="b"}`: "1x20",
		},
		quiet: "4m", fires: "6m", want: map[string]string{`cluster="a"`: "2 agents cannot reach Placement"},
	},
	"ComputeAgentNodesDisabled": {
		series: map[string]string{
			`compute_agent_nodes_disabled{instance="a1",cluster="a",driver="libvirt"}`:          "1x60",
			`compute_agent_nodes_disabled{instance="b1",cluster="b",driver="libvirt"}`:          "1x60",
			`compute_agent_nodes{instance="a1",cluster="a",driver="libvirt",state="reporting"}`: "5x60",
			`compute_agent_nodes{instance="b1",cluster="b",driver="libvirt",state="reporting"}`: "10x60",
		},
		quiet: "29m", fires: "31m", want: map[string]string{`cluster="a"`: "1 nodes are disabled"},
	},
	"ComputeAgentWritesContended": {
		series: map[string]string{
			`compute_agent_conflicts_total{instance="cn1",driver="libvirt",node="cn1"}`: "0+6x90",
			`compute_agent_conflicts_total{instance="cn2",driver="libvirt",node="cn2"}`: "0+1x90",
		},
		quiet: "20m", fires: "60m",
		want: map[string]string{`instance="cn1",driver="libvirt",node="cn1"`: "cn1: another client keeps writing to " +
			"its resource providers"},
	},
	"ComputeAgentDriftRepeats": {
		series: map[string]string{
			`compute_agent_drift_total{instance="cn1",driver="libvirt",node="cn1"}`: "0+1x150",
			`compute_agent_drift_total{instance="cn2",driver="libvirt",node="cn2"}`: "0 9x150",
		},
		quiet: "60m", fires: "90m",
		want: map[string]string{`instance="cn1",driver="libvirt",node="cn1"`: "cn1: another client keeps changing " +
			"what the agent writes"},
	},
	"ComputeAgentPassesSlow": {
		series: map[string]string{
			`compute_agent_pass_duration_seconds_bucket{instance="cn1",driver="libvirt",le="60"}`:   "0x60",
			`compute_agent_pass_duration_seconds_bucket{instance="cn1",driver="libvirt",le="120"}`:  "0+1x60",
			`compute_agent_pass_duration_seconds_bucket{instance="cn1",driver="libvirt",le="+Inf"}`: "0+1x60",
			`compute_agent_pass_duration_seconds_bucket{instance="cn2",driver="libvirt",le="1"}`:    "0+1x60",
			`compute_agent_pass_duration_seconds_bucket{instance="cn2",driver="libvirt",le="+Inf"}`: "0+1x60",
		},
		quiet: "29m", fires: "45m",
		want: map[string]string{`instance="cn1",driver="libvirt"`: "cn1: passes of driver libvirt take 1m 57s"},
	},
	"ComputeAgentDriverRestarts": {
		series: map[string]string{
			`compute_agent_plugin_restarts_total{instance="cn1",driver="libvirt"}`: "0x10 1x10 2x10 3x10 4x80",
			`compute_agent_plugin_restarts_total{instance="cn2",driver="libvirt"}`: "0x10 1x80",
		},
		quiet: "30m", fires: "60m",
		want: map[string]string{`instance="cn1",driver="libvirt"`: "cn1: driver libvirt was restarted 4 times " +
			"within an hour"},
	},
	"ComputeAgentDriverGrows": {
		every: "10m",
		series: map[string]string{
			`compute_agent_plugin_resident_memory_bytes{instance="cn1",driver="libvirt"}`: "104857600x150 " +
				"536870912x200",
			`compute_agent_plugin_resident_memory_bytes{instance="cn2",driver="libvirt"}`: "20971520x150 62914560x200",
			`compute_agent_plugin_resident_memory_bytes{instance="cn3",driver="libvirt"}`: "536870912x350",
		},
		quiet: "25h", fires: "50h",
		want: map[string]string{`instance="cn1",driver="libvirt"`: "cn1: driver libvirt uses 512MiB of memory, " +
			"twice as much as two days ago"},
	},
	"ComputeAgentReportsWaiting": {
		series: map[string]string{
			`compute_agent_cell_reports_waiting{instance="cn1"}`: "0 3x30",
			`compute_agent_cell_up{instance="cn1"}`:              "1x30",
			`compute_agent_cell_reports_waiting{instance="cn2"}`: "0 3x30",
			`compute_agent_cell_up{instance="cn2"}`:              "0x30",
			`compute_agent_cell_reports_waiting{instance="cn3"}`: "3x10 0 3x20",
			`compute_agent_cell_up{instance="cn3"}`:              "1x30",
		},
		quiet: "15m", fires: "16m",
		want: map[string]string{`instance="cn1"`: "cn1: the cell has not accepted 3 reports about servers " +
			"for 15 minutes"},
	},
	"ComputeAgentAuditRecordsLost": {
		series: map[string]string{
			`compute_agent_audit_records_total{instance="p1",destination="file",outcome="lost"}`:    "0x10 15x20",
			`compute_agent_audit_records_total{instance="p1",destination="journal",outcome="lost"}`: "0x30",
			`compute_agent_audit_records_total{instance="p1",destination="file",outcome="written"}`: "0+5x30",
		},
		quiet: "10m", fires: "15m",
		want: map[string]string{`instance="p1",destination="file",outcome="lost"`: "p1: 15 records of the audit log " +
			"were lost in file"},
	},
	"ComputeAgentDenyListOld": {
		series: map[string]string{`compute_agent_deny_list_age_seconds{instance="p1"}`: "0+60x30",
			`compute_agent_deny_list_age_seconds{instance="p2"}`: "15x30"},
		quiet: "10m", fires: "12m",
		want: map[string]string{`instance="p1"`: "p1: the list of refused hosts was fetched 12m 0s ago"},
	},
	"ComputeAgentDenyListUnusable": {
		series: map[string]string{
			`compute_agent_deny_list_usable{instance="p1"}`: "1x5 0x30",
			`compute_agent_deny_list_usable{instance="p2"}`: "1x30",
			`compute_agent_deny_list_usable{instance="p3"}`: "0 1x30", // until it was fetched
		},
		quiet: "6m", fires: "10m",
		want: map[string]string{`instance="p1"`: "p1: all hosts are refused, because the list of refused hosts " +
			"cannot be used"},
	},
	"ComputeAgentServiceCertificateExpires": {
		series: map[string]string{
			// a week and an hour after 0
			`compute_agent_service_certificate_expiry_time_seconds{instance="p1",file="/p1.pem"}`: "608400x200",
			`compute_agent_service_certificate_expiry_time_seconds{instance="p2",file="/p2.pem"}`: "7776000x200",
			// renewed
			`compute_agent_service_certificate_expiry_time_seconds{instance="p3",file="/p3.pem"}`: "7776000x61 " +
				"15552000x200",
		},
		quiet: "65m", fires: "80m",
		want: map[string]string{`instance="p1",file="/p1.pem"`: "p1: the certificate /p1.pem expires in 6d 23h 40m 0s"},
	},
	"ComputeAgentDescriptorsRunOut": {
		series: map[string]string{
			`process_open_fds{job="compute-agent-api",instance="api"}`: "900x30",
			`process_max_fds{job="compute-agent-api",instance="api"}`:  "1024x30",
			`process_open_fds{job="compute-agent",instance="cn1"}`:     "90x30",
			`process_max_fds{job="compute-agent",instance="cn1"}`:      "1024x30",
			`process_open_fds{job="other",instance="x"}`:               "900x30",
			`process_max_fds{job="other",instance="x"}`:                "1024x30",
		},
		quiet: "14m", fires: "16m",
		want: map[string]string{`job="compute-agent-api",instance="api"`: "api: compute-agent-api has 900 file " +
			"descriptors open, more than 80 % of its limit"},
	},
}
