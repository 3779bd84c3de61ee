// SPDX-License-Identifier: Apache-2.0

package drivertest

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

	"github.com/compute-agent/compute-agent/plugins/host"
)

const seeShutdown = "plugins.Shutdowner; proto: Plugin.Shutdown"

var shutdownChecks = []Check{
	{
		ID: "shutdown/answers", Title: "shuts down within its grace",
		Protects: "the agent's own end: it waits that long, then kills",
		Rule:     "Shutdown waits for calls under way, tidies up and then answers, all within the grace that it is given.", See: seeShutdown, run: checkShutdown,
	},
	{
		ID: "shutdown/unconfigured", Title: "shuts down without ever having been configured",
		Protects: "a plugin whose configuration was refused",
		Rule:     "Shutdown works at any time.", See: seeShutdown, run: checkShutdownUnconfigured,
	},
	{
		ID: "shutdown/refuses", Title: "takes no new calls once it shuts down",
		Protects: "a change that is made while the driver tidies up",
		Rule:     "Shutdown refuses new calls.", See: seeShutdown, run: checkShutdownRefuses,
	},
	{
		ID: "shutdown/drains", Title: "finishes the calls under way before it shuts down",
		Protects: "a pass that is nearly done",
		Rule:     "Shutdown waits for the calls that are under way; they are answered.", See: seeShutdown, run: checkDrains,
	},
	{
		ID: "shutdown/exits", Title: "exits by itself when the connection is closed",
		Protects: "hosts full of processes without an agent",
		Rule:     "The process ends when the agent closes the connection, within two seconds.", See: "plugins.Serve; go-plugin's GRPCController", run: checkExits,
	},
	{
		ID: "shutdown/strays", Title: "leaves no process behind when it ends or is killed",
		Protects: "hosts that fill with helpers of drivers that are gone, and the next process of the driver, whose device or socket they hold",
		Rule:     "What a driver starts ends with it: the agent kills its process group, and what leaves the group is the driver's to end. (Guests are not a driver's processes in that sense; the suite has removed those that it made.)", See: "man 2 setpgid, man 2 prctl (PR_SET_PDEATHSIG)",
		run: checkStrays,
	},
}

func checkShutdown(ctx context.Context, b *bench) error {
	p, err := b.configured(ctx)
	if err != nil {
		return notApplicable("the plugin does not take its configuration; see config/accepted")
	}
	if err := p.shutdown(ctx); err != nil {
		return found(fmt.Sprintf("Shutdown with a grace of %v", b.limits.Stop), "%s", said(err))
	}
	return nil
}

func checkShutdownUnconfigured(ctx context.Context, b *bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notApplicable("the plugin does not start; see start/handshake")
	}
	if err := p.shutdown(ctx); err != nil {
		return found("Shutdown before Configure", "%s", said(err))
	}
	return nil
}

func checkShutdownRefuses(ctx context.Context, b *bench) error {
	p, err := b.configured(ctx)
	if err != nil {
		return notApplicable("the plugin does not take its configuration; see config/accepted")
	}
	if err := p.shutdown(ctx); err != nil {
		return notApplicable("the plugin does not shut down; see shutdown/answers")
	}
	if _, err := p.nodes(ctx); err == nil {
		return found("Shutdown, then AvailableNodes", "a list of nodes")
	}
	return nil
}

func checkDrains(ctx context.Context, b *bench) error {
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
	for range 4 { // when one is answered the others have arrived; should one not have, it may be refused
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
		return notApplicable("the plugin does not shut down; see shutdown/answers")
	}
	if lost != nil {
		return found("Shutdown while an UpdateProviderTree is under way", "the call was not answered: %s", said(lost))
	}
	return nil
}

func checkExits(ctx context.Context, b *bench) error {
	p, err := b.configured(ctx)
	if err != nil {
		return notApplicable("the plugin does not take its configuration; see config/accepted")
	}
	if err := p.shutdown(ctx); err != nil {
		return notApplicable("the plugin does not shut down; see shutdown/answers")
	}
	if err := p.End(); err != nil {
		return found("Shutdown, then the end of the connection", "%v", err)
	}
	return nil
}

const seeLogs = "plugins.Logger; plugins.Driver, Logging"

