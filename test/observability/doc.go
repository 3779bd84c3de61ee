// SPDX-License-Identifier: Apache-2.0

// Package observability tests what an operator loads into Prometheus and Grafana, the directory
// observability of the repository:
//
//	prometheus/   recording and alerting rules: agent.yaml, placement.yaml, compute.yaml
//	grafana/      dashboards: agents.json, placement.json, compute.json
//
// Each alert links to its section of docs/runbooks. The tests keep all of it in line with the code:
//
//	pages of /metrics, as the tests of the services recorded them ──▶ docs/metrics.md
//	docs/metrics.md ──▶ metrics, labels and values in rules, dashboards and docs
//	internal/health, alerts ──▶ sections of docs/runbooks
//	promtool ──▶ syntax of rules and dashboards' queries; when each alert fires, and when not
//	a real Prometheus that scrapes all services ──▶ rules without errors, series that are used
//	Grafana's schema ──▶ fields of dashboards
//
// To update docs/metrics.md after a change of a metric:
//
//	go test ./placement ./cells ./internal/agent/telemetry -run TestExposition -update
//	go test ./test/observability -run TestReference -update
package observability
