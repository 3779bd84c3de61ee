// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"path/filepath"
	"testing"
)

func BenchmarkSysfs(b *testing.B) {
	for name, h := range map[string]Host{"sample": Sample(), "GPU-host": GPUHost()} {
		b.Run(name, func(b *testing.B) {
			dir, n := b.TempDir(), 0
			for b.Loop() {
				n++
				if _, err := h.Sysfs(filepath.Join(dir, fmt.Sprint(n))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
