// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func BenchmarkSysfs(b *testing.B) {
	for name, h := range map[string]Host{"sample": Sample(), "GPU-host": GPUHost()} {
		b.Run(name, func(b *testing.B) {
			dir, n := b.TempDir(), 0
			for b.Loop() {
				n++
				testproc.Try(h.Sysfs(filepath.Join(dir, fmt.Sprint(n)))).Or(b)
			}
		})
	}
}
