// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestVersions: servers that lack what is needed are known by the version that they say, however
// distributions write it.
func TestVersions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for version, old := range map[string]bool{
		"10.5.23-MariaDB-1:10.5.23+maria~ubu2004": true,
		"10.6.0-MariaDB": false, "10.11.14-MariaDB-0+deb12u2": false, "11.4.2-MariaDB-log": false,
		"5.5.68-MariaDB": true, "5.7.44-log": true, "8.0.36": false, "8.4.0-commercial": false, "9.1.0": false,
		"8.0.11-TiDB-v7.5.0": false, "": false, "ours": false,
	} {
		if mysqlTooOld(version) != old {
			t.Errorf("%q is too old: %v", version, !old)
		}
	}
	for version, old := range map[string]bool{
		"12.17 (Debian 12.17-1.pgdg120+1)": true, "9.6.24": true, "13.0": false, "15.5 (Debian 15.5-0+deb12u1)": false,
		"17beta1": false, "13.0.0": false,
		"11.2-YB-2.20.1.0-b0": false, "": false,
	} {
		if postgresTooOld(version) != old {
			t.Errorf("%q is too old: %v", version, !old)
		}
	}
}
