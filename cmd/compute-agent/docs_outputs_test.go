// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// outputs are what commands print on a site that is broken in one way, and after the fix: the
// blocks of docs/troubleshooting.md between <!-- output: NAME --> and <!-- end -->.
type outputs struct {
	*site
	block strings.Builder
	uuids map[string]string
}

func newOutputs(t *testing.T) *outputs {
	t.Helper()
	testproc.Parallel(t, testproc.Light)
	return &outputs{site: newSite(t), uuids: map[string]string{}}
}

// unstable is what differs between runs, machines or builds, and what the page has instead.
var unstable = []struct {
	is     *regexp.Regexp
	become string
}{
	{regexp.MustCompile(`202[6-9]-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-11-28${1}03:00:00Z"},
	{regexp.MustCompile(`\b(just now|\d+(\.\d+)? (ms|s|min|m) ago)`), "3 s ago"},
	{regexp.MustCompile(`\bin \d+ min\b`), "in 9 min"},
	{regexp.MustCompile(`\b(up|unreachable) \([^)]*\)`), "$1 (30 s)"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "33d5b8dec3d6769b4372188de00dbe74952efff1b376e5394f1e95433669a7cc"},
	{regexp.MustCompile(`\b\S+ \(uid \d+\)`), "root (uid 0)"},
	{regexp.MustCompile(`\b(pid|process) \d+`), "$1 4711"},
	{regexp.MustCompile(`req-[0-9a-f-]{36}`), "req-7d0e2c4e-9a67-4f0e-8f0a-3f5b0d7a1c11"},
	{regexp.MustCompile(`\bcompute-agent (devel|unknown|v?\d\S*) on`), "compute-agent 1.0.0 on"},
	{regexp.MustCompile(`\bdriver (\S+) (devel|unknown|v0\.0\.0-[\w.+-]*)`), "driver $1 1.0.0"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`), "127.0.0.1:8778"},
}

// asInstalled is a text with the paths of an installation from packages.
func (o *outputs) asInstalled(text string) string {
	for _, path := range []struct{ is, become string }{
		{"agent.toml", "/etc/compute-agent/compute-agent.toml"},
		{"provider_config", "/etc/compute-agent/provider_config"}, {"state", "/var/lib/compute-agent"},
		{"placement", "/var/lib/compute-agent-placement"},
		{"run", "/run/compute-agent"}, {"tokens", "/etc/compute-agent/tokens"}, {"host", "/etc/compute-agent"},
		{"", "/usr/libexec/compute-agent/plugins"},
	} {
		text = strings.ReplaceAll(text, strings.TrimSuffix(filepath.Join(o.dir, path.is), "/"), path.become)
	}
	for _, u := range unstable {
		text = u.is.ReplaceAllString(text, u.become)
	}
	return randomUUID.ReplaceAllStringFunc(text, func(uuid string) string {
		if strings.HasPrefix(uuid, "aaaaaaaa-") || strings.HasPrefix(uuid, "99999999-") ||
			strings.HasPrefix(uuid, "7d0e2c4e-") {
			return uuid // of a test, or of a request
		}
		if o.uuids[uuid] == "" {
			o.uuids[uuid] = fmt.Sprintf("6f1f6f0e-3c3b-4a43-9a5d-5c21f0b7a%03d", len(o.uuids)+1)
		}
		return o.uuids[uuid]
	})
}

// randomUUID is a UUID, of which the page has others.
var randomUUID = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// shows runs a command, which must end with a code, and adds it with what it prints. With parts it
// keeps the first line, and the lines that contain one of them, which must exist.
func (o *outputs) shows(code int, command string, parts ...string) {
	o.t.Helper()
	got, stdout, stderr := o.run(words(command)...)
	if got != code {
		o.t.Errorf("%s ended with %d, not %d:\n%s%s", command, got, code, stdout, stderr)
	}
	if stdout == "" {
		stdout = stderr
	}
	o.add("compute-agent "+command, stdout, parts...)
}

