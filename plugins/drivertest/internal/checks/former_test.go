// SPDX-License-Identifier: Apache-2.0

package checks

import "testing"

func TestNewer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"v1.10.0", "v1.9.3", true}, {"1.9.3", "v1.10.0", false},
		{"v1.0.0", "v1.0.0", false}, {"devel", "v1.0.0", false},
		{"v2.0.0", "devel", false}, {"v2.0.0-rc1", "v1.0.0", false}, {"v1.0", "v0.9.0", false},
	} {
		if newer(c.a, c.b) != c.want {
			t.Errorf("%s newer than %s: %v", c.a, c.b, !c.want)
		}
	}
}
