// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMemoryMax(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no control groups": {nil, 0},
		"a unit": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/x.service\n",
			"sys/fs/cgroup/system.slice/x.service/memory.max": "2147483648\n",
			"sys/fs/cgroup/system.slice/memory.max":           "max\n",
		}, 2 << 30},
		"a slice with a lower limit": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/x.service\n",
			"sys/fs/cgroup/system.slice/x.service/memory.max": "2147483648\n",
			"sys/fs/cgroup/system.slice/memory.max":           "1073741824\n",
		}, 1 << 30},
		"a container, which sees its own group as the root": {map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/memory.max": "1073741824\n",
		}, 1 << 30},
		"version 1": {map[string]string{
			"proc/self/cgroup": "12:memory:/system.slice/x.service\n3:cpu:/\n0::/system.slice/x.service\n",
			"sys/fs/cgroup/memory/system.slice/x.service/memory.limit_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":                        "9223372036854771712\n",
		}, 1 << 30},
		"no limit": {map[string]string{
			"proc/self/cgroup":                           "1:memory:/\n0::/a\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/a/memory.max":                 "max\n",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, content := range tc.files {
				path := filepath.Join(root, file)
				testproc.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
				testproc.Check(t, os.WriteFile(path, []byte(content), 0o644))
			}
			testproc.Equal(t, memoryMax(root), tc.want, "got %d")
		})
	}
}

func TestGOMEMLIMITWins(t *testing.T) {
	former := debug.SetMemoryLimit(math.MaxInt64 - 1)
	defer debug.SetMemoryLimit(former)
	t.Setenv("GOMEMLIMIT", "1GiB")
	if got := LimitMemory(90); got != 0 || debug.SetMemoryLimit(-1) != math.MaxInt64-1 {
		t.Errorf("LimitMemory set %d although GOMEMLIMIT is set", got)
	}
}
