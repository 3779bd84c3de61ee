// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDocsNameExistingCommands: each command of compute-agent in the documentation exists, with its
// flags, their values and its arguments, and so does each that make, systemctl and journalctl are
// run for.
func TestDocsNameExistingCommands(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testCommandsOfDocs(t, map[string]commandCheck{
		"compute-agent": checkOwnCommand, "make": makeTargets(t), "systemctl": unitCommands(t),
		"journalctl": unitCommands(t),
	})
}

// TestRealDocsNameExistingCommands is the same for OpenStack's client, which has to be installed.
func TestRealDocsNameExistingCommands(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	openstack := openstackCommands(t)
	testCommandsOfDocs(t, map[string]commandCheck{"openstack": openstack})
	for text, good := range map[string]bool{"server creat": false, "resource provider lst": false,
		"resource provider list --name cn1": true} {
		if err := openstack(strings.Fields(text), false); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// commandCheck checks the arguments of a command, which may be mentioned only.
type commandCheck func(args []string, mentioned bool) error

func testCommandsOfDocs(t *testing.T, checks map[string]commandCheck) {
	t.Helper()
	found := map[string]int{}
	for _, s := range snippets(t) {
		for _, words := range s.commands() {
			name := filepath.Base(words[0])
			check := checks[name]
			if check == nil || len(words) == 1 {
				continue
			}
			found[name]++
			testproc.NoErrorf(t, check(words[1:], s.lang == "inline"), "%s: `%s`", s.place, strings.Join(words, " "))
		}
	}
	for name, least := range map[string]int{"compute-agent": 400, "make": 40, "systemctl": 40,
		"journalctl": 5, "openstack": 50} {
		if checks[name] != nil && found[name] < least {
			t.Errorf("%d commands of %s are found, fewer than %d", found[name], name, least)
		}
	}
}

// placeholder is an argument that stands for what a reader puts there.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z0-9_./:-]*$|^<.*>$|…|\.\.\.|SUBSTITUTED|\$|^[A-Z]+/`)

// checkOwnCommand checks arguments of compute-agent. A command that is only mentioned may have too
// few of them.
func checkOwnCommand(args []string, mentioned bool) error {
	if regexp.MustCompile(`^v?\d+\.\d+|^└─$`).MatchString(args[0]) || placeholder.MatchString(args[0]) {
		return nil // the version that a page shows, or a line of a picture
	}
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	if !cmd.HasParent() {
		rest = args
	}
	var positional []string
	for i := 0; i < len(rest); i++ {
		word := strings.Trim(rest[i], "[]")
		if word == "--" {
			positional = append(positional, rest[i+1:]...)
			break
		}
		name, value, given := strings.Cut(word, "=")
		flag, err := flagOf(cmd, name)
		switch {
		case err != nil:
			return err
		case flag == nil:
			if word != "" {
				positional = append(positional, word)
			}
			continue
		case !given && flag.NoOptDefVal == "" && (!mentioned || i+1 < len(rest)):
			if i++; i == len(rest) {
				return fmt.Errorf("%s needs a value", word)
			}
			value = strings.Trim(rest[i], "[]")
		}
		if value != "" && !placeholder.MatchString(value) {
			if err := flag.Value.Set(value); err != nil {
				return fmt.Errorf("%s %s: %w", name, value, err)
			}
		}
	}
	if cmd.HasSubCommands() && len(positional) > 0 {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), positional[0])
	}
	if mentioned && len(positional) == 0 || slices.ContainsFunc(positional,
		func(s string) bool { return strings.Contains(s, "...") || strings.Contains(s, "…") }) {
		return nil
	}
	own := 0 // a group has no flags but --help
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" {
			own++
		}
	})
	if cmd.HasSubCommands() && own == 0 && !mentioned {
		return fmt.Errorf("%s is a group of commands", cmd.CommandPath())
	}
	return cmd.ValidateArgs(positional)
}

// TestWrongCommandsAreFound: the checks refuse what does not exist.
func TestWrongCommandsAreFound(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	units, targets := unitCommands(t), makeTargets(t)
	for text, check := range map[string]func([]string, bool) error{
		"statsu": checkOwnCommand, "status --colour": checkOwnCommand, "status -o xml": checkOwnCommand,
		"config chek": checkOwnCommand, "reshape": checkOwnCommand,
		"placement serve extra": checkOwnCommand, "run --config": checkOwnCommand, "node remove --yes": checkOwnCommand,
		"restart compute-agnet": units, "-u compute-agent-cells": units, "enable --now compute-agent.sock": units,
		"tests": targets, "oracle DURATION=1h": targets,
	} {
		if err := check(strings.Fields(text), false); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	for text, check := range map[string]func([]string, bool) error{
		"status -o json": checkOwnCommand, "config check --config FILE": checkOwnCommand,
		"restart compute-agent compute-agent-cell@cell1": units,
		"oracle TIME=1h": targets,
	} {
		testproc.NoErrorf(t, check(strings.Fields(text), false), "%q", text)
	}
}

// flagOf is the flag that a word names, or nil if the word names none.
func flagOf(cmd *cobra.Command, word string) (*pflag.Flag, error) {
	var flag *pflag.Flag
	name, long := strings.CutPrefix(word, "--")
	cmd.InitDefaultHelpFlag()
	all := []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()}
	switch {
	case long:
		for _, set := range all {
			flag = cmpFlag(flag, set.Lookup(name))
		}
	case strings.HasPrefix(word, "-") && len(word) == 2:
		for _, set := range all {
			flag = cmpFlag(flag, set.ShorthandLookup(word[1:]))
		}
	default:
		return nil, nil
	}
	if flag == nil {
		return nil, fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
	}
	return flag, nil
}