// logChecks come last: they look at all that the processes wrote.
var logChecks = []Check{
	{
		ID: "logs/structured", Title: "writes log lines only, to standard error and standard output",
		Protects: "whoever reads the agent's log: stray lines have no level and no time",
		Rule:     "Each line is a JSON object with @level and @message. What a library prints is for the driver to keep away or to wrap.", See: seeLogs,
		run: logCheck("line", func(r record) bool { return r.raw && !r.panics }),
	},
	{
		ID: "logs/panics", Title: "does not panic",
		Protects: "the calls that panic, or the process with all of them",
		Rule:     "A driver returns errors.", See: seeLogs,
		run: logCheck("panic", func(r record) bool { return r.panics }),
	},
	{
		ID: "logs/long-lines", Title: "writes no line of more than 64 KiB",
		Protects: "the rest of the line: the agent cuts it off",
		Rule:     "A log line has at most 64 KiB.", See: seeLogs,
		run: logCheck("line that was cut", func(r record) bool { return r.cut }),
	},
	{
		ID: "logs/flood", Title: "writes no more than 1000 lines a second",
		Protects: "the journal: the agent drops the surplus",
		Rule:     "At most 1000 lines a second are taken.", See: seeLogs,
		run: logCheck("burst of lines", func(r record) bool { return r.dropped > 0 }),
	},
	{
		ID: "logs/errors", Title: "logs no error when all is well",
		Protects: "operators, who are woken up by errors",
		Rule:     "A pass that succeeds logs nothing at level error.", See: seeLogs,
		run: logCheck("record of level error", func(r record) bool {
			group, _, _ := strings.Cut(r.check, "/")
			return !r.raw && !r.panics && r.level == "error" && slices.Contains([]string{"start", "nodes", "tree", "foreign", "repair", "watch"}, group)
		}),
	},
	{
		ID: "logs/level", Title: "keeps to the agent's log level",
		Protects: "the journal of a host whose agent is to log warnings only",
		Rule:     "COMPUTE_DRIVER_LOG_LEVEL is the level of what is written: with error, nothing below it.", See: seeLogs, run: checkLogLevel,
	},
	{
		ID: "logs/secrets", Title: "logs no secret of its configuration",
		Protects: "passwords, which the journal would show to many",
		Rule:     "The value of a key such as password, token or secret is in no log line and no error.", See: seeLogs, run: checkSecrets,
	},
}

func logCheck(what string, bad func(record) bool) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		if _, _, err := b.base(ctx); err != nil && b.info == nil {
			return err
		}
		b.discard() // what is still in its pipes arrives first
		var wrong []string
		for _, r := range b.log.all() {
			if bad(r) {
				wrong = append(wrong, fmt.Sprintf("a %s during %s: %.300s", what, r.check, r))
			}
		}
		return several("all checks, reading what the process wrote", wrong)
	}
}

func checkLogLevel(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	quiet := &recorder{}
	dir := b.scratch + "/quiet"
	h, err := b.quietHost(dir, quiet)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() //nolint:contextcheck // it ends in any case
	p, err := b.startWith(ctx, h)
	if err != nil {
		return err
	}
	if err := p.configure(ctx, b.opts.Config, b.stateDir()); err != nil {
		return found("Configure with COMPUTE_DRIVER_LOG_LEVEL=error", "%s", said(err))
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
		if json.Unmarshal([]byte(line), &r) == nil && slices.Contains([]string{"trace", "debug", "info", "warn"}, r.Level) {
			wrong = append(wrong, line)
		}
	}
	return several("a start, Configure and one pass with COMPUTE_DRIVER_LOG_LEVEL=error", wrong)
}

var secretKey = regexp.MustCompile(`(?i)passw|secret|token|credential|api_?key`)

// secrets are the values of a configuration that must not be shown.
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

func checkSecrets(ctx context.Context, b *bench) error {
	var config any
	if json.Unmarshal(b.opts.Config, &config) != nil {
		return notApplicable("the given configuration is no JSON")
	}
	hidden := secrets(config, "")
	if len(hidden) == 0 {
		return notApplicable("the given configuration has no key such as password, token or secret")
	}
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	answer := verdict(p.configure(ctx, []byte(`{"`+unknownKey+`":1,`+strings.TrimPrefix(strings.TrimSpace(string(b.opts.Config)), "{")), b.stateDir()))
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
	return several("all checks, reading what the process wrote", wrong)
}

// quietHost starts plugins that are to log errors only.
func (b *bench) quietHost(dir string, log *recorder) (*host.Host, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return host.New(host.Options{RuntimeDir: dir, Logger: zerolog.New(log).Level(zerolog.ErrorLevel)})
}
