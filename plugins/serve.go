// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Serve is the whole main function of a driver. It returns when the agent has closed the
// connection, and exits the process if there is no agent.
//
// Started by the agent, it serves the driver. Started by hand, it prints an explanation; with
// --info it prints the driver's name, version, capabilities and schema as JSON.
func Serve(d Driver) {
	if len(os.Args) > 1 && slices.Contains([]string{"--info", "-info"}, os.Args[1]) {
		os.Exit(printInfo(os.Stdout, d))
	}
	if !startedByAgent() {
		os.Exit(explain(os.Stderr, d))
	}
	watchParent()
	nameProcess(os.Args[0])
	closeExecutable()

	log := agentLogger(stderr, os.Getenv(protocol.LogLevelKey))
	srv := newServer(d, log)
	os.Stdout = handshakeStdout // go-plugin writes one line to it, then replaces it
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: protocol.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{
			protocol.ProtocolVersion: {protocol.PluginName: servedPlugin{srv: srv}},
		},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			_ = os.Unsetenv(protocol.CookieKey) // go-plugin has already read it
			return grpc.NewServer(append(opts, srv.options()...)...)
		},
		Logger: quietHCLog(),
	})
}

// description is what --info prints.
type description struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Protocols    []int           `json:"protocols"`
	Capabilities []string        `json:"capabilities"`
	SDK          string          `json:"sdk"`
	ConfigSchema json.RawMessage `json:"config_schema,omitempty"`
}

func describe(d Driver) description {
	info := d.Info()
	return description{
		Name: info.Name, Version: info.Version, Protocols: []int{protocol.ProtocolVersion},
		Capabilities: protocol.AnnouncedCapabilities(capabilities(d)), SDK: sdkVersion(),
		ConfigSchema: d.ConfigSchema(),
	}
}

func printInfo(w io.Writer, d Driver) int {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(describe(d)); err != nil {
		fmt.Fprintf(os.Stderr, "cannot print the driver's info (is its configuration schema valid JSON?): %v\n", err)
		return 1
	}
	return 0
}

// exUsage is EX_USAGE of sysexits.h. 2 is for crashes: a Go program that panics exits with it.
const exUsage = 64

func explain(w io.Writer, d Driver) int {
	info := d.Info()
	_, _ = fmt.Fprintf(w, `This is the virt driver %q (version %s), a plugin of compute-agent. It does not run by itself:
the agent starts it when its configuration has a table [drivers.%s].

  %s --info    prints its name, version, capabilities and configuration schema as JSON
`, info.Name, info.Version, info.Name, filepath.Base(os.Args[0]))
	return exUsage
}

// capabilities names the optional interfaces that a driver implements.
func capabilities(d Driver) []string {
	out := []string{}
	add := func(name string, has bool) {
		if has {
			out = append(out, name)
		}
	}
	_, reports := d.(CapabilityReporter)
	add(protocol.CapabilityCapabilities, reports)
	_, lists := d.(GuestLister)
	add(protocol.CapabilityGuests, lists)
	_, checks := d.(HealthChecker)
	add(protocol.CapabilityHealth, checks)
	_, identifies := d.(HypervisorReporter)
	add(protocol.CapabilityHypervisor, identifies)
	_, manages := d.(InstanceManager)
	add(protocol.CapabilityInstances, manages)
	_, follows := d.(InstanceWatcher)
	add(protocol.CapabilityInstanceEvents, manages && follows)
	_, moves := d.(InstanceMover)
	add(protocol.CapabilityMigrate, manages && moves)
	_, logs := d.(ConsoleLogger)
	add(protocol.CapabilityConsoleLog, manages && logs)
	_, foresees := d.(SpawnChecker)
	add(protocol.CapabilityCheckSpawn, manages && foresees)
	_, opens := d.(ConsoleOpener)
	add(protocol.CapabilityConsole, manages && opens)
	_, restores := d.(InstanceRestorer)
	add(protocol.CapabilityRestore, manages && restores)
	_, hasVersions := d.(LayoutVersioner)
	add(protocol.CapabilityLayouts, hasVersions)
	_, deletes := d.(NodeChecker)
	add(protocol.CapabilityNodeDeleted, deletes)
	_, names := d.(ProductNamer)
	add(protocol.CapabilityProductNames, names)
	_, shutsDown := d.(Shutdowner)
	add(protocol.CapabilityShutdown, shutsDown)
	_, warns := d.(Warner)
	add(protocol.CapabilityWarnings, warns)
	_, watches := d.(Watcher)
	add(protocol.CapabilityWatch, watches)
	return out
}

// BuildVersion returns the version of the main module that the program was built from, or "devel",
// for drivers without another version.
func BuildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// sdkVersion returns name and version of this SDK, whether it is the main module or a dependency.
func sdkVersion() string {
	const agent = "github.com/compute-agent/compute-agent"
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		module := agent + "/plugins"
		if info.Main.Path == agent { // the drivers of the same repository
			module = agent
		}
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path == module && m.Version != "" && m.Version != "(devel)" {
				version = m.Version
			}
		}
	}
	return "go compute-agent " + version
}

// servedPlugin registers the server with go-plugin's gRPC server.
type servedPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	srv *server
}

// GRPCServer registers the services of the protocol.
func (p servedPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	driverv1.RegisterPluginServer(s, p.srv)
	driverv1.RegisterDriverServer(s, p.srv)
	driverv1.RegisterInstancesServer(s, p.srv.instances)
	return nil
}

// GRPCClient is not used by plugins.
func (servedPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is not a client")
}

// agentLogger returns the driver's logger: one JSON object per line, with the keys that the agent
// expects. It sets zerolog's package-wide field names, so that a driver's own loggers have them
// too.
func agentLogger(w io.Writer, level string) zerolog.Logger {
	zerolog.MessageFieldName = protocol.MessageField
	zerolog.LevelFieldName = protocol.LevelField
	zerolog.TimestampFieldName = protocol.TimeField
	zerolog.TimeFieldFormat = protocol.TimeFormat
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
	zerolog.LevelFieldMarshalFunc = levelName
	lvl, err := zerolog.ParseLevel(level)
	if err != nil || lvl == zerolog.NoLevel {
		lvl = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(lvl).With().Timestamp().Logger()
}

// levelName returns only levels that the agent knows.
func levelName(l zerolog.Level) string {
	switch l {
	case zerolog.FatalLevel, zerolog.PanicLevel:
		return zerolog.LevelErrorValue
	case zerolog.NoLevel:
		return zerolog.LevelInfoValue
	default:
		return l.String()
	}
}

// quietHCLog returns the logger for go-plugin's own messages: errors only.
func quietHCLog() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "go-plugin", Level: hclog.Error, Output: stderr, JSONFormat: true})
}
