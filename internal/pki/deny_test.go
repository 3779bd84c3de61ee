// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pki"
)

func TestDenyList(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	list, err := pki.ParseDenyList([]byte("# stolen\n\nh417 2026-01-31T12:00:00Z stolen from  rack 7\nh2 2026-01-31T13:00:00+01:00\nh417 2026-01-30T12:00:00Z earlier\n"), "denied")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		host   string
		issued time.Time
		denied bool
	}{
		"issued before":        {"h417", at.Add(-time.Second), true},
		"issued then":          {"h417", at, false},
		"a token":              {"h417", time.Time{}, true},
		"another host":         {"h4", time.Time{}, false},
		"a time of other zone": {"h2", at.Add(-time.Second), true},
	} {
		if err := list.Check(c.host, c.issued); errors.Is(err, pki.ErrDenied) != c.denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := list.Check("h417", time.Time{}); !strings.Contains(err.Error(), "stolen from rack 7") {
		t.Error(err)
	}
	again, err := pki.ParseDenyList(list.Text(), "again")
	if err != nil || !bytes.Equal(again.Text(), list.Text()) || len(again.Denials()) != 2 {
		t.Errorf("%v\n%s", err, list.Text())
	}
	for _, id := range []pki.Identity{
		{Kind: pki.Host, Name: "h417", Names: []string{"other"}},
		{Kind: pki.Unmarked, Name: "other", Names: []string{"other", "h417"}},
	} {
		if err := list.CheckIdentity(id); !errors.Is(err, pki.ErrDenied) {
			t.Errorf("%+v: %v", id, err)
		}
	}
	var none *pki.DenyList
	if none.Check("h417", time.Time{}) != nil {
		t.Error("no list refuses a host")
	}
	for _, bad := range []string{"h417\n", "h417 yesterday\n"} {
		if _, err := pki.ParseDenyList([]byte(bad), "denied"); err == nil || !strings.Contains(err.Error(), "denied line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "a b", "a\nb", "#a"} {
		if _, err := pki.NewDenyList([]pki.Denial{{Host: bad}}); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDenyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "denied")
	if _, err := pki.OpenDenyFile(path, zerolog.Nop()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("h417 2026-01-31T12:00:00Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := pki.OpenDenyFile(path, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if file.Get().Check("h417", time.Time{}) == nil {
		t.Error("h417 is let in")
	}
	var none *pki.DenyFile
	if none.Get().Check("h417", time.Time{}) != nil {
		t.Error("no file refuses a host")
	}
}
