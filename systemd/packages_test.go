// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// packaged returns the rows of packaging/files, with the sources that exist without a build.
func packaged(t *testing.T) [][]string {
	t.Helper()
	content := testproc.Try(os.ReadFile("../packaging/files")).Or(t)
	var rows [][]string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) != 6 {
			t.Fatalf("packaging/files: not six columns: %s", line)
		}
		sources := testproc.Try(filepath.Glob(filepath.Join("..", fields[5]))).Or(t)
		built := strings.HasPrefix(fields[5], "bin/") || fields[2] == "generated"
		if len(sources) == 0 && !built {
			t.Errorf("packaging/files: %s does not exist", fields[5])
		}
		for _, source := range sources {
			row := append([]string{}, fields...)
			if strings.HasSuffix(row[4], "/") {
				row[4] += path.Base(source)
			}
			row[5] = source
			rows = append(rows, row)
		}
	}
	return rows
}

// TestEveryFileIsInOnePackage: each unit, drop-in and configuration file is in exactly one package,
// and no two packages have the same file.
func TestEveryFileIsInOnePackage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	sources, destinations := map[string]int{}, map[string]string{}
	for _, row := range packaged(t) {
		sources[row[5]]++
		for _, packager := range []string{"deb", "rpm"} {
			if row[1] != "both" && row[1] != packager {
				continue
			}
			key := packager + " " + row[4]
			if other := destinations[key]; other != "" {
				t.Errorf("%s is in %s and in %s", key, other, row[0])
			}
			destinations[key] = row[0]
		}
		inEtc := strings.HasPrefix(row[4], "/etc/")
		if inEtc != (row[2] == "config") {
			t.Errorf("%s is %s: files in /etc, and no others, are config", row[4], row[2])
		}
	}
	for _, dir := range []string{"units", "config"} {
		testproc.Check(t, fs.WalkDir(os.DirFS("."), dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && sources[filepath.Join("..", "systemd", name)] != 1 {
				t.Errorf("systemd/%s is in %d packages, want 1", name, sources[filepath.Join("..", "systemd", name)])
			}
			return err
		}))
	}
}

// TestPackagesAreDescribed: each package of packaging/files has a description, and is named like
// its file.
func TestPackagesAreDescribed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	files := testproc.Try(filepath.Glob("../packaging/*.yaml")).Or(t)
	described := map[string]bool{}
	for _, file := range files {
		content := testproc.Try(os.ReadFile(file)).Or(t)
		var p struct {
			Name        string
			Description string
			Overrides   map[string]struct{ Depends []string }
		}
		testproc.NoErrorf(t, yaml.Unmarshal(content, &p), "%s", file)
		if p.Name+".yaml" != filepath.Base(file) || p.Description == "" || len(p.Overrides["deb"].Depends) == 0 ||
			len(p.Overrides["rpm"].Depends) == 0 {
			t.Errorf("%s: name %q; a description and dependencies for deb and rpm are required", file, p.Name)
		}
		described[p.Name] = true
	}
	for _, row := range packaged(t) {
		if !described[row[0]] {
			t.Errorf("packaging/%s.yaml does not exist, and packaging/files has its files", row[0])
		}
	}
}

// TestUnitsRunPackagedPrograms: a unit runs programs of its own package or of one that its package
// depends on.
func TestUnitsRunPackagedPrograms(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	programs, checked := map[string]string{"/usr/bin/compute-agent": "compute-agent-common",
		"/usr/libexec/compute-agent/plugins/compute-driver-libvirt": "compute-agent-driver-libvirt"}, 0
	exec := regexp.MustCompile(`(?m)^ExecStart=(\S+)`)
	for _, row := range packaged(t) {
		if filepath.Ext(row[5]) != ".service" {
			continue
		}
		unit := testproc.Try(os.ReadFile(row[5])).Or(t)
		program := exec.FindSubmatch(unit)
		if program == nil {
			t.Fatalf("%s has no ExecStart=", row[5])
		}
		of := programs[string(program[1])]
		description := testproc.Try(os.ReadFile("../packaging/" + row[0] + ".yaml")).Or(t)
		if of == "" || (of != row[0] && !strings.Contains(string(description), of+" (= @VERSION@)")) {
			t.Errorf("%s of package %s runs %s of package %q, on which it does not depend",
				row[5], row[0], program[1], of)
		}
		checked++
	}
	testproc.Equal(t, checked, 5, "%d services")
}

func TestPackageVersions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for described, want := range map[string]string{
		"v1.2.0-0-g0123456789ab":            "1.2.0",
		"v1.2.0-rc.1-0-g0123456789ab":       "1.2.0~rc.1",
		"v1.2.0-5-g0123456789ab":            "1.2.0+5.g0123456789ab",
		"v1.2.0-rc.1-5-g0123456789ab.dirty": "1.2.0~rc.1+5.g0123456789ab.dirty",
		"v1.2.0-0-g0123456789ab.dirty":      "1.2.0+dirty",
	} {
		out, err := exec.CommandContext(t.Context(), "../packaging/version.sh", described).Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q %v, want %s", described, out, err, want)
		}
	}
	for _, order := range [][2]string{{"0.0.0~git20261124031500.0123456789ab", "1.2.0~rc.1"},
		{"1.2.0~rc.1", "1.2.0~rc.1+5.gab"}, {"1.2.0~rc.1+5.gab", "1.2.0"}, {"1.2.0", "1.2.0+5.gab"},
		{"1.2.0+5.gab", "1.2.1~rc.1"}} {
		if err := exec.CommandContext(t.Context(), "dpkg",
			"--compare-versions", order[0], "lt", order[1]).Run(); err != nil {
			t.Errorf("dpkg: %s is not before %s: %v", order[0], order[1], err)
		}
	}
}
