// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
)

const seeShutdown = "plugins.Shutdowner; proto: Plugin.Shutdown"

var shutdownChecks = []Check{
	{
		ID: "shutdown/answers", Title: "shuts down within the grace period",
		Protects: "the agent's own stop: it waits that long, then kills the process",
		Rule:     "Shutdown waits for running calls, cleans up and then answers, all within the given grace period.",
		See:      seeShutdown, run: checkShutdown,
	},
	{
		ID: "shutdown/unconfigured", Title: "shuts down without having been configured",
		Protects: "a plugin that rejected its configuration",
		Rule:     "Shutdown works at any time.", See: seeShutdown, run: checkShutdownUnconfigured,
	},
	{
		ID: "shutdown/refuses", Title: "rejects new calls after Shutdown",
		Protects: "a driver that would change something while it cleans up",
		Rule:     "After Shutdown new calls are rejected.", See: seeShutdown, run: checkShutdownRefuses,
	},
	{
		ID: "shutdown/drains", Title: "finishes running calls before it shuts down",
		Protects: "a pass that is nearly done",
		Rule:     "Shutdown waits for the calls that are running; they are answered.",
		See:      seeShutdown, run: checkDrains,
	},
	{
		ID: "shutdown/exits", Title: "exits when the connection is closed",
		Protects: "hosts from driver processes without an agent",
		Rule:     "The process ends when the agent closes the connection, within two seconds.",
		See:      "plugins.Serve; go-plugin's GRPCController", run: checkExits,
	},
	{
		ID:    "shutdown/strays",
		Title: "leaves no process behind when it exits or is killed",
		Protects: "hosts from helper processes of ended drivers, which may also hold a device or socket that the " +
			"next process needs",
		Rule: "Processes that a driver starts end with it: the agent kills its process group, and the driver ends " +
			"those that leave the group. (Guests do not count; the suite has removed those that it created.)",
		See: "man 2 setpgid, man 2 prctl (PR_SET_PDEATHSIG)",
		run: checkLeftovers,
	},
}

func checkShutdown(ctx context.Context, b *Bench) error {
	p, err := b.configured(ctx)
	if err != nil {
		return notRun("the plugin rejects its configuration; see config/accepted")
	}
	if err := p.shutdown(ctx); err != nil {
		return failf(fmt.Sprintf("Shutdown with a grace period of %v", b.limits.Stop), "%s", describe(err))
	}
	return nil
}

func checkShutdownUnconfigured(ctx context.Context, b *Bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notRun("the plugin does not start; see start/handshake")
	}
	if err := p.shutdown(ctx); err != nil {
		return failf("Shutdown before Configure", "%s", describe(err))
	}
	return nil
}

func checkShutdownRefuses(ctx context.Context, b *Bench) error {
	p, err := b.configured(ctx)
	if err != nil {
		return notRun("the plugin rejects its configuration; see config/accepted")
	}
	if err := p.shutdown(ctx); err != nil {
		return notRun("the plugin does not shut down; see shutdown/answers")
	}
	if _, err := p.nodes(ctx); err == nil {
		return failf("Shutdown, then AvailableNodes", "a list of nodes")
	}
	return nil
}

