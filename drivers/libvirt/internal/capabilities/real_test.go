// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealDaemon: a real daemon tells which kinds of guests there are, and answers for each of them
// what is asked.
func TestRealDaemon(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for program, debian := range map[string]string{"virsh": "libvirt-clients",
		"qemu-system-x86_64": "qemu-system-x86"} {
		if _, err := exec.LookPath(program); err != nil {
			testproc.NotRun(t, "no "+program+" (Debian package: "+debian+")")
		}
	}
	run := testproc.Try(os.MkdirTemp("", "dc")).Or(t)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	daemon, err := libvirtd.StartPrivate(t.Context(),
		libvirtd.Options{Dir: filepath.Join(t.TempDir(), "s"), RuntimeDir: run,
			Logger: zerolog.New(zerolog.NewTestWriter(t))})
	if errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	testproc.Check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testproc.Patience)
		defer cancel()
		testproc.NoError(t, daemon.Stop(ctx))
	})
	virsh := func(args ...string) string {
		t.Helper()
		text, err := exec.CommandContext(t.Context(),
			"virsh", append([]string{"--quiet", "-c", daemon.URI()}, args...)...).Output()
		testproc.Checkf(t, err, "virsh %v", args)
		return string(text)
	}
	h, err := ParseHost(virsh("capabilities"))
	kinds := h.Kinds(func(arch string) bool { return arch == "x86_64" })
	if err != nil || len(kinds) < 2 {
		t.Fatalf("%v %v", kinds, err)
	}
	for _, k := range kinds {
		got, err := ParseDomain(virsh("domcapabilities",
			"--emulatorbin", k.Emulator, "--arch", k.Arch, "--machine", k.Machine, "--virttype", k.Type))
		testproc.Check(t, err)
		testproc.Same(t,
			cmp.Diff(Kind{k.Emulator, k.Arch, k.Machine, k.Type}, Kind{got.Emulator, got.Arch, k.Machine, got.Type}))
		if got.Machine == "" || got.MaxVCPUs < 1 ||
			len(got.DiskBuses) == 0 || len(got.VideoModels) == 0 || len(got.Loader.Types) == 0 {
			t.Errorf("%+v", got)
		}
	}
}
