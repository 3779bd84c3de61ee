// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

func severityStyle(s health.Severity) style {
	switch s {
	case health.Critical:
		return fatal
	case health.Warning:
		return notice
	}
	return bold
}

// stateStyle returns the style in which the agent's state is printed.
func stateStyle(s health.Status) style {
	switch {
	case s.State == resourcetracker.Reporting:
		return good
	case health.Worst(s.Conditions) == health.Critical:
		return bad
	}
	return notice
}

func nodeStyle(s resourcetracker.State) style {
	switch s {
	case resourcetracker.Reporting:
		return good
	case resourcetracker.Degraded:
		return bad
	}
	return notice
}

func pluginStyle(s pluginhost.State) style {
	switch s {
	case pluginhost.Healthy:
		return good
	case pluginhost.Backoff, pluginhost.Quarantined,
		pluginhost.NotInstalled, pluginhost.Incompatible, pluginhost.Refused:
		return bad
	case pluginhost.Disabled, pluginhost.Stopped:
		return plain
	}
	return notice
}

// changeStyle returns the style of a write by its verb, as in "create resource provider cn1".
func changeStyle(text string) style {
	verb, _, _ := strings.Cut(text, " ")
	switch verb {
	case "create":
		return good
	case "delete":
		return bad
	case "reshape":
		return notice
	}
	return plain
}

// levelStyle returns the style of a log line by its level.
func levelStyle(level string) style {
	switch level {
	case "error", "fatal", "panic":
		return bad
	case "warn", "warning":
		return notice
	}
	return plain
}
