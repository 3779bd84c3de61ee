// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

func checkConfig(_ context.Context, e *Env) []Result {
	if e.ConfigErr != nil {
		return fail(firstProblem(e.ConfigErr),
			"The agent does not start, and a running one does not reload. The other checks use what could be read.",
			"compute-agent config check --config "+e.Config.File())
	}
	files, agentText := e.Config.Files(), ""
	if e.AgentDescription != "" {
		agentText = "; this is " + e.AgentDescription
	}
	if len(files) == 0 {
		return pass("no file %s; the defaults apply%s", e.Config.File(), agentText)
	}
	for _, name := range files {
		f, err := e.stat(name)
		if err != nil {
			return fail(reason(err, name), "It existed a moment ago; the next reload fails.", "ls -l "+name)
		}
		if !e.agentMay(name, f, 4) {
			return fail(fmt.Sprintf("%s (mode %04o) cannot be read by %s", name, f.Mode.Perm(), e.Agent.Name),
				"The agent does not start without its configuration.",
				e.command("chgrp %s %s && chmod g+r %s", e.Agent.Name, name, name))
		}
		if f.Mode.Perm()&0o002 != 0 {
			return fail(fmt.Sprintf("%s has mode %04o: all users can change it", name, f.Mode.Perm()),
				"The configuration names programs that the agent starts.", e.command("chmod o-w %s", name))
		}
	}
	return pass("%s, %s%s", textutil.Count(len(files), "file"), strings.Join(files, ", "), agentText)
}

// firstProblem is the first of the problems of a configuration, and how many more there are.
func firstProblem(err error) string {
	var all config.Problems
	if !errors.As(err, &all) || len(all) == 0 {
		return err.Error()
	}
	first := all[0]
	found := fmt.Sprintf("%s: %s", first.Source, strings.TrimPrefix(first.Key+": "+first.What, ": "))
	if more := len(all) - 1; more > 0 {
		found += fmt.Sprintf(" (and %d more)", more)
	}
	return found
}

func checkDrivers(_ context.Context, e *Env) []Result {
	names := e.Config.EnabledDrivers()
	if len(names) > 0 {
		return pass("%s", strings.Join(names, ", "))
	}
	file := filepath.Join(filepath.Dir(e.Config.File()), "conf.d", "libvirt.toml")
	return warn("no driver is enabled", "The agent needs a driver to report this machine's inventory.",
		e.command(`sh -c 'mkdir -p %s && printf "[drivers.libvirt]\n" > %s'`, filepath.Dir(file), file))
}

// computeID is Nova's file with the uuid of the compute node.
const computeID = "compute_id"

// checkComputeID reads the files in the configuration and state directories, as Nova does. All that
// exist must agree.
func checkComputeID(_ context.Context, e *Env) []Result { return asAgent(e, e.identity) }

func (e *Env) identity() []Result {
	const why = "The identity links this host to its resource provider. The agent does not start if it is not " +
		"certain, because it could write to another host's."
	type identityFile struct{ path, id string }
	var all []identityFile
	for _, dir := range []string{filepath.Dir(e.Config.File()), e.Config.Agent.StateDir} {
		path := filepath.Join(dir, computeID)
		text, err := readShort(e.path(path))
		if os.IsNotExist(err) || len(all) > 0 && all[0].path == path {
			continue
		}
		if os.IsPermission(err) {
			return e.closed(path, why)
		}
		if err != nil {
			return fail(reason(err, path), why, "ls -l "+path)
		}
		id, err := providertree.CanonicalUUID(strings.TrimSpace(text))
		if err != nil {
			return fail(path+" does not contain exactly one uuid", why,
				fmt.Sprintf("openstack resource provider list --name %s -f value -c uuid > %s",
					e.Config.Agent.Host, path))
		}
		all = append(all, identityFile{path, id})
	}
	switch {
	case len(all) == 0:
		return e.firstStart(why)
	case len(all) == 2 && all[0].id != all[1].id:
		return fail(
			fmt.Sprintf("two identities: %s in %s and %s in %s", all[0].id, all[0].path, all[1].id, all[1].path),
			why,
			fmt.Sprintf("openstack resource provider list --name %s -f value -c uuid   # then remove the file with "+
				"the other uuid", e.Config.Agent.Host))
	}
	return e.sameHost(all[0].id, why)
}

// firstStart checks whether a missing identity was lost.
func (e *Env) firstStart(why string) []Result {
	state, err := identity.Open(e.path(e.Config.Agent.StateDir))
	if err == nil {
		err = state.CheckFirstStart(ownership.DirName)
	}
	if result := e.refused(err, why); result != nil {
		return result
	}
	return pass("none yet; the first start creates one")
}

// sameHost checks that this is the host that the recorded identity belongs to.
func (e *Env) sameHost(id, why string) []Result {
	state, err := identity.Open(e.path(e.Config.Agent.StateDir))
	var note string
	if err == nil {
		machine, _ := identity.Machine(e.path(identity.MachineFile)) // the check handles a missing one
		note, err = state.Check(identity.Self{UUID: id, Host: e.Config.Agent.Host, Machine: machine})
	}
	if result := e.refused(err, why); result != nil {
		return result
	}
	if note != "" {
		return warn(note, why, "hostnamectl   # is this the host it was recorded on?")
	}
	return pass("%s", id)
}

// refused returns the error that would stop the agent.
func (e *Env) refused(err error, why string) []Result {
	var refused *identity.Error
	switch {
	case errors.As(err, &refused):
		return fail(strings.ReplaceAll(refused.Problem, e.Root, ""), why, strings.ReplaceAll(refused.Hint, e.Root, ""))
	case errors.Is(err, fs.ErrPermission):
		return e.closed(filepath.Join(e.Config.Agent.StateDir, identity.FileName), why)
	case err != nil:
		return fail(err.Error(), why, "ls -l "+e.Config.Agent.StateDir)
	}
	return nil
}

// closed is the result for a file that may not be read: by the agent, if root asks.
func (e *Env) closed(path, why string) []Result {
	if e.Self == 0 && e.Agent.ReadsAll {
		return skip("%s", e.byCapability(path))
	}
	if e.Self == 0 && e.Become != nil {
		return fail(fmt.Sprintf("%s cannot read %s", e.Agent.Name, path), why, "ls -l "+path)
	}
	return skip("%s is not readable; run this command as %s or root", path, e.Agent.Name)
}

// readShort reads up to 4096 bytes of a file.
func readShort(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(data), err
}
