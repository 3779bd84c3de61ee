// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Severity is how bad a result is.
type Severity string

// The severities, from best to worst. Skipped means that the check could not or did not need to
// run.
const (
	OK      Severity = "ok"
	Skipped Severity = "skipped"
	Warning Severity = "warning"
	Error   Severity = "error"
)

func (s Severity) rank() int {
	switch s {
	case Error:
		return 3
	case Warning:
		return 2
	case Skipped:
		return 1
	default:
		return 0
	}
}

// Check is one check of the host.
type Check struct {
	Name  string // stable, for programs: "placement"
	Title string // for people: "Placement"

	run func(ctx context.Context, e *Env) []Result
}

// Result is the result of a check. A check may have several, such as one per plugin, whose names
// then begin with the check's name.
type Result struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`          // the state
	Why      string   `json:"why,omitempty"`  // why it matters; warnings and errors only
	Fix      string   `json:"mend,omitempty"` // the command that fixes it; warnings and errors only
}

// Checks returns all checks, in the order of their results: causes before effects.
func Checks() []Check {
	return []Check{
		{"config", "Configuration", checkConfig},
		{"drivers", "Drivers", checkDrivers},
		{"state-dir", "State directory", checkStateDir},
		{"runtime-dir", "Runtime directory", checkRuntimeDir},
		{"disk", "Disk space", checkDisk},
		{"compute-id", "Identity", checkComputeID},
		{"plugin-dir", "Plugin directory", checkPluginDir},
		{"plugin", "Plugins", checkPlugins},
		{"sandbox", "Sandbox of drivers", checkSandbox},
		{"libvirt", "libvirt", checkLibvirt},
		{"libvirt-group", "write access to libvirt", checkLibvirtGroup},
		{"kvm", "KVM", checkKVM},
		{"cpu-power", "Power of dedicated CPUs", checkCPUPower},
		{"driver", "Drivers on this machine", checkDriverWarnings},
		{"placement", "Placement", checkPlacement},
		{"service", "Services", checkServices},
		{"cells", "Cells", checkCells},
		{"files", "Files of services", checkFiles},
		{"certificates", "Certificates", checkCertificates},
		{"deny-list", "Deny lists", checkDenyLists},
		{"database", "Databases", checkDatabases},
		{"clock", "Clock", checkClock},
		{"open-files", "Open files", checkOpenFiles},
		{"agent", "Agent", checkAgent},
		{"one-agent", "One agent only", checkOneAgent},
	}
}

// ofServices are the checks of a machine without an agent.
var ofServices = []string{"service", "cells", "files", "certificates", "deny-list", "database", "clock"}

// DefaultTimeout limits all checks if Env.Timeout is 0.
const DefaultTimeout = 10 * time.Second

// Run runs all checks concurrently and returns their results in the order of Checks, at the latest
// after Env.Timeout. A check that hangs, for example on a network file system, is reported as an
// error and abandoned; its goroutine ends when the system call does.
func Run(ctx context.Context, env Env) []Result { return run(ctx, env, Checks()) }

func run(ctx context.Context, env Env, checks []Check) []Result {
	if env.Timeout <= 0 {
		env.Timeout = DefaultTimeout
	}
	for _, s := range env.Services {
		if s.Name == agentUnits[0] && s.User == env.Agent.Name {
			env.Agent.ReadsAll = s.ReadsAll
		}
	}
	if env.withoutAgent() {
		checks = slices.DeleteFunc(slices.Clone(checks),
			func(c Check) bool { return !slices.Contains(ofServices, c.Name) })
	}
	ctx, cancel := context.WithTimeout(ctx, env.Timeout)
	defer cancel()
	env.probe = sync.OnceValue(func() probe { return probePlacement(ctx, &env) })

	done := make([]chan []Result, len(checks))
	for i, c := range checks {
		done[i] = make(chan []Result, 1)
		go func() { done[i] <- c.run(ctx, &env) }()
	}
	var out []Result
	for i, c := range checks {
		out = append(out, await(ctx, env, c, done[i])...)
	}
	return out
}

// grace is the time after the deadline in which a check may report what timed out.
var grace = 250 * time.Millisecond // a test has more

func await(ctx context.Context, env Env, c Check, done <-chan []Result) []Result {
	select {
	case results := <-done:
		return c.named(results)
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case results := <-done:
		return c.named(results)
	case <-late.C:
		return c.named(fail(fmt.Sprintf("the check did not finish within %v", env.Timeout),
			"Something that the agent also uses does not answer; the agent may hang too.",
			"dmesg --level=err,warn | tail -20"))
	}
}

// named sets the default name and title of results.
func (c Check) named(results []Result) []Result {
	for i := range results {
		if results[i].Name == "" {
			results[i].Name, results[i].Title = c.Name, c.Title
		}
	}
	return results
}

// Worst returns the worst severity, OK without results.
func Worst(results []Result) Severity {
	worst := OK
	for _, r := range results {
		if r.Severity.rank() > worst.rank() {
			worst = r.Severity
		}
	}
	return worst
}

// ExitStatus returns the exit code of the command: 1 if there is an error, else 0, because an agent
// works despite warnings.
func ExitStatus(results []Result) int {
	if Worst(results) == Error {
		return 1
	}
	return 0
}

// WriteJSON writes the results as JSON: {"worst": …, "results": […]}.
func WriteJSON(w io.Writer, results []Result) error {
	if results == nil {
		results = []Result{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Worst   Severity `json:"worst"`
		Results []Result `json:"results"`
	}{Worst(results), results})
}

func newResult(s Severity, found, why, fix string) []Result {
	return []Result{{Severity: s, Found: found, Why: why, Fix: fix}}
}

func pass(format string, args ...any) []Result {
	return newResult(OK, fmt.Sprintf(format, args...), "", "")
}

func skip(format string, args ...any) []Result {
	return newResult(Skipped, fmt.Sprintf(format, args...), "", "")
}

func warn(found, why, fix string) []Result { return newResult(Warning, found, why, fix) }
func fail(found, why, fix string) []Result { return newResult(Error, found, why, fix) }

// AddControlPlane adds the results for the services of the control plane to the status of an
// agent, if there are any.
func AddControlPlane(status json.RawMessage, results []Result) (json.RawMessage, error) {
	if len(results) == 0 {
		return status, nil
	}
	services, err := json.Marshal(results)
	if err != nil {
		return nil, err
	}
	body := bytes.TrimSpace(status)
	inner, object := bytes.CutPrefix(body, []byte("{"))
	if !object || !json.Valid(body) {
		return status, nil // printed as it is
	}
	inner = bytes.TrimSpace(inner[:len(inner)-1])
	if len(inner) > 0 {
		inner = append(slices.Clip(inner), ',')
	}
	return slices.Concat([]byte("{"), inner, []byte(`"control_plane":`), services, []byte("}")), nil
}