func checkDrains(ctx context.Context, b *Bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	p, err := b.configured(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(2000, 0)
	if err != nil {
		return err
	}
	var calls sync.WaitGroup
	var lost error
	var mu sync.Mutex
	reached := make(chan struct{})
	answered := sync.OnceFunc(func() { close(reached) })
	for range 4 { // when one is answered the others have usually arrived; one that has not may be rejected
		calls.Go(func() {
			defer answered()
			reply, err := p.update(ctx, tree, base.node, nil)
			if err == nil && len(reply.GetTree().GetProviders()) < tree.Len() {
				err = fmt.Errorf("a tree of %d resource providers", len(reply.GetTree().GetProviders()))
			}
			if err != nil && status.Code(err) != codes.Unavailable {
				mu.Lock()
				defer mu.Unlock()
				lost = err
			}
		})
	}
	<-reached
	err = p.shutdown(ctx)
	calls.Wait()
	if err != nil {
		return notRun("the plugin does not shut down; see shutdown/answers")
	}
	if lost != nil {
		return failf("Shutdown during an UpdateProviderTree", "the call was not answered: %s", describe(lost))
	}
	return nil
}

func checkExits(ctx context.Context, b *Bench) error {
	p, err := b.configured(ctx)
	if err != nil {
		return notRun("the plugin rejects its configuration; see config/accepted")
	}
	if err := p.shutdown(ctx); err != nil {
		return notRun("the plugin does not shut down; see shutdown/answers")
	}
	if err := p.End(); err != nil {
		return failf("Shutdown, then the end of the connection", "%v", err)
	}
	return nil
}

const seeLogs = "plugins.Logger; plugins.Driver, Logging"

// logChecks come last: they check what the processes wrote during all others.
var logChecks = []Check{
	{
		ID: "logs/structured", Title: "writes log lines only, to standard error and standard output",
		Protects: "operators who read the agent's log: other lines have no level and no time",
		Rule: "Each line is a JSON object with @level and @message. The driver must suppress or wrap what " +
			"libraries print.", See: seeLogs,
		run: logCheck("line", func(r record) bool { return r.raw && !r.panics }),
	},
	{
		ID: "logs/panics", Title: "does not panic",
		Protects: "the call that panics, or all calls of the process",
		Rule:     "A driver returns errors.", See: seeLogs,
		run: logCheck("panic", func(r record) bool { return r.panics }),
	},
	{
		ID: "logs/long-lines", Title: "writes no line of more than 64 KiB",
		Protects: "the rest of the line: the agent truncates it",
		Rule:     "A log line has at most 64 KiB.", See: seeLogs,
		run: logCheck("truncated line", func(r record) bool { return r.cut }),
	},
	{
		ID: "logs/flood", Title: "writes no more than 1000 lines a second",
		Protects: "the journal: the agent drops the surplus",
		Rule:     "The agent accepts at most 1000 lines a second.", See: seeLogs,
		run: logCheck("burst of lines", func(r record) bool { return r.dropped > 0 }),
	},
	{
		ID: "logs/errors", Title: "logs no error when nothing fails",
		Protects: "operators who get an alert for errors",
		Rule:     "A pass that succeeds logs nothing at level error.", See: seeLogs,
		run: logCheck("record of level error", func(r record) bool {
			group, _, _ := strings.Cut(r.check, "/")
			return !r.raw && !r.panics && r.level == "error" &&
				slices.Contains([]string{"start", "nodes", "tree", "foreign", "repair", "watch"}, group)
		}),
	},
	{
		ID: "logs/level", Title: "respects the agent's log level",
		Protects: "the journal of a host whose agent logs warnings only",
		Rule:     "COMPUTE_DRIVER_LOG_LEVEL is the lowest level to write: with error, nothing below it.",
		See:      seeLogs, run: checkLogLevel,
	},
	{
		ID: "logs/secrets", Title: "logs no secret of its configuration",
		Protects: "passwords, which many people could read in the journal",
		Rule:     "The value of a key such as password, token or secret is in no log line and no error.",
		See:      seeLogs, run: checkSecrets,
	},
}

func logCheck(what string, bad func(record) bool) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		if _, _, err := b.base(ctx); err != nil && b.info == nil {
			return err
		}
		b.discard() // reads what is still in its pipes
		var wrong []string
		for _, r := range b.log.all() {
			if bad(r) {
				wrong = append(wrong, fmt.Sprintf("a %s during %s: %.300s", what, r.check, r))
			}
		}
		return failLines("all checks, reading the process' log", wrong)
	}
}

func checkLogLevel(ctx context.Context, b *Bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	h, err := b.errorLevelHost(b.scratch+"/"+errorLevelDir, &recorder{})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() //nolint:contextcheck // it ends in any case
	p, err := b.startWith(ctx, h)
	if err != nil {
		return err
	}
	if err := p.configure(ctx, b.plugin.Config, b.stateDir()); err != nil {
		return failf("Configure with COMPUTE_DRIVER_LOG_LEVEL=error", "%s", describe(err))
	}
	if _, err := p.tree(ctx, base.bare, base.node); err != nil {
		return err
	}
	p.Kill()
	var wrong []string
	for _, line := range p.Output() {
		var r struct {
			Level string `json:"@level"`
		}
		if json.Unmarshal([]byte(line), &r) == nil &&
			slices.Contains([]string{"trace", "debug", "info", "warn"}, r.Level) {
			wrong = append(wrong, line)
		}
	}
	return failLines("a start, Configure and one pass with COMPUTE_DRIVER_LOG_LEVEL=error", wrong)
}

var secretKey = regexp.MustCompile(`(?i)passw|secret|token|credential|api_?key`)

// secrets returns the values of a configuration that must not be logged.
func secrets(config any, key string) []string {
	var out []string
	switch v := config.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			out = append(out, secrets(v[k], k)...)
		}
	case []any:
		for _, x := range v {
			out = append(out, secrets(x, key)...)
		}
	case string:
		if secretKey.MatchString(key) && len(v) >= 4 {
			out = append(out, v)
		}
	}
	return out
}

func checkSecrets(ctx context.Context, b *Bench) error {
	var config any
	if json.Unmarshal(b.plugin.Config, &config) != nil {
		return notRun("the given configuration is not JSON")
	}
	hidden := secrets(config, "")
	if len(hidden) == 0 {
		return notRun("the given configuration has no key such as password, token or secret")
	}
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	extended := `{"` + unknownKey + `":1,` + strings.TrimPrefix(strings.TrimSpace(string(b.plugin.Config)), "{")
	answer := verdict(p.configure(ctx, []byte(extended), b.stateDir()))
	b.discard()
	var wrong []string
	for _, secret := range hidden {
		if strings.Contains(answer, secret) {
			wrong = append(wrong, "in an error of Configure: a secret of the configuration")
		}
		for _, r := range b.log.all() {
			if strings.Contains(r.text, secret) {
				wrong = append(wrong, "during "+r.check+": "+strings.ReplaceAll(r.String(), secret, "<the secret>"))
			}
		}
	}
	return failLines("all checks, reading the process' log", wrong)
}

// errorLevelDir is the directory below scratch for plugins that log errors only.
const errorLevelDir = "errors"

// errorLevelHost returns a host whose plugins log errors only.
func (b *Bench) errorLevelHost(dir string, log *recorder) (*pluginhost.Host, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return pluginhost.New(pluginhost.Options{RuntimeDir: dir, Logger: zerolog.New(log).Level(zerolog.ErrorLevel)})
}
