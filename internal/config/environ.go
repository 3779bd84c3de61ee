// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"slices"
	"strings"
)

// envPrefix begins every variable that sets a key.
const envPrefix = "COMPUTE_AGENT_"

// EnvName is the variable that stands for a key: tracker.pass_deadline is
// COMPUTE_AGENT_TRACKER_PASS_DEADLINE, drivers.my-driver.sha256 is
// COMPUTE_AGENT_DRIVERS_MY_DRIVER_SHA256.
func EnvName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// environment indexes what os.Environ returns; of a variable given twice the
// last counts.
func environment(environ []string) map[string]string {
	if environ == nil {
		environ = os.Environ()
	}
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

// applyEnvironment applies the variables, sorted by name.
func (l *loader) applyEnvironment() {
	var variables []string
	for _, name := range sortedKeys(l.env) {
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(l.opts.IgnoreEnv, name) {
			variables = append(variables, name)
		}
	}
	for _, name := range l.newDriversFirst(variables) {
		source := Source{Kind: FromEnvironment, Name: name}
		path, ok := l.keyOfVariable(name)
		if !ok {
			l.report(l.unknownVariable(name).at("", source))
			continue
		}
		l.applyText(path, l.env[name], source)
	}
}

// newDriversFirst moves COMPUTE_AGENT_DRIVERS_<NAME>_ENABLED to the front: it
// may bring in a driver that no file names, which other variables then set up.
func (l *loader) newDriversFirst(variables []string) []string {
	isEnabler := func(v string) bool { _, ok := enabledDriver(v); return ok }
	first := slices.DeleteFunc(slices.Clone(variables), func(v string) bool { return !isEnabler(v) })
	return append(first, slices.DeleteFunc(variables, isEnabler)...)
}

const driversEnvPrefix = envPrefix + "DRIVERS_"

// enabledDriver is the name in COMPUTE_AGENT_DRIVERS_<NAME>_ENABLED.
func enabledDriver(variable string) (string, bool) {
	rest, isDriver := strings.CutPrefix(variable, driversEnvPrefix)
	name, isEnabled := strings.CutSuffix(rest, "_ENABLED")
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	return name, isDriver && isEnabled && driverName.MatchString(name)
}

// keyOfVariable finds the key that a variable stands for.
func (l *loader) keyOfVariable(variable string) (string, bool) {
	for path := range l.cfg.keys() {
		if EnvName(path) == variable {
			return path, true
		}
	}
	if name, ok := enabledDriver(variable); ok {
		return dotted(driversSection, name, "enabled"), true
	}
	return "", false
}

func (l *loader) unknownVariable(variable string) *fault {
	f := faultf("unset it; `compute-agent config defaults` names the variable of every key", "no key has this variable")
	if strings.HasPrefix(variable, driversEnvPrefix) {
		f.hint = "variables set up drivers that have a table [drivers.NAME] or a variable " +
			"COMPUTE_AGENT_DRIVERS_<NAME>_ENABLED; their keys are " +
			strings.Join(names(newDriver().keys()), ", ")
		return f
	}
	var all []string
	for path := range new(Config).keys() {
		all = append(all, strings.TrimPrefix(EnvName(path), envPrefix))
	}
	if near := nearest(strings.TrimPrefix(variable, envPrefix), all); near != "" {
		f.hint = "did you mean " + envPrefix + near + "? Else " + f.hint
	}
	return f
}

// applyOverrides applies the flags.
func (l *loader) applyOverrides() {
	for _, o := range l.opts.Overrides {
		l.applyText(o.Key, o.Value, Source{Kind: FromFlag, Name: o.Flag})
	}
}

// applyText sets a key from the text of a variable or a flag.
func (l *loader) applyText(path, value string, source Source) {
	bad := faultf("", "there is no such key")
	parts := strings.SplitN(path, ".", 3)
	if s := l.cfg.section(parts[0]); s != nil && len(parts) == 2 {
		bad = applyText(s.keys, parts[1], value)
	} else if parts[0] == driversSection && len(parts) == 3 {
		var d *Driver
		if d, bad = l.driver(parts[1]); bad == nil {
			bad = applyText(d.keys(), parts[2], value)
		}
	}
	if bad != nil {
		l.report(bad.at(path, source))
		return
	}
	l.cfg.sources[path] = source
}

func applyText(keys []key, name, text string) *fault {
	k := named(keys, name)
	if k == nil {
		return faultf("the keys are "+strings.Join(names(keys), ", "), "there is no such key")
	}
	v, bad := k.fromText(text)
	if bad == nil {
		bad = k.set(v)
	}
	return bad
}
