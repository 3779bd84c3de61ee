// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const startedPage = "../docs/getting-started.md"

// chapter is a part of the page below a heading of the second level.
type chapter struct {
	title string
	steps []step
}

// step is a command or a file of the page.
type step struct {
	line     int
	machines []string
	command  string
	output   string
	file     *golden.File
}

// TestGettingStarted does what docs/getting-started.md says, from its first line to its last, on
// four machines that see each other, and compares what the commands print with what the page
// shows (golden.Differs). The machines are containers on one read-only root: what they write is in
// memory. The packages are in the directory in which commands run. Each has the programs that the
// page says that it has, and those that the page installs there, and no more (bare).
func TestGettingStarted(t *testing.T) {
	needsRoot(t)
	if *onDistribution != "debian-12" {
		t.Skip("the page is about Debian 12")
	}
	t.Parallel() // as withRoot
	chapters := chaptersOf(t)
	all, packages := map[string]*machine{}, packagesOf(t, debianRoot(t, rootCache(t)))
	for i, name := range []string{"cn1", "cn2", "cn3", "ctl"} {
		all[name] = startedMachine(t, name, i)
		all[name].bare(t, packages, name, chapters)
	}
	for _, c := range chapters {
		if !t.Run(c.title, func(t *testing.T) { c.do(t, all) }) {
			return // what follows depends on it
		}
	}
	for _, m := range all {
		m.halt(t, "poweroff")
	}
}

// do does what a chapter says.
func (c chapter) do(t *testing.T, all map[string]*machine) {
	t.Helper()
	for _, s := range c.steps {
		for _, name := range s.machines {
			m := all[name]
			switch {
			case m == nil:
				t.Fatalf("%s:%d: there is no machine %s", startedPage, s.line, name)
			case s.file != nil:
				const end = "END OF THE FILE"
				if out, err := m.typed("cat >" + s.file.Path + " <<'" + end + "'\n" +
					strings.TrimSuffix(s.file.Content, "\n") + "\n" + end); err != nil {
					t.Fatalf("%s:%d: writing %s on %s: %v\n%s", startedPage, s.line, s.file.Path, name, err, out)
				}
			default:
				m.do(t, s)
			}
		}
	}
}

// chaptersOf reads the page.
func chaptersOf(t *testing.T) []chapter {
	t.Helper()
	var steps []step
	for _, c := range golden.Commands(t, startedPage, "cn1#", "cn2#", "cn3#", "ctl#", "all#") {
		machines := []string{strings.TrimSuffix(c.Prompt, "#")}
		if machines[0] == "all" {
			machines = []string{"cn1", "cn2", "cn3"}
		}
		steps = append(steps, step{line: c.Line, machines: machines, command: c.Text, output: c.Output})
	}
	for _, f := range golden.Files(t, startedPage) {
		steps = append(steps, step{line: f.Line, machines: strings.Split(f.Places, ", "), file: &f})
	}
	page := testproc.Try(os.ReadFile(startedPage)).Or(t)
	var chapters []chapter
	for i, line := range strings.Split(string(page), "\n") {
		if title, is := strings.CutPrefix(line, "## "); is {
			chapters = append(chapters, chapter{title: title})
		}
		for _, s := range steps {
			if s.line == i+1 {
				last := &chapters[len(chapters)-1]
				last.steps = append(last.steps, s)
			}
		}
	}
	if len(chapters) != 5 || len(steps) < 70 {
		t.Fatalf("%s has %d chapters with %d steps", startedPage, len(chapters), len(steps))
	}
	return chapters
}

// startedMachine boots the machine of a name. Its address is the number after that of the network.
func startedMachine(t *testing.T, name string, number int) *machine {
	t.Helper()
	base := debianRoot(t, rootCache(t))
	debs := testproc.Try(filepath.Abs(filepath.Join(*packagesDir, "newer"))).Or(t)
	// Interfaces outside have these names: nothing that another run has left is in the way.
	zone := fmt.Sprintf("s%d", os.Getpid())
	m := &machine{name: name + "-" + zone, options: []string{
		"--hostname=" + name, "--directory=" + base, "--read-only", "--volatile=overlay", "--network-zone=" + zone,
		"--bind-ro=" + debs + ":/root/packages", "--resolv-conf=off",
	}}
	// A container that is killed leaves the bridge.
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "delete", "vz-"+zone).
			Run()
	})
	t.Cleanup(m.kill)
	m.boot(t)
	m.root = fmt.Sprintf("/proc/%d/root", m.leader)
	command(t, "ip", "link", "set", "vz-"+zone, "up")
	m.write(t, "/etc/hostname", name+"\n")
	m.write(t, "/etc/hosts", "127.0.0.1 localhost\n192.0.2.1 cn1\n192.0.2.2 cn2\n192.0.2.3 cn3\n192.0.2.4 ctl\n")
	m.sh(t, fmt.Sprintf("hostname %s; ip address add 192.0.2.%d/24 dev host0; ip link set host0 up", name, number+1))
	return m
}

// joinToken is what the operator copies.
var joinToken string

// token is what `add-host` prints and an operator copies to the host.
var token = regexp.MustCompile(`\bjoin1\.[^\s;]+`)

// reads are commands that only show something. What they show may take a while to be so.
var reads = regexp.MustCompile(`( list| show| status| tree| list-hosts|virsh )`)

// typed runs a command in the shell of root that a reader of the page has open on the machine: its
// directory, mask and variables are as the commands before have left them.
func (m *machine) typed(text string) (string, error) {
	const shell = `if [ -e /run/shell ]; then . /run/shell; else cd /root/packages; fi
trap 'status=$?; { umask -p; printf "cd %q\n" "$PWD"; export -p; } >/run/shell; exit $status' EXIT
`
	return m.try("bash", "-euc", shell+text)
}

// cpuWarning is a line that the page does not show: whether libvirt and the kernel report the same
// features depends on the CPU of the machine that the tests run on.
var cpuWarning = regexp.MustCompile(`(?m)^Warning of driver libvirt on this machine \(cpu-features\): .*\n?`)

// do runs a command of the page in the machine.
func (m *machine) do(t *testing.T, s step) {
	t.Helper()
	run := func() (string, error) {
		text := s.command
		if given := token.FindString(joinToken); given != "" {
			text = token.ReplaceAllString(text, given)
		}
		out, err := m.typed(text)
		return cpuWarning.ReplaceAllString(out, ""), err
	}
	out, err := run()
	if reads.MatchString(s.command) && (err != nil || golden.Differs(s.output, out) != "") {
		eventually(t, fmt.Sprintf("%s:%d: %s", startedPage, s.line, s.command), func() error {
			if out, err = run(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			if why := golden.Differs(s.output, out); why != "" {
				return errors.New(why + "\nwhat came:\n" + out)
			}
			return nil
		})
	}
	if err != nil {
		journal, _ := m.try("journalctl", "--no-pager", "--lines=40", "--output=cat")
		t.Fatalf("%s:%d: %s# %s\n%v\n%s\nThe journal:\n%s", startedPage, s.line, m.name, s.command, err, out, journal)
	}
	if why := golden.Differs(s.output, out); why != "" {
		t.Errorf("%s:%d: %s# %s\n%s\nwhat came:\n%s", startedPage, s.line, m.name, s.command, why, out)
	}
	t.Logf("%s# %s\n%s", m.name, s.command, out)
	if given := token.FindString(out); given != "" {
		joinToken = given
	}
}
