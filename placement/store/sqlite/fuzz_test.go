// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/store/sqlite"
)

// FuzzPathOf reads addresses of databases: what is accepted is an absolute path that can be written again as an address of
// the same path.
func FuzzPathOf(f *testing.F) {
	for _, dsn := range []string{"sqlite:///var/lib/placement.db", "sqlite:///a%20b.db", "sqlite://relative.db", "mysql://u:p@h/x", "sqlite:///%zz", "sqlite:///a%00b", "sqlite:////x", "sqlite:///?mode=ro", "sqlite:///%2e%2e/x", "", "sqlite:///\xff"} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		path, err := sqlite.PathOf(dsn)
		if err != nil {
			return
		}
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) || !strings.HasPrefix(dsn, "sqlite:///") {
			t.Fatalf("%q is accepted as %q", dsn, path)
		}
		if again, err := sqlite.PathOf("sqlite://" + (&url.URL{Path: path}).EscapedPath()); err != nil || again != path {
			t.Errorf("%q is %q, and written again %q, %v", dsn, path, again, err)
		}
	})
}

// FuzzLockFile opens a database whose lock file holds anything: that is either refused for what it says or not looked at,
// and replaced by the next commit.
func FuzzLockFile(f *testing.F) {
	for _, content := range []string{"", "00000000000000000001\n", "00000000000000000000\n", "99999999999999999999\n", "-0000000000000000001\n", "0000000000000000000x\n", "1", "+0000000000000000009\n"} {
		f.Add([]byte(content))
	}
	whole := filepath.Join(f.TempDir(), "placement.db")
	s, err := sqlite.Open(ctx, whole)
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(whole+"-lock", content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(ctx, whole)
		if err != nil {
			if len(content) < 20 || !strings.Contains(err.Error(), "acknowledged changes are missing") {
				t.Errorf("%q: %v", content, err)
			}
			return
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
