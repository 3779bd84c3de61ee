// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/drivertest/internal/checks"
)

// Options say which plugin is tested, and how.
type Options struct {
	// Path of the executable.
	Path string
	// Args and Env are added to the process' arguments and its otherwise minimal environment.
	Args []string
	Env  map[string]string
	// Config is the driver's configuration as JSON; nil counts as {}. With it the driver must find
	// its nodes on this machine.
	Config json.RawMessage
	// FormerPath is the executable of the last release, or "". With Former, or else with Config, it
	// makes the tree that a reshape is tried from. It must be older than Path.
	FormerPath string
	// Former is another configuration. Without FormerPath it is one with which the driver makes a
	// tree that needs a reshape with Config. If both are absent, the suite makes up a former tree
	// and checks only what the driver moved.
	Former json.RawMessage
	// Instances lets the suite create, stop and remove instances on the machine that it runs on. If
	// it is nil, checks that need an instance are not run.
	Instances *InstanceTemplate
	// Sandbox is what the plugin's processes are started in. Nil: what the agent starts a driver in
	// whose configuration says nothing about it ([launch.StandardSandbox]). NoSandbox starts them
	// without one: then the suite does not find what the agent's sandbox keeps the driver from.
	Sandbox   *Sandbox
	NoSandbox bool
	// Select selects checks by their ID; nil: all.
	Select *regexp.Regexp
	// Limits are how long the plugin may take; zero fields are the agent's own defaults.
	Limits Timeouts
	// Timeout bounds the whole suite; 0: no bound. The check that runs when it expires fails, and
	// those after it are not run.
	Timeout time.Duration
	// CheckTimeout bounds each check; 0: five minutes.
	CheckTimeout time.Duration
	// FailFast ends the suite with the first check that fails.
	FailFast bool
	// Started, if set, is called once before the first check, with a report without results.
	Started func(Report)
	// Each, if set, is called with every result as it comes, until the suite ends.
	Each func(Result)
	// Log, if set, is called with every line that the plugin's processes write, as the JSON of an
	// agent's log, one at a time. It must not block, nor keep the line.
	Log func(line []byte)
}

// InstanceTemplate describes the instances that the suite creates on the machine that it runs on,
// if [Options.Instances] allows it. The suite chooses uuid, name, owner and allocations.
type InstanceTemplate struct {
	// Flavor of the instances; the zero Flavor is one of 1 VCPU, 128 MiB and 1 GiB of disk.
	Flavor plugins.Flavor
	// Image and its properties, Metadata and UserData are passed to the driver unchanged.
	Image           string
	ImageProperties map[string]string
	Metadata        map[string]string
	UserData        []byte
	// KeyName and PublicKey are of the key pair of the instances; without, of one whose private
	// half does not exist: every driver must take an instance with a key pair.
	KeyName, PublicKey string
}

// Sandbox says what a plugin's process, and what it starts, can do: docs/drivers.md, The sandbox,
// has the rules. Its fields are those of [launch.Sandbox].
type Sandbox struct {
	// Required refuses to start the plugin if the kernel lacks Landlock or seccomp filters. Without
	// it the plugin runs with what the kernel has.
	Required bool
	// Secrets are files and directories that the process must not read, but for the names in a
	// directory. They are exempt from Write.
	Secrets []string
	// Protected are files and directories that it may read and that are exempt from Write. In a
	// directory of Secrets it may read what Write has.
	Protected []string
	// Write are files and directories that it may write to. One that contains secrets is open
	// without them, and one in a directory of Secrets is open for reading.
	Write []string
	// GrantRead and GrantWrite are what an operator allows in any case, secrets or not.
	GrantRead, GrantWrite []string
	// Modes lets the process change modes, owners and extended attributes of files: of all files of
	// its user, because Landlock does not restrict that.
	Modes bool
}

// Timeouts are the deadlines of a plugin's start, calls and stop; 0 is the agent's own default. Its
// fields are those of [driverclient.Timeouts].
type Timeouts struct {
	Handshake time.Duration // from exec to the connection; default 30 s: a hypervisor that boots is busy
	Info      time.Duration // default 5 s
	Configure time.Duration // default 30 s
	Nodes     time.Duration // AvailableNodes, NodeDeleted; default 30 s
	Update    time.Duration // UpdateProviderTree, ReshapeStep, Guests, Instances; default 60 s
	Instance  time.Duration // Spawn, Destroy, SetPower; default 10 min
	Health    time.Duration // one health check; default 3 s
	Stop      time.Duration // Shutdown, before the process is killed; default 10 s
}

// plugin returns what the checks need of the options.
func (o Options) plugin() checks.Plugin {
	return checks.Plugin{
		Path: o.Path, Args: o.Args, Env: o.Env, Config: o.Config, FormerPath: o.FormerPath, Former: o.Former,
		Instances: (*checks.InstanceTemplate)(o.Instances), Sandbox: (*launch.Sandbox)(o.Sandbox),
		NoSandbox: o.NoSandbox, Limits: driverclient.Timeouts(o.Limits), CheckTimeout: o.CheckTimeout, Log: o.Log,
	}
}
