// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMissingFiles: files that keys name are to be there, in whatever section, and nothing else of
// them is judged.
func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	testproc.Check(t, os.WriteFile(there, nil, 0o600))
	main := filepath.Join(dir, "c.toml")
	text := "[cell_client]\nca_file = \"THERE\"\ntoken_file = \"NONE\"\n[cell]\nauth = \"token\"\ntoken_file = " +
		"\"DIR\"\n[compute_api]\ncell_token_file = \"THERE/below\"\n" +
		"[placement_client]\nauth = \"token\"\ntoken_file = \"NONE\"\n"
	for name, path := range map[string]string{"THERE": there, "NONE": filepath.Join(dir, "none"), "DIR": dir} {
		text = strings.ReplaceAll(text, name, path)
	}
	testproc.Check(t, os.WriteFile(main, []byte(text), 0o600))
	cfg := testproc.Try(Load(Options{File: main})).Or(t)
	var problems Problems
	if !errors.As(cfg.MissingFiles(), &problems) {
		t.Fatalf("got %v", cfg.MissingFiles())
	}
	got := map[string]string{}
	for _, p := range problems {
		got[p.Key] = p.What
		if p.Source.Name != main || p.Hint == "" {
			t.Errorf("%+v", p)
		}
	}
	for key, what := range map[string]string{
		"cell_client.token_file": "there is no file", "cell.token_file": "is a directory",
		"compute_api.cell_token_file": "there is no file", "placement_client.token_file": "there is no file",
	} {
		testproc.Contains(t, got[key], what, "%s: %q", key)
	}
	if len(got) != 4 {
		t.Errorf("%v", got)
	}
}

// TestUnreadableIsNotInvalid: a file that cannot be read says nothing about the configuration: its
// disk may not be mounted yet.
func TestUnreadableIsNotInvalid(t *testing.T) {
	dir := t.TempDir()
	missing, wrong := filepath.Join(dir, "missing.toml"), filepath.Join(dir, "wrong.toml")
	testproc.Check(t, os.WriteFile(wrong, []byte("[agent]\nno_such_key = 1\n"), 0o600))
	environ := []string{"HOME=/nonexistent"}
	for name, tc := range map[string]struct {
		opts                  Options
		unreadable, onlyFlags bool
	}{
		"a file that is not there":  {opts: Options{File: missing, Environ: environ}, unreadable: true},
		"a key that does not exist": {opts: Options{File: wrong, Environ: environ}},
		"a flag": {opts: Options{Root: dir, Environ: environ,
			Overrides: []Override{{Key: "agent.state_dir", Value: "relative", Flag: "--state-dir"}}}, onlyFlags: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(tc.opts)
			if !errors.Is(err, ErrInvalid) || Unreadable(err) != tc.unreadable || OnlyFlags(err) != tc.onlyFlags {
				t.Errorf("unreadable %v, only flags %v: %v", Unreadable(err), OnlyFlags(err), err)
			}
		})
	}
}

// TestDeniedFile: a file that this process may not read is named with its owner and with what gives
// access, without the root that paths begin with.
func TestDeniedFile(t *testing.T) {
	dir := t.TempDir()
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "cell2.toml"), nil, 0o600))
	l := &loader{opts: Options{Root: dir}}
	problem := l.fileProblem("/cell2.toml", &fs.PathError{Op: "open", Path: dir + "/cell2.toml", Err: fs.ErrPermission})
	testproc.ErrorHas(t, problem, "/cell2.toml: cannot be read: permission denied: it belongs to ", "%v")
	testproc.ErrorHas(t, problem, "\n  hint: run: chgrp ", "%v")
	testproc.ErrorHas(t, problem, " /cell2.toml && chmod g+r /cell2.toml", "%v")
	if text := problem.Error(); strings.Contains(text, dir) || !Unreadable(problem) {
		t.Errorf("unreadable %v: %s", Unreadable(problem), text)
	}
}

// TestCredentialsOfOtherServices: a service must have the credentials of the sections that it uses.
// What others use, it may not even be able to see.
func TestCredentialsOfOtherServices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	testproc.Check(t, os.WriteFile(file,
		[]byte("[placement_client]\nauth = \"token\"\ntoken_file = \"placement-token\"\n"), 0o600))
	cfg, err := Load(Options{File: file, Environ: []string{"HOME=/nonexistent"}, Uses: []string{"placement_tls"}})
	if want := "/run/credentials/compute-agent.service/placement-token"; err != nil ||
		cfg.PlacementClient.TokenFile != want {
		t.Errorf("of another service: %q, want %q; %v", cfg.PlacementClient.TokenFile, want, err)
	}
	if got := cfg.ServiceFiles(AgentService, "/passed"); len(got) != 1 ||
		got[0] != (NamedFile{"placement_client.token_file", "/passed/placement-token"}) {
		t.Errorf("the agent reads %+v", got)
	}
	if got := cfg.ServiceFiles(PlacementService, "/passed"); len(got) != 0 {
		t.Errorf("Placement reads %+v", got)
	}
	if got := cfg.UnusedCredentials(); len(got) != 1 || got[0] != "placement_client.token_file" {
		t.Errorf("unused are %q", got)
	}
	if _, err := Load(Options{File: file, Environ: []string{"HOME=/nonexistent"},
		Uses: []string{"placement_client"}}); !errors.Is(err, systemd.ErrNoCredential) {
		t.Errorf("of its own: %v", err)
	}
}
