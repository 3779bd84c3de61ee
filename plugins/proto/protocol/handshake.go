// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"regexp"
	"slices"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
)

const (
	// ProtocolVersion is the major version of the protocol: the one in the name of the proto
	// package.
	ProtocolVersion = 1
	// PluginName is the only plugin type that a plugin process serves.
	PluginName = "driver"
	// MaxMessage bounds a message in both directions, in bytes. A tree of 10,000 providers has
	// about 3 MiB.
	MaxMessage = 16 << 20

	// CookieKey is the environment variable that tells a plugin that the agent started it, and not
	// a user.
	CookieKey = "COMPUTE_DRIVER_COOKIE"
	// CookieValue is its value. It is not a secret and never changes.
	CookieValue = "d0a5e4c2-6f0e-4c53-9a8e-compute-agent"

	// LogLevelKey is the environment variable that carries the agent's log level (trace, debug,
	// info, warn, error).
	LogLevelKey = "COMPUTE_DRIVER_LOG_LEVEL"

	// TimeFormat is the format of a log line's timestamp.
	TimeFormat = "2006-01-02T15:04:05.000000Z07:00"
	// MessageField is the key of a log line's message.
	MessageField = "@message"
	// LevelField is the key of its level.
	LevelField = "@level"
	// TimeField is the key of its timestamp.
	TimeField = "@timestamp"
)

// MaxConsoleLog bounds what is asked for of a console log, in bytes.
const MaxConsoleLog = 1 << 20

// MaxConsolePart bounds what one message has of what is typed at a console, or written to it, in
// bytes.
const MaxConsolePart = 64 << 10

// Capabilities are optional methods that a plugin has.
const (
	CapabilityWatch        = "watch"
	CapabilityHealth       = "health"
	CapabilityShutdown     = "shutdown"
	CapabilityLayouts      = "layouts"
	CapabilityCapabilities = "capabilities"
	CapabilityGuests       = "guests"
	CapabilityNodeDeleted  = "node_deleted"
	CapabilityInstances    = "instances"
	// CapabilityInstanceEvents counts only beside CapabilityInstances.
	CapabilityInstanceEvents = "instance_events"
	CapabilityWarnings       = "warnings"
	CapabilityProductNames   = "product_names"
	CapabilityHypervisor     = "hypervisor"
	// CapabilityMigrate counts only beside CapabilityInstances.
	CapabilityMigrate = "migrate"
	// CapabilityConsoleLog counts only beside CapabilityInstances.
	CapabilityConsoleLog = "console_log"
	// CapabilityCheckSpawn counts only beside CapabilityInstances.
	CapabilityCheckSpawn = "check_spawn"
	// CapabilityConsole counts only beside CapabilityInstances.
	CapabilityConsole = "console"
	// CapabilityRestore counts only beside CapabilityInstances.
	CapabilityRestore = "restore"
)

// Limits of a plugin's responses.
const (
	// MaxLayout is the highest layout version. 0 means that layouts have no versions.
	MaxLayout = 9999
	// MaxGuests bounds the guests of one node.
	MaxGuests = 100_000
	// MaxProductName bounds the product name of one provider, in characters.
	MaxProductName = 200
	// MaxHypervisorType bounds the type of a node's hypervisor, in characters, and
	// MaxHypervisorVersion its version: Nova stores it in 32 bits.
	MaxHypervisorType    = 100
	MaxHypervisorVersion = 1<<31 - 1
	// MaxInstances bounds the instances of one node.
	MaxInstances = 100_000
)

// HeartbeatInterval is how often a Watch stream sends an event at least.
const HeartbeatInterval = 10 * time.Second

// Handshake returns what agent and plugin must agree on first.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{ProtocolVersion: ProtocolVersion, MagicCookieKey: CookieKey,
		MagicCookieValue: CookieValue}
}

// ErrMalformed says that a message breaks the protocol.
var ErrMalformed = errors.New("malformed message")

// SandboxArg is argument 0 of the agent's own program when it enters a sandbox and then executes a
// plugin.
const SandboxArg = "compute-agent-sandbox"

// driverName is the syntax of the name of a driver.
var driverName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// IsDriverName reports whether a name is valid for a driver: 1 to 63 lower case letters, digits and
// hyphens, of which the first is no hyphen.
func IsDriverName(name string) bool { return driverName.MatchString(name) }

// CapabilityShapes is the name of CapabilityLayouts in releases up to 0.2.0. Plugins announce both
// names, because agents of these releases know only this one; agents accept either, because plugins
// of these releases announce only this one.
//
// The messages keep shape_version and from_shape: names of fields are not on the wire, but in the
// code of plugins that use the generated types.
//
// Deprecated: use CapabilityLayouts.
const CapabilityShapes = "shapes"

// AnnouncedCapabilities returns what a plugin with these capabilities announces: them, and the
// former names of those that have one.
func AnnouncedCapabilities(capabilities []string) []string {
	out := slices.Clone(capabilities)
	if slices.Contains(capabilities, CapabilityLayouts) {
		out = append(out, CapabilityShapes)
	}
	return out
}

// CurrentCapabilities returns what a plugin announced, with each capability under its current name
// only.
func CurrentCapabilities(announced []string) []string {
	out := slices.Clone(announced)
	if i := slices.Index(out, CapabilityShapes); i >= 0 && !slices.Contains(out, CapabilityLayouts) {
		out[i] = CapabilityLayouts
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == CapabilityShapes })
}