// words are the arguments of a command line.
func words(command string) []string { return split(command)[0] }

func (o *outputs) add(command, printed string, parts ...string) {
	o.t.Helper()
	text := strings.TrimRight(o.asInstalled(printed), "\n")
	for _, part := range parts {
		testproc.Contains(o.t, text, part, "%s does not print %q:\n%s", command, part)
	}
	if o.block.Len() > 0 {
		o.block.WriteString("\n")
	}
	fmt.Fprintf(&o.block, "    # %s\n", o.asInstalled(command))
	elided := false
	for i, line := range strings.Split(text, "\n") {
		keep := len(parts) == 0 || i == 0 && !strings.HasPrefix(line, "{")
		for _, part := range parts {
			keep = keep || strings.Contains(line, part)
		}
		if keep {
			o.block.WriteString(strings.TrimRight("    "+line, " ") + "\n")
		} else if !elided {
			o.block.WriteString("    ...\n")
		}
		elided = !keep
	}
}

// doesNotStart runs the agent, which must end with a code, and adds the last line of its log.
func (o *outputs) doesNotStart(code int, parts ...string) {
	o.t.Helper()
	got, _, stderr := o.run("run")
	if got != code {
		o.t.Errorf("the agent ended with %d, not %d:\n%s", got, code, stderr)
	}
	at := strings.LastIndex(stderr, "compute-agent: ")
	o.add("journalctl -u compute-agent -o cat -n 1", stderr[max(at, 0):], parts...)
}

// page compares the block of the page with that name, and begins another one.
func (o *outputs) page(name string) {
	o.t.Helper()
	golden.Section(o.t, "../../docs/troubleshooting.md",
		"<!-- output: "+name+" -->", "<!-- end -->", "\n"+o.block.String()+"\n")
	o.block.Reset()
}

// healthy starts the agent as it is configured now, and adds that all is well.
func (o *outputs) healthy(name string) {
	o.t.Helper()
	defer o.agent()()
	o.shows(cli.ExitDone, "status", "all is well")
	o.page(name)
}

// answer has Placement answer everything with a status and a body.
func (o *outputs) answer(status int, body string) {
	o.http = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("OpenStack-API-Version", "placement 1.39")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func (o *outputs) file(name, text string) {
	o.t.Helper()
	check(o.t, os.MkdirAll(filepath.Dir(filepath.Join(o.dir, name)), 0o755),
		os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600))
}

// edit replaces a part of the agent's configuration.
func (o *outputs) edit(old, now string) {
	o.t.Helper()
	text := read(o.t, filepath.Join(o.dir, "agent.toml"))
	if !strings.Contains(text, old) {
		o.t.Fatalf("the configuration has no %q", old)
	}
	o.file("agent.toml", strings.Replace(text, old, now, 1))
}

// degraded runs the agent until is holds of its status, by default until it is degraded, and adds
// what status prints.
func (o *outputs) degraded(name string, is func(health.Status) bool, parts ...string) {
	o.t.Helper()
	if is == nil {
		is = func(view health.Status) bool { return view.State == resourcetracker.Degraded && len(view.Drivers) > 0 }
	}
	stop := o.agentUntil("the trouble "+name, is)
	o.shows(cli.ExitFailed, "status", parts...)
	stop()
	o.page(name)
}

// statusHas is whether status prints a text.
func (o *outputs) statusHas(text string) func() bool {
	return func() bool {
		_, out, _ := o.run("status")
		return strings.Contains(out, text)
	}
}

// pluginIs is whether the agent is degraded while its driver's process is in a state, and whether
// the last round failed for a reason.
func pluginIs(state, reason string) func(health.Status) bool {
	return func(view health.Status) bool {
		return view.State == resourcetracker.Degraded &&
			len(view.Drivers) > 0 && fmt.Sprint(view.Drivers[0].Plugin.State) == state &&
			strings.Contains(view.Drivers[0].Report.Error, reason)
	}
}