func cmpFlag(a, b *pflag.Flag) *pflag.Flag {
	if a != nil {
		return a
	}
	return b
}

// makeTargets checks targets and variables of make against the Makefile.
func makeTargets(t *testing.T) func([]string, bool) error {
	content, err := os.ReadFile("../../Makefile")
	module, errModule := os.ReadFile("internal/scaffold/templates/Makefile.tmpl") // of what `plugin new` writes
	testproc.Check(t, errors.Join(err, errModule))
	content = append(content, module...)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z -]*):(?:[^=]|$)`).FindAllStringSubmatch(string(content), -1) {
		for _, name := range strings.Fields(m[1]) {
			targets[name] = true
		}
	}
	return func(args []string, _ bool) error {
		for _, arg := range args {
			arg = strings.Trim(arg, "[]")
			if name, _, is := strings.Cut(arg, "="); is {
				if !regexp.MustCompile(`\$\$?[({]` + name + `\b|\b(or|if) \$\(` + name + `\b|\(origin ` + name + `\)`).
					MatchString(string(content)) {
					return fmt.Errorf("the Makefile has no variable %s", name)
				}
			} else if !targets[arg] && !placeholder.MatchString(arg) && !strings.HasPrefix(arg, "-") {
				return fmt.Errorf("the Makefile has no target %s", arg)
			}
		}
		return nil
	}
}

// otherUnits are units of others that the pages name.
var otherUnits = []string{
	"libvirtd.service", "libvirtd.socket", "libvirtd-ro.socket", "libvirtd-admin.socket", "virtqemud.service",
	"nova-compute.service", "placement-api.service", "systemd-journal-upload.service", "systemd-journald.service",
}

// unitCommands checks the names of units in arguments of systemctl and journalctl.
func unitCommands(t *testing.T) func([]string, bool) error {
	known := slices.Clone(otherUnits)
	for _, pattern := range []string{"*.service", "*.socket"} {
		files, err := filepath.Glob("../../systemd/units/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(err, files)
		}
		for _, file := range files {
			known = append(known, filepath.Base(file))
		}
	}
	instance := regexp.MustCompile(`@[^.]+`)
	return func(args []string, _ bool) error {
		for i, arg := range args {
			unit, isUnit := strings.CutPrefix(arg, "--unit=")
			switch {
			case isUnit:
			case strings.HasPrefix(arg, "-") || i > 0 &&
				slices.Contains([]string{"-p", "-n", "-o", "--since", "-S", "-t", "-g", "--grep", "-D"}, args[i-1]):
				continue
			case i > 0 && args[i-1] == "-u":
				unit = arg
			case i == 0 || strings.Contains(arg, "="): // the verb of systemctl, a field of journalctl
				continue
			default:
				unit = arg
			}
			if placeholder.MatchString(unit) {
				continue
			}
			unit = strings.TrimSuffix(instance.ReplaceAllString(unit, "@"), "*")
			if !strings.Contains(unit, ".") {
				unit += ".service"
			}
			if !slices.Contains(known, unit) {
				return fmt.Errorf("there is no unit %s", unit)
			}
		}
		return nil
	}
}

// openstackCommands checks that OpenStack's client, with the plugin for Placement, has a command.
func openstackCommands(t *testing.T) func([]string, bool) error {
	known := map[string]bool{"complete": true, "help": true}
	for _, pattern := range []string{"python_openstackclient-*", "osc_placement-*"} {
		files, err := filepath.Glob("/usr/lib/python3/dist-packages/" + pattern + "/entry_points.txt")
		if err != nil || len(files) != 1 {
			testproc.NotRun(t,
				"commands of openstack: install Debian's python3-openstackclient and python3-osc-placement")
		}
		content := testproc.Try(os.ReadFile(files[0])).Or(t)
		for _, m := range regexp.MustCompile(`(?m)^([a-z0-9_]+) *=`).FindAllStringSubmatch(string(content), -1) {
			known[strings.ReplaceAll(m[1], "_", " ")] = true
		}
	}
	return func(args []string, mentioned bool) error {
		var words []string
		for i := 0; i < len(args); i++ {
			if strings.HasPrefix(args[i], "--os-") && !strings.Contains(args[i], "=") {
				i++
				continue
			}
			if strings.HasPrefix(args[i], "-") {
				if len(words) == 0 {
					continue
				}
				break
			}
			words = append(words, args[i])
		}
		for n := len(words); n > 0; n-- {
			if known[strings.Join(words[:n], " ")] {
				return nil
			}
		}
		if len(words) == 0 && mentioned { // options only
			return nil
		}
		whole := strings.Join(words, " ")
		for name := range known {
			if mentioned && strings.HasPrefix(name, whole+" ") {
				return nil
			}
		}
		return fmt.Errorf("the client has no command %q", whole)
	}
}
