// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

var (
	// ErrOutcomeUnknown says that a Spawn, Destroy or SetPower may have had an effect or not, or is
	// still running. To find out, call again with the same arguments.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrNotExecutable says that the kernel cannot execute the file: it is for another
	// architecture, is not a program, or its interpreter is not installed.
	ErrNotExecutable = errors.New("executable cannot be executed")
	// ErrIncompatible says that the plugin does not speak the agent's version of the protocol.
	ErrIncompatible = errors.New("incompatible plugin")
	// ErrRuntimeDir says that the runtime directory cannot be used for the plugins' sockets.
	ErrRuntimeDir = errors.New("unusable runtime directory")

	errHostClosed = errors.New("the plugin host is closed")
	errRemoved    = errors.New("it was removed")
)

// UnavailableError is [driverclient.ErrUnavailable] with the plugin's state and its cause.
type UnavailableError struct {
	Driver string
	State  State
	Since  time.Time
	// Cause says why the plugin is down, or is nil if it has not been up yet.
	Cause error
}

func (e *UnavailableError) Error() string {
	if e.State == NotInstalled && e.Cause != nil {
		return e.Cause.Error() // it is complete
	}
	msg := fmt.Sprintf("driver %s is unavailable (%s)", e.Driver, e.State)
	if e.Cause != nil {
		msg += ": " + e.Cause.Error()
	}
	return msg
}

// Is makes errors.Is(err, driverclient.ErrUnavailable) hold.
func (e *UnavailableError) Is(target error) bool { return target == driverclient.ErrUnavailable }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// ReplacedError is [driverclient.ErrUnavailable] of a call whose process was replaced and ended
// before it responded. The plugin is not down: the new process serves calls.
type ReplacedError struct {
	Driver string
	// Cause is how the call ended.
	Cause error
}

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("driver %s was being replaced: the old process ended before it responded: %v", e.Driver, e.Cause)
}

// Unwrap returns the cause, which is driverclient.ErrUnavailable.
func (e *ReplacedError) Unwrap() error { return e.Cause }

// TakeoverError says that a new process could not replace the running one, which continues with its
// former configuration. It wraps [launch.ErrUntrusted], [ErrIncompatible], a [*StartError] or,
// from a driver that rejects the configuration, a [*plugins.ConfigError].
type TakeoverError struct {
	Path string // of the new executable
	Err  error
}

func (e *TakeoverError) Error() string {
	return "the new process cannot take over, the old one continues: " + e.Err.Error()
}

// Unwrap returns why.
func (e *TakeoverError) Unwrap() error { return e.Err }

// excusedError is a missing response that does not count as a failure of the plugin.
type excusedError struct{ err error }

func (e *excusedError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *excusedError) Unwrap() error { return e.err }

// UnconfinedError is [launch.ErrUntrusted] of a plugin whose sandbox is required and cannot be
// made.
type UnconfinedError struct {
	Driver string
	Kernel launch.Kernel
}

func (e *UnconfinedError) Error() string {
	return fmt.Sprintf("not started: drivers.%s.sandbox is \"required\", and the sandbox would be incomplete (%s): "+
		"%s. The agent must be allowed to make it (SystemCallFilter= of the unit: landlock_create_ruleset "+
		"landlock_add_rule landlock_restrict_self), or set sandbox = \"landlock\"",
		e.Driver, e.Kernel, strings.Join(e.Kernel.Lacks(), "; "))
}

// Is makes errors.Is(err, launch.ErrUntrusted) hold: a restart does not help.
func (e *UnconfinedError) Is(target error) bool { return target == launch.ErrUntrusted }

// StartError says that a process did not become a working plugin.
type StartError struct {
	Path  string
	Cause error
	// Output is the last lines that the process wrote.
	Output []string
}

func (e *StartError) Error() string {
	msg := fmt.Sprintf("starting %s: %v", e.Path, e.Cause)
	if len(e.Output) > 0 {
		msg += "; its last output: " + strings.Join(e.Output, " | ")
	}
	return msg
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Cause }
