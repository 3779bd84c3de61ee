// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// installed is a package of a Debian root.
type installed struct {
	paragraph string // of dpkg's status
	files     []string
}

// packages are those of a Debian root by name, which of them each name stands for, virtual ones
// included, and the names of those that every Debian has.
type packages struct {
	all      map[string]installed
	provided map[string][]string
	basic    []string
}

var (
	fieldOfPackage = regexp.MustCompile(`(?m)^(Package|Provides|Essential|Priority): (.*)$`)
	relations      = regexp.MustCompile(`(?m)^(?:Pre-Depends|Depends|Recommends): (.*)$`)
	nameInRelation = regexp.MustCompile(`(?:^|[,|]) *([a-z0-9][a-z0-9+.-]+)`)
	// asked are the packages that the page says a hypervisor has.
	asked = regexp.MustCompile("with libvirt \\(((?:`[a-z0-9-]+`(?:, )?)+)\\)")
)

// related are the packages that fields of a package's description name: whichever alternatives.
func related(paragraph string) (names []string) {
	for _, field := range relations.FindAllStringSubmatch(paragraph, -1) {
		for _, name := range nameInRelation.FindAllStringSubmatch(field[1], -1) {
			names = append(names, name[1])
		}
	}
	return names
}

// packagesOf reads what is installed in a root.
func packagesOf(t *testing.T, root string) packages {
	t.Helper()
	all := packages{all: map[string]installed{}, provided: map[string][]string{}}
	status := testproc.Try(os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))).Or(t)
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(status)), "\n\n") {
		fields := map[string]string{}
		for _, field := range fieldOfPackage.FindAllStringSubmatch(paragraph, -1) {
			fields[field[1]] = field[2]
		}
		name := fields["Package"]
		p := installed{paragraph: paragraph}
		lists := testproc.Try(filepath.Glob(filepath.Join(root, "var/lib/dpkg/info", name+"*.list"))).Or(t)
		for _, list := range lists {
			if base, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ":"); base == name {
				p.files = append(p.files, strings.Fields(string(testproc.Try(os.ReadFile(list)).Or(t)))...)
			}
		}
		all.all[name] = p
		all.provided[name] = append(all.provided[name], name)
		for _, virtual := range nameInRelation.FindAllStringSubmatch(fields["Provides"], -1) {
			all.provided[virtual[1]] = append(all.provided[virtual[1]], name)
		}
		if fields["Essential"] == "yes" || fields["Priority"] == "required" {
			all.basic = append(all.basic, name)
		}
	}
	return all
}

// ofPage are the packages that a machine of the page has or installs, and what ours among them
// depend on.
func ofPage(t *testing.T, name string, chapters []chapter) (names []string) {
	t.Helper()
	if strings.HasPrefix(name, "cn") {
		found := asked.FindStringSubmatch(string(testproc.Try(os.ReadFile(startedPage)).Or(t)))
		if found == nil {
			t.Fatalf("%s does not say which packages a hypervisor needs", startedPage)
		}
		names = strings.FieldsFunc(found[1], func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	for _, c := range chapters {
		for _, s := range c.steps {
			arguments, installs := strings.CutPrefix(s.command, "apt-get install ")
			if !installs || !slices.Contains(s.machines, name) {
				continue
			}
			for _, argument := range strings.Fields(arguments) {
				switch {
				case strings.HasPrefix(argument, "./"):
					debs := testproc.Try(filepath.Glob(filepath.Join(*packagesDir, "newer", argument))).Or(t)
					testproc.Equal(t, len(debs), 1, "%d packages are "+argument)
					fields := testproc.Try(exec.CommandContext(t.Context(), "dpkg-deb", "--field", debs[0]).Output()).
						Or(t)
					names = append(names, related(string(fields))...)
				case !strings.HasPrefix(argument, "-"):
					names = append(names, argument)
				}
			}
		}
	}
	return names
}

// hidden are the files of a package without which nothing that needs it works: programs, shared
// libraries, and modules of Python and how these are found.
func hidden(file string) bool {
	base := path.Base(file)
	return slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, path.Dir(file)) ||
		path.Ext(base) == ".so" || strings.Contains(base, ".so.") ||
		strings.HasPrefix(file, "/usr/lib/python3") && (path.Ext(base) == ".py" || base == "entry_points.txt")
}

// bare takes from a machine what the root of all has and a machine of the page does not: what is
// neither part of the smallest Debian that boots, nor what the page asks for, nor what it installs
// there, nor what these depend on or recommend. What the page forgets is then missing.
func (m *machine) bare(t *testing.T, root packages, name string, chapters []chapter) {
	t.Helper()
	has := slices.Concat(root.basic, []string{"apt", "systemd", "systemd-sysv", "dbus"}, ofPage(t, name, chapters))
	kept, files := map[string]installed{}, map[string]bool{}
	for len(has) > 0 {
		for _, one := range root.provided[has[0]] {
			if _, is := kept[one]; !is {
				kept[one] = root.all[one]
				has = append(has, related(root.all[one].paragraph)...)
			}
		}
		has = has[1:]
	}
	var status, gone strings.Builder
	for _, one := range slices.Sorted(maps.Keys(kept)) {
		status.WriteString(kept[one].paragraph + "\n\n")
		for _, file := range kept[one].files {
			files[file] = true
		}
	}
	var without []string
	for _, one := range slices.Sorted(maps.Keys(root.all)) {
		if _, is := kept[one]; is {
			continue
		}
		without = append(without, one)
		for _, file := range root.all[one].files {
			if hidden(file) && !files[file] {
				gone.WriteString(file + "\n")
			}
		}
	}
	if !slices.Contains(without, "zsh") || slices.Contains(without, "systemd") {
		t.Fatalf("%s has no %v", name, without)
	}
	t.Logf("%s is without %d packages: %v", name, len(without), without)
	rm := m.command(t.Context(), "xargs", "--delimiter=\\n", "rm", "--force", "--")
	rm.Stdin = strings.NewReader(gone.String())
	if out, err := rm.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	m.write(t, "/var/lib/dpkg/status", status.String()) // what is not there depends on nothing, and has no triggers
}
