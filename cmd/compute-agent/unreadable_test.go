// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealUnreadable: a service that may not read one of its files says whose the file is, as whom
// the service runs, and which command gives it access. Root may read all, so that the services run
// as another user.
func TestRealUnreadable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if os.Geteuid() != 0 {
		testproc.NotRun(t, "needs root")
	}
	const other = 65534 // a user and a group that own no file
	self := testproc.Try(user.LookupId("65534")).Or(t).Username
	group := testproc.Try(user.LookupGroupId("65534")).Or(t).Name
	programs := testproc.SocketDir(t)
	program := filepath.Join(programs, "compute-agent")
	testproc.Check(t, errors.Join(os.Chmod(programs, 0o755),
		testproc.WriteExecutable(program, testproc.Try(os.ReadFile(testproc.Try(os.Executable()).Or(t))).Or(t))))
	const config = "[placement_client]\nurl = \"http://127.0.0.1:1\"\n[drivers.fake]\n"
	const withCell = "[cell_client]\nurl = \"https://127.0.0.1:1\"\ncert_file = \"DIR/host.pem\"\nkey_file = " +
		"\"DIR/host.pem\"\n"
	for name, c := range map[string]struct {
		closed  string // the file that belongs to root alone; a directory if it ends with a slash
		command string
		more    map[string]string
		code    int // 0: cli.ExitFailed
	}{
		"the configuration":      {"agent.toml", "placement serve", nil, 0},
		"of the agent":           {"agent.toml", "run", nil, 0},
		"of a cell":              {"agent.toml", "cells serve --name cell1", nil, 0},
		"of the compute API":     {"agent.toml", "cells api", nil, 0},
		"a part of it":           {"conf.d/10-part.toml", "placement serve", nil, 0},
		"the directory of parts": {"conf.d/", "placement serve", nil, 0},
		"a CA of the database": {"ca.pem",
			"placement serve --database mysql://u@127.0.0.1/d?ssl_ca=DIR/ca.pem", nil, 0},
		"a key for the database": {"key.pem",
			"placement serve --database mysql://u@127.0.0.1/d?ssl_cert=DIR/cert.pem&ssl_key=DIR/key.pem",
			map[string]string{"cert.pem": ""}, 0},
		"providers":    {"provider_config/a.yaml", "run", nil, 0},
		"the identity": {"compute_id", "run", nil, cli.ExitProtect},
		"what the identity was": {"state/identity.json",
			"run", map[string]string{"compute_id": "6c9f7d5e-8a0b-4c1d-9e2f-3a4b5c6d7e8f\n"}, cli.ExitProtect},
		"whether it is disabled":   {"state/disabled.json", "run", nil, cli.ExitProtect},
		"a certificate for others": {"host.pem", "run", map[string]string{"agent.toml": config + withCell}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testproc.SocketDir(t)
			files := map[string]string{"agent.toml": config}
			for path, content := range c.more {
				files[path] = content
			}
			if !strings.HasSuffix(c.closed, "/") {
				if _, there := files[c.closed]; !there {
					files[c.closed] = ""
				}
			}
			for _, sub := range []string{"", "conf.d", "provider_config", "state", "run"} {
				path := filepath.Join(dir, sub)
				testproc.Check(t, errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755)))
			}
			for path, content := range files {
				path = filepath.Join(dir, path)
				testproc.Check(t,
					errors.Join(os.WriteFile(path, []byte(strings.ReplaceAll(content, "DIR", dir)), 0o644),
						os.Chmod(path, 0o644)))
			}
			testproc.Check(t, errors.Join(os.Chmod(filepath.Join(dir, "state"), 0o700),
				os.Chown(filepath.Join(dir, "state"), other, other),
				os.Chown(filepath.Join(dir, "run"), other, other)))
			closed, mode, needs := filepath.Join(dir, c.closed), os.FileMode(0o600), "r"
			if strings.HasSuffix(c.closed, "/") {
				mode, needs = 0o700, "rx"
			}
			testproc.Check(t, os.Chmod(closed, mode))
			args := append(strings.Fields(strings.ReplaceAll(c.command, "DIR", dir)),
				"--config", filepath.Join(dir, "agent.toml"),
				"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run"))
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Dir, cmd.Env = "/", append(os.Environ(), testproc.ShareUser)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
			out, err := cmd.CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.ExitCode() != cmp.Or(c.code, cli.ExitFailed) {
				t.Errorf("%v, want exit status %d", err, cmp.Or(c.code, cli.ExitFailed))
			}
			testproc.Contains(t, string(out),
				fmt.Sprintf("permission denied: it belongs to root:root with mode %04o, and this process runs as %s",
					mode, self), "it said %s")
			testproc.Contains(t, string(out), fmt.Sprintf("run: chgrp %s %s && chmod g+%s %[2]s", group, closed, needs),
				"it said %s")
		})
	}
}
