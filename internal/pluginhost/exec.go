// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"io"
	"os"
	"os/exec"
)

// Exec runs a plugin's executable as a command with these arguments, outside of the protocol, and
// waits for its end. Of spec, only name, path, digest and environment count. The executable must
// pass the checks under which the agent starts it, unless own says that the caller chose the file.
//
// Errors: [*NotInstalledError]; [*UntrustedError]; an [*exec.ExitError]; those of the file system.
func Exec(ctx context.Context, spec Spec, own bool, stdout, stderr io.Writer, args ...string) error {
	open := func() (*executable, error) { return openSpec(spec, os.Geteuid()) }
	if own {
		open = func() (*executable, error) { return openOwn(spec.Path) }
	}
	exe, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = exe.file.Close() }()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", args...) // the file that was checked
	cmd.Args[0] = exe.path
	cmd.ExtraFiles = []*os.File{exe.file}
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, stderr, os.Environ()
	for key, value := range spec.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	return cmd.Run()
}
