// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// agentModule is the module of the agent. Drivers import others of its repository.
const agentModule = "github.com/compute-agent/compute-agent"

// direct are the modules that a driver imports, and indirect those that these import: all below
// agentModule.
var (
	direct   = []string{"plugins", "plugins/drivertest", "providertree"}
	indirect = []string{"internal/lib", "internal/pluginhost"}
	helpers  = []string{"test/testproc"} // of the tests of these
)

// ParamsError is all that is wrong with [Params].
type ParamsError struct {
	Problems []string
}

func (e *ParamsError) Error() string { return strings.Join(e.Problems, "\n") }

// Params is what a new module depends on.
type Params struct {
	// Name of the driver: a lower case letter, then lower case letters, digits and hyphens, up to
	// 63.
	Name string
	// Module is its module path; "" is example.com/compute-driver-NAME.
	Module string
	// AgentVersion is the version of compute-agent that it requires, as module proxies know it. Not
	// needed with Replace: then it is what the checkout's modules require each other at.
	AgentVersion string
	// Replace is a directory with a checkout of compute-agent that takes its place, or "".
	Replace string
}

// Binary is the name of the executable, by which the agent finds the driver.
func (p Params) Binary() string { return "compute-driver-" + p.Name }

var (
	driverName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	// released are tags, release candidates and pseudo-versions: not what git describe says of a
	// commit after a tag, "-dirty" or not.
	released = regexp.MustCompile(
		`^v\d+\.\d+\.\d+(-(alpha|beta|rc)[.0-9]*)?$|^v\d+\.\d+\.\d+-([0-9A-Za-z.]+\.)?\d{14}-[0-9a-f]{12}$`)
	// pathElement is stricter than Go is: what it lets through is a module path and an import path
	// on every system.
	pathElement = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._~-]*$`)
)

// shipped are the drivers that come with compute-agent.
var shipped = []string{"fake", "libvirt"}

// complete returns the parameters with everything filled in, or all that is wrong with them.
func (p Params) complete() (Params, error) {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case !driverName.MatchString(p.Name):
		wrong("driver name %q: must be a lower case letter, then lower case letters, digits and hyphens, at "+
			"most 63 in all", p.Name)
	case slices.Contains(shipped, p.Name):
		wrong("driver name %q: a driver of that name comes with compute-agent, and would be replaced by yours", p.Name)
	case p.Name == "test":
		wrong("driver name %q: compute-driver-test is the conformance suite", p.Name)
	}
	if p.Module == "" {
		p.Module = "example.com/" + p.Binary()
	}
	if why := badModule(p.Module); why != "" {
		wrong("module path %q: %s", p.Module, why)
	}
	switch {
	case p.Replace != "":
		dir, version, err := checkout(p.Replace)
		if err != nil {
			problems = append(problems, err.Error())
		}
		p.Replace, p.AgentVersion = dir, version
	case !released.MatchString(p.AgentVersion):
		wrong("this compute-agent (%s) is no release, so its modules cannot be downloaded: name a checkout of "+
			"compute-agent to build with (--replace DIR)", p.AgentVersion)
	}
	if len(problems) > 0 {
		return Params{}, &ParamsError{Problems: problems}
	}
	return p, nil
}

// badModule says why a module path is invalid, or "".
func badModule(module string) string {
	elements := strings.Split(module, "/")
	host := elements[0]
	switch {
	case len(module) > 200:
		return "has more than 200 characters"
	case path.Clean(module) != module || strings.HasPrefix(module, "/"):
		return "must be elements with a single / between them"
	case !strings.Contains(host, ".") || strings.ToLower(host) != host || strings.Contains(host, "_"):
		return "must begin with a domain name, like example.com/" + module
	case module == agentModule || strings.HasPrefix(module, agentModule+"/"):
		return "is compute-agent's own"
	}
	for _, e := range elements {
		if !pathElement.MatchString(e) || strings.HasSuffix(e, ".") {
			return fmt.Sprintf(
				"%q must be ASCII letters, digits, and - . _ ~ that are not at its begin or a . at its end", e)
		}
	}
	if v, found := strings.CutPrefix(elements[len(elements)-1], "v"); found && len(elements) > 1 {
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			return "ends in a major version, which only later releases have"
		}
	}
	return ""
}

var (
	moduleLine  = regexp.MustCompile(`(?m)^module[ \t]+"?` + regexp.QuoteMeta(agentModule) + `"?[ \t]*(//.*)?\r?$`)
	requireLine = regexp.MustCompile(`(?m)^(?:require[ \t]|[ \t])[ \t]*` + regexp.QuoteMeta(agentModule) +
		`/plugins[ \t]+(v[^ \t\r\n]+)`)
)

// checkout returns the absolute path of a checkout of compute-agent, and the version that its
// modules require each other at: with a lower one, Go would want to change the new go.mod.
func checkout(dir string) (abs, version string, err error) {
	if abs, err = filepath.Abs(dir); err != nil {
		return "", "", fmt.Errorf("--replace %s: %w", dir, err)
	}
	mod, err := os.ReadFile(filepath.Join(abs, "go.mod"))
	required := requireLine.FindSubmatch(mod)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("--replace %s: is no checkout of compute-agent: there is no go.mod", dir)
	case err != nil:
		return "", "", fmt.Errorf("--replace %s: %w", dir, err)
	case !moduleLine.Match(mod):
		return "", "", fmt.Errorf("--replace %s: is a module, but not %s", dir, agentModule)
	case required == nil:
		return "", "", fmt.Errorf(
			"--replace %s: is a checkout of an older compute-agent, which has no module %s/plugins", dir, agentModule)
	}
	return abs, string(required[1]), nil
}
