// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Spec is one configured driver: the table [drivers.NAME].
type Spec struct {
	// Name of the driver: lower case letters, digits and hyphens.
	Name string
	// Path of the executable. Relative ones are below the plugin directory; "" is
	// compute-driver-NAME there.
	Path string
	// Searched lists the directories that were searched before Path was chosen, for the error if
	// there is no executable.
	Searched []string
	// SHA256 of the executable in hexadecimal, or "" to accept any content.
	SHA256 string
	// Args and Env are added to the process' arguments and its otherwise minimal environment.
	Args []string
	Env  map[string]string
	// Config is the driver's own table as JSON; nil counts as {}.
	Config json.RawMessage
	// HostInfo is passed to the driver with Config.
	HostInfo plugins.HostInfo
	// Sandbox restricts the process; nil does not.
	Sandbox *launch.Sandbox
	// Disabled keeps the plugin from being started.
	Disabled bool
	// Timeouts and Restart: zero fields mean the defaults.
	Timeouts driverclient.Timeouts
	Restart  Restart
	// Changed is called when a node's tree may have changed: the driver reports it, or its process
	// was started or configured again. node "" stands for all nodes. It is called from one
	// goroutine at a time and must not block. May be nil.
	Changed func(node string)
	// InstanceChanged is called when an instance may have changed: the driver reports it, or its
	// events were interrupted, or its process was started or configured again. uuid "" stands for
	// all instances of the node, node "" for those of all nodes. It is never called for a driver
	// that does not manage instances. Otherwise as Changed.
	InstanceChanged func(node, uuid string)
}

// Restart says when a process is checked, killed and restarted.
type Restart struct {
	HealthInterval time.Duration // between health checks; default 10 s
	// consecutive checks, or calls, without a response until the process is killed; default 3
	Misses        int
	BackoffBase   time.Duration // the first delay is up to this, then it doubles; default 1 s
	BackoffMax    time.Duration // default 2 min
	ResetAfter    time.Duration // health after which failures are forgotten; default 10 min
	FailureLimit  int           // failures within FailureWindow until quarantine; default 5
	FailureWindow time.Duration // default 10 min
	Quarantine    time.Duration // until the next single attempt; default 10 min
}

func (r Restart) withDefaults() Restart {
	fill(&r.HealthInterval, 10*time.Second)
	fill(&r.Misses, 3)
	fill(&r.BackoffBase, time.Second)
	fill(&r.BackoffMax, 2*time.Minute)
	fill(&r.ResetAfter, 10*time.Minute)
	fill(&r.FailureLimit, 5)
	fill(&r.FailureWindow, 10*time.Minute)
	fill(&r.Quarantine, 10*time.Minute)
	return r
}

func fill[T time.Duration | int](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Complete returns the spec with defaults, or what is wrong with it. dir is the plugin directory,
// "" for none.
func (s Spec) Complete(dir string) (Spec, error) {
	if !protocol.IsDriverName(s.Name) {
		return s, fmt.Errorf("driver name %q: must be 1 to 63 lower case letters, digits and hyphens", s.Name)
	}
	wrong := func(key, format string, args ...any) (Spec, error) {
		return s, fmt.Errorf("drivers.%s.%s: %s", s.Name, key, fmt.Sprintf(format, args...))
	}
	if s.Path == "" {
		s.Path = launch.Prefix + s.Name
	}
	if !filepath.IsAbs(s.Path) {
		if !filepath.IsLocal(s.Path) {
			return wrong("path", "%q is outside of the plugin directory %s; give an absolute path if that is intended",
				s.Path, dir)
		}
		if dir == "" {
			return wrong("path", "%q is relative, and there is no plugin directory", s.Path)
		}
		s.Path = filepath.Join(dir, s.Path)
	}
	s.SHA256 = strings.ToLower(strings.TrimSpace(s.SHA256))
	if raw, err := hex.DecodeString(s.SHA256); err != nil || (len(raw) != 0 && len(raw) != 32) {
		return wrong("sha256", "%q must be 64 hexadecimal digits, as sha256sum prints them", s.SHA256)
	}
	for key, value := range s.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.Contains(value, "\x00") {
			return wrong("env", "%q is not an environment variable", key)
		}
		if key == protocol.CookieKey || strings.HasPrefix(key, "PLUGIN_") {
			return wrong("env", "%s belongs to the connection between agent and plugin and cannot be set", key)
		}
	}
	if len(s.Config) == 0 {
		s.Config = json.RawMessage("{}")
	}
	if !json.Valid(s.Config) {
		return wrong("config", "is not valid JSON")
	}
	if len(s.Config) > protocol.MaxMessage/2 {
		return wrong("config", "has %d bytes, at most %d are allowed", len(s.Config), protocol.MaxMessage/2)
	}
	s.Args, s.Env = slices.Clone(s.Args), maps.Clone(s.Env)
	s.Timeouts, s.Restart = s.Timeouts.WithDefaults(), s.Restart.withDefaults()
	return s, nil
}

// otherProcess returns the first key whose change from s to o needs a new process, or "".
func (s Spec) otherProcess(o Spec) string {
	switch {
	case s.Path != o.Path:
		return "path"
	case s.SHA256 != o.SHA256:
		return "sha256"
	case !slices.Equal(s.Args, o.Args):
		return "args"
	case !maps.Equal(s.Env, o.Env):
		return "env"
	case !s.Sandbox.Equal(o.Sandbox):
		return "sandbox"
	}
	return ""
}

// allowedEnv matches the variables of the agent's environment that plugins get. Others can be
// secrets, or NOTIFY_SOCKET, with which a plugin could notify systemd for the agent.
var allowedEnv = regexp.MustCompile(`^(PATH|LANG|LC_ALL|TZ|HOME|XDG_RUNTIME_DIR|LIBVIRT_[^=]*)=`)

// environment returns that of a plugin process: the allowed part of the agent's, the configured
// variables, and those of the connection. os/exec takes the last of duplicates.
func environment(agent []string, configured map[string]string, connection ...string) []string {
	var out []string
	for _, entry := range agent {
		if allowedEnv.MatchString(entry) {
			out = append(out, entry)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(configured)) {
		out = append(out, key+"="+configured[key])
	}
	return append(out, connection...)
}
