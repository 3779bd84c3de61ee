// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/systemd"
)

const (
	controlSocketName = "agent.sock"

	// pluginPrefix is what the name of a plugin's executable begins with.
	pluginPrefix = "compute-driver-"

	// longestSocket is the longest name of a socket below the runtime
	// directory: that of a plugin, with two random numbers of ten digits.
	longestSocket = "plugins/plugin-dir4294967295/plugin4294967295"

	// maxSocketPath is what sockaddr_un leaves for a path: 108 bytes, one of
	// them the NUL at the end (unix(7)).
	maxSocketPath = 107
)

// resolve fills in what the machine decides: names and paths that were left
// empty, and the files of credentials.
func (l *loader) resolve() {
	c := l.cfg
	if c.Agent.Host == "" {
		l.resolveHost()
	}
	l.resolveDir("agent.state_dir", &c.Agent.StateDir, "STATE_DIRECTORY", "/var/lib/compute-agent",
		"XDG_STATE_HOME", ".local/state")
	l.resolveDir("agent.runtime_dir", &c.Agent.RuntimeDir,
		"RUNTIME_DIRECTORY", "/run/compute-agent", "XDG_RUNTIME_DIR", "")
	l.resolvePlugins()
	l.resolvePlacementURL()
	sections := c.sections()
	ofCells := slices.IndexFunc(sections, func(s section) bool { return s.Name == "cell_client" })
	l.resolveCredentials(sections[:ofCells])
	if c.DenyList.URL != "" && c.DenyList.File == "" {
		c.DenyList.File = filepath.Join(c.Agent.StateDir, "denied_hosts")
		c.sources["deny_list.file"] = c.sources["deny_list.file"].orDefault("below agent.state_dir, for deny_list.url")
	}
	for key, path := range map[string]string{"deny_list.ca_file": c.DenyList.CAFile,
		"deny_list.file": c.DenyList.File} {
		if path != "" && (key != "deny_list.file" || c.DenyList.URL == "") {
			c.named = append(c.named, NamedFile{key, path})
		}
	}
	l.resolveDatabase("placement.database", &c.Placement.Database)
	l.resolveDatabase("compute_api.database", &c.ComputeAPI.Database)
	l.resolveDatabase("cell.database", &c.Cell.Database)
	l.resolveCredentials(sections[ofCells:])
}

// anyCredentials stands for the directory of the credentials of an address that is only looked at.
const anyCredentials = "/run/credentials/-"

// resolveDatabase turns the name of a credential with the password of a database into its path.
func (l *loader) resolveDatabase(key string, name *string) {
	a, err := engine.ParseAddressOf(*name, anyCredentials)
	if err != nil || a.PasswordFile == "" {
		return
	}
	path := strings.TrimPrefix(a.PasswordFile, anyCredentials+"/")
	if l.resolveCredential(key, &path); path != a.PasswordFile {
		*name = engine.SetPasswordFile(*name, path)
	}
}

// resolvePlugins finds the executables of drivers without a path: in plugins.dir and, unless that
// is set, next to the agent's executable. The default is plugins.dir.
func (l *loader) resolvePlugins() {
	c := l.cfg
	c.pluginDirs = []string{c.Plugins.Dir}
	if own, err := l.executable(); err == nil && c.sources["plugins.dir"].Kind == "" {
		if dir := filepath.Dir(own); dir != filepath.Clean(c.Plugins.Dir) {
			c.pluginDirs = append(c.pluginDirs, dir)
		}
	}
	for _, name := range sortedKeys(c.Drivers) {
		d := c.Drivers[name]
		if d.Path != "" {
			continue
		}
		key, file := driverPath(name, "path"), pluginPrefix+name
		d.Path = filepath.Join(c.Plugins.Dir, file)
		for i, dir := range c.pluginDirs {
			if _, err := os.Stat(l.path(filepath.Join(dir, file))); err != nil {
				continue
			}
			d.Path = filepath.Join(dir, file)
			if i > 0 {
				c.sources[key] = c.sources[key].orDefault("next to the agent's executable")
			}
			break
		}
	}
}

func (l *loader) executable() (string, error) {
	if l.opts.Executable != nil {
		return l.opts.Executable()
	}
	return os.Executable()
}

func (l *loader) resolveHost() {
	hostname := l.opts.Hostname
	if hostname == nil {
		hostname = os.Hostname
	}
	const hint = "set it: host = \"the name of this machine\""
	name, err := hostname()
	bad := hostName(name)
	switch {
	case err != nil:
		bad = faultf(hint, "cannot read the machine's host name (%v)", err)
	case name == "":
		bad = faultf(hint, "the machine has no host name")
	case bad != nil:
		bad.hint = hint
	}
	if bad != nil {
		l.report(bad.at("agent.host", l.cfg.sources["agent.host"].orDefault("")))
		return
	}
	l.cfg.Agent.Host = name
	l.cfg.sources["agent.host"] = l.cfg.sources["agent.host"].orDefault("the host name")
}

