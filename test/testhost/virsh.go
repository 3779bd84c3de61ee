// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ErrNoVirsh means that libvirt's command line is not installed.
var ErrNoVirsh = errors.New("virsh is not installed (Debian package: libvirt-clients)")

// virsh runs libvirt's command line with a daemon, for programs that are not linked with libvirt's
// library, and returns what it prints. It ends with ctx. What goes wrong is in the error, in
// libvirt's words.
func virsh(ctx context.Context, uri, stdin string, args ...string) (string, error) {
	binary, err := exec.LookPath("virsh")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoVirsh, err)
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"--quiet", "--connect", uri}, args...)...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(),
			fmt.Errorf("virsh %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// FindEmulator finds QEMU for an architecture (x86_64, aarch64) in the PATH; "" if it is not
// installed.
func FindEmulator(arch string) string {
	path, err := exec.LookPath("qemu-system-" + arch)
	if err != nil {
		return ""
	}
	return path
}
