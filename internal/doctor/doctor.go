// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Severity is how bad a result is.
type Severity string

// The severities, from the best to the worst. Skipped is neither good nor bad:
// the doctor could not or need not look.
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

// Check is one thing that the doctor looks at.
type Check struct {
	Name  string // Stable, for programs: "placement".
	Title string // For people: "Placement".

	run func(ctx context.Context, e *Env) []Result
}

// Result is what a check found. One check may give several, such as one per
// plugin, whose names then begin with the check's.
type Result struct {
	Name     string   `json:"name"`
	Title    string   `json:"title"`
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`          // What is so.
	Why      string   `json:"why,omitempty"`  // Why it matters; warnings and errors only.
	Mend     string   `json:"mend,omitempty"` // The command that mends it; warnings and errors only.
}

// Checks are all checks, in the order of their results: first what others rest on.
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
		{"libvirt", "libvirt", checkLibvirt},
		{"kvm", "KVM", checkKVM},
		{"driver", "Drivers on this machine", checkDriverWarnings},
		{"placement", "Placement", checkPlacement},
		{"clock", "Clock", checkClock},
		{"open-files", "Open files", checkOpenFiles},
		{"agent", "Agent", checkAgent},
		{"one-agent", "One agent only", checkOneAgent},
	}
}

// DefaultTimeout is how long one check may take when Env says nothing.
const DefaultTimeout = 10 * time.Second

// Run runs all checks at the same time and returns their results in the order
// of Checks. It returns after Env.Timeout at the latest: a check that hangs, as
// on a dead network file system, is reported as an error and left behind; its
// goroutine ends when the system call does.
func Run(ctx context.Context, env Env) []Result { return run(ctx, env, Checks()) }

func run(ctx context.Context, env Env, checks []Check) []Result {
	if env.Timeout <= 0 {
		env.Timeout = DefaultTimeout
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

// grace is what a check gets after the deadline to say itself what hung.
const grace = 250 * time.Millisecond

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
		return c.named(bad(fmt.Sprintf("the check did not end within %v", env.Timeout),
			"Something that the agent uses too does not answer, and the agent would hang as well.", "dmesg --level=err,warn | tail -20"))
	}
}

// named fills in name and title where the check left them to us.
func (c Check) named(results []Result) []Result {
	for i := range results {
		if results[i].Name == "" {
			results[i].Name, results[i].Title = c.Name, c.Title
		}
	}
	return results
}

// Worst is the worst severity; OK when there are no results.
func Worst(results []Result) Severity {
	worst := OK
	for _, r := range results {
		if r.Severity.rank() > worst.rank() {
			worst = r.Severity
		}
	}
	return worst
}

// ExitStatus is the status that a command ends with: 1 when anything is an
// error, and 0 otherwise, because an agent runs in spite of warnings.
func ExitStatus(results []Result) int {
	if Worst(results) == Error {
		return 1
	}
	return 0
}

func one(s Severity, found, why, mend string) []Result {
	return []Result{{Severity: s, Found: found, Why: why, Mend: mend}}
}

func fine(format string, args ...any) []Result { return one(OK, fmt.Sprintf(format, args...), "", "") }

func skip(format string, args ...any) []Result {
	return one(Skipped, fmt.Sprintf(format, args...), "", "")
}

func warn(found, why, mend string) []Result { return one(Warning, found, why, mend) }
func bad(found, why, mend string) []Result  { return one(Error, found, why, mend) }
