// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// aSection finds the name of a table at the beginning of a line of TOML.
var aSection = regexp.MustCompile(`(?m)^\[+([a-z_]+)[].]`)

// TestDocsHaveValidConfiguration: each configuration in the pages is valid: its keys and values,
// and the keys of the libvirt and the fake driver.
func TestDocsHaveValidConfiguration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	found := 0
	names := config.SectionsOf(config.AgentService,
		config.PlacementService, config.ComputeAPIService, config.CellService)
	keys := map[string]map[string]bool{"libvirt": schemaKeys(t, "libvirt"), "fake": schemaKeys(t, "fake")}
	for _, s := range snippets(t) {
		section := aSection.FindStringSubmatch(s.text)
		if s.lang == "toml" && section == nil || s.lang != "toml" &&
			(s.lang != "" || section == nil || !strings.HasPrefix(strings.TrimSpace(withoutComments(s.text)), "[")) {
			continue
		}
		if s.lang == "" && !slices.Contains(names, section[1]) {
			continue // of another program
		}
		if strings.HasPrefix(section[0], "[[") {
			continue // a scenario of the fake driver
		}
		found++
		testproc.NoErrorf(t, validTOML(t, s.text, keys), "%s", s.place)
	}
	if found < 30 {
		t.Errorf("only %d configurations are found", found)
	}
	for text, wrong := range map[string]bool{
		"[agent]\nhots = 'a'": true, "[tracker]\npass_deadline = 3": true, "[drivers.libvirt.config]\nury = 'a'": true,
		"[drivers.libvirt.config]\nuri = 'a'": false,
	} {
		if err := validTOML(t, text, keys); (err != nil) != wrong {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func withoutComments(text string) string {
	return regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(text, "")
}

// validTOML loads a configuration strictly, as if systemd had passed all credentials. What is left
// out of an example may be missing: a key that another one needs.
func validTOML(t *testing.T, text string, keys map[string]map[string]bool) error {
	file := filepath.Join(t.TempDir(), "page.toml")
	testproc.Check(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "\n...", "")), 0o600))
	cfg, err := config.Load(config.Options{
		File: file, Environ: []string{}, Uses: []string{},
		UID: func() int { return 0 }, Hostname: func() (string, error) { return "cn1", nil },
	})
	if err != nil {
		return err
	}
	for name, driver := range cfg.Drivers {
		for key := range driver.Config {
			if keys[name] != nil && !keys[name][key] {
				return fmt.Errorf("driver %s has no key %s", name, key)
			}
		}
	}
	return nil
}

// schemaKeys are the keys of a driver's own table.
func schemaKeys(t *testing.T, driver string) map[string]bool {
	content := testproc.Try(os.ReadFile("../../drivers/" + driver + "/schema.json")).Or(t)
	var schema struct{ Properties map[string]json.RawMessage }
	testproc.Check(t, json.Unmarshal(content, &schema))
	keys := map[string]bool{}
	for key := range schema.Properties {
		keys[key] = true
	}
	return keys
}

// chosen are names of files below /etc/compute-agent that operators choose: what a configuration in
// the pages names.
var chosen = regexp.MustCompile(
	`\.(pem|key|password|yaml)$|^(tokens|placement-tokens?|keystone-password|database-password|credentials/` +
		`.+|conf\.d/[a-z0-9-]+\.toml|(placement|scenario|cell[0-9]+(-servers)?)\.toml|ca|NAME\.toml)$`)

var ourPath = regexp.MustCompile(`(/usr/libexec|/etc|/var/lib)/compute-agent([A-Za-z0-9@_./*-]*)`)

// TestDocsNameExistingFiles: each file in the directories of the packages that a page names is
// installed, is made by the program, or is one that operators choose.
func TestDocsNameExistingFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := installed(t)
	literals := sourceText(t)
	found := 0
	for _, s := range snippets(t) {
		for _, m := range ourPath.FindAllStringSubmatch(s.text, -1) {
			found++
			path := strings.TrimRight(m[0], ".*/-")
			testproc.NoErrorf(t, existing(path, known, literals), "%s", s.place)
		}
	}
	if found < 100 {
		t.Errorf("only %d paths are found", found)
	}
	for path, wrong := range map[string]bool{
		"/etc/compute-agent/compute-agnet.toml": true, "/usr/libexec/compute-agent/compute-driver-libvirt": true,
		"/var/lib/compute-agent-nothing":     true,
		"/var/lib/compute-agent/compute_idd": true, "/var/lib/compute-agent/compute_id": false,
		"/etc/compute-agent/cell0.toml": false,
	} {
		if err := existing(path, known, literals); (err != nil) != wrong {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// existing says why there cannot be a file or a directory.
func existing(path string, known map[string]bool, literals string) error {
	if known[path] {
		return nil
	}
	if rest, is := strings.CutPrefix(path, "/etc/compute-agent/"); is {
		if chosen.MatchString(rest) || rest == "provider_config" || rest == "compute_id" {
			return nil
		}
	}
	if regexp.MustCompile(`^/usr/libexec/compute-agent/plugins/compute-driver-[a-z-]+$`).MatchString(path) {
		return nil
	}
	state := regexp.MustCompile(
		`^/var/lib/compute-agent(-placement|-cells-api|-cell-[a-zA-Z0-9]+|-images|-instances)?(?:/(.*))?$`).
		FindStringSubmatch(path)
	if state == nil {
		return fmt.Errorf("nothing makes %s", path)
	}
	if state[2] == "" || state[1] == "-images" || state[1] == "-instances" {
		return nil
	}
	name, _, _ := strings.Cut(state[2], "/")
	if name = strings.TrimSuffix(strings.TrimPrefix(name, "."), ".created"); !strings.Contains(literals,
		`"`+name+`"`) && !strings.Contains(literals, `/`+name+`"`) {
		return fmt.Errorf("no file %s is in the state directory: %s", name, path)
	}
	return nil
}

// installed are the files and directories of the packages.
func installed(t *testing.T) map[string]bool {
	known := map[string]bool{}
	packages, err := os.ReadFile("../../packaging/files")
	dirs, errDirs := os.ReadFile("../../systemd/units/tmpfiles.conf")
	testproc.Check(t, errors.Join(err, errDirs))
	for line := range strings.Lines(string(packages)) {
		fields := strings.Fields(line)
		if len(fields) != 6 || strings.HasPrefix(line, "#") {
			continue
		}
		if to := fields[4]; strings.HasSuffix(to, "/") {
			known[to+filepath.Base(fields[5])] = true
			known[strings.TrimSuffix(to, "/")] = true
		} else {
			known[to] = true
		}
	}
	for line := range strings.Lines(string(dirs)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "d" {
			known[fields[1]] = true
		}
	}
	return known
}

// sourceText is the source of all programs, without tests.
func sourceText(t *testing.T) string {
	var all strings.Builder
	for _, dir := range []string{"cmd", "cells", "internal", "placement", "reportclient",
		"resourcetracker", "plugins", "drivers"} {
		err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			all.Write(content)
			return err
		})
		testproc.Check(t, err)
	}
	return all.String()
}