// resolveDir chooses a directory: what systemd made, or root's, or the user's.
func (l *loader) resolveDir(key string, dir *string, systemdVariable, root, xdgVariable, xdgFallback string) {
	if *dir != "" {
		return
	}
	uid := os.Geteuid
	if l.opts.UID != nil {
		uid = l.opts.UID
	}
	// systemd separates several directories with colons.
	given, _, _ := strings.Cut(l.env[systemdVariable], ":")
	home, origin := l.env[xdgVariable], "$"+xdgVariable
	switch {
	case filepath.IsAbs(given):
		*dir, origin = given, "$"+systemdVariable
	case uid() == 0:
		*dir, origin = root, "for root"
	case l.owner(root) == uid(): // a command or an agent that the service's user starts by hand
		*dir, origin = root, "for the user of the service"
	case filepath.IsAbs(home):
		*dir = filepath.Join(home, "compute-agent")
	case xdgFallback != "" && filepath.IsAbs(l.env["HOME"]):
		*dir, origin = filepath.Join(l.env["HOME"], xdgFallback, "compute-agent"), "$HOME"
	case xdgFallback == "" && l.cfg.Agent.StateDir != "":
		*dir, origin = filepath.Join(l.cfg.Agent.StateDir, "run"), "below agent.state_dir, without $"+xdgVariable
	default:
		l.report(faultf("set "+key+", or $"+xdgVariable,
			"cannot determine the default: neither $%s nor $%s nor $HOME is set", systemdVariable, xdgVariable).
			at(key, l.cfg.sources[key].orDefault("")))
		return
	}
	l.cfg.sources[key] = l.cfg.sources[key].orDefault(origin)
}

// owner is the number of the user that a directory belongs to, -1 if it does not exist.
func (l *loader) owner(dir string) int {
	info, err := os.Stat(l.path(dir))
	if err != nil || !info.IsDir() {
		return -1
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// credentialUnits are the units that use the credentials of sections that a service is the first to
// read. Those of a cell are its own process' alone.
var credentialUnits = map[Service]string{
	AgentService:      "compute-agent.service",
	PlacementService:  "compute-agent-placement.service",
	ComputeAPIService: "compute-agent-cells-api.service",
	CellService:       "compute-agent-cell@.service",
}

// resolveCredentials turns the names of credentials in some sections into paths.
func (l *loader) resolveCredentials(sections []section) {
	for _, s := range sections {
		for _, k := range s.keys {
			if file, is := k.field.(secretFile); is {
				l.resolveCredential(dotted(s.Name, k.Name), file.at)
			}
		}
	}
}

// resolveCredential turns the bare name of a credential into its path.
func (l *loader) resolveCredential(key string, path *string) {
	if *path == "" {
		return
	}
	if filepath.IsAbs(*path) {
		l.cfg.named = append(l.cfg.named, NamedFile{key, *path})
		return
	}
	if section, _, _ := strings.Cut(key, "."); l.opts.Uses != nil && !slices.Contains(l.opts.Uses, section) {
		l.cfg.unusedCredentials = append(l.cfg.unusedCredentials, NamedFile{key, *path})
		unit := credentialUnits[l.cfg.section(section).Readers[0]]
		if template, is := strings.CutSuffix(unit, ".service"); is && strings.HasSuffix(template, "@") &&
			strings.HasPrefix(l.opts.Unit, template) {
			unit = l.opts.Unit
		}
		*path = filepath.Join("/run/credentials", unit, *path)
		return
	}
	found, err := systemd.CredentialPath(l.env["CREDENTIALS_DIRECTORY"], *path)
	if err != nil {
		// The value is not repeated: it may be the secret, put here by mistake.
		what := "names a credential, but systemd passed none of this name"
		if l.env["CREDENTIALS_DIRECTORY"] == "" {
			what = "names a credential, but $CREDENTIALS_DIRECTORY is not set: systemd passed none"
		}
		l.report(&Problem{
			Source: l.cfg.sources[key].orDefault(""), Key: key, What: what,
			Hint:   "add LoadCredential=NAME:/path/of/the/file to the unit, or write the absolute path of a file",
			secret: true, cause: systemd.ErrNoCredential,
		})
		return
	}
	*path = found
	l.cfg.named = append(l.cfg.named, NamedFile{key, found})
}

// orDefault is the source, or the default when there is none; a computed
// default says what it was computed from.
func (s Source) orDefault(computedFrom string) Source {
	if s.Kind == "" || s.Kind == FromDefault {
		return Source{Kind: FromDefault, Name: computedFrom}
	}
	return s
}
