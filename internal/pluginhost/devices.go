// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

// ListDevices runs a driver's executable as a command, outside of the protocol, that writes the
// list of this host's devices to out: with --devices and more arguments. Of spec, only name, path,
// digest and environment count. The executable must pass the checks under which the agent starts
// it, unless own says that the caller chose the file.
//
// Errors: [*launch.NotInstalledError]; [*launch.UntrustedError]; an [*exec.ExitError], with
// what the executable wrote to standard error; those of the file system.
func ListDevices(ctx context.Context, spec Spec, own bool, out io.Writer, args ...string) error {
	open := func() (*launch.Executable, error) { return openSpec(spec, os.Geteuid()) }
	if own {
		open = func() (*launch.Executable, error) { return launch.OpenOwn(spec.Path) }
	}
	exe, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = exe.File.Close() }()
	// the file that was checked
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", append([]string{"--devices"}, args...)...)
	cmd.Args[0] = exe.Path
	cmd.ExtraFiles = []*os.File{exe.File}
	var problem bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = out, &problem, os.Environ()
	for key, value := range spec.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	err = cmd.Run()
	var exit *exec.ExitError // it ran, and failed
	if errors.As(err, &exit) {
		return fmt.Errorf("%s --devices: %w: %s", spec.Path, err,
			textutil.Printable(strings.TrimSpace(problem.String())))
	}
	return err
}
