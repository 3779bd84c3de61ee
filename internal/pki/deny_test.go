// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestDenyList(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	list, err := pki.ParseDenyList(
		[]byte("# stolen\n\nh417 2026-01-31T12:00:00Z stolen from  rack 7\nh2 2026-01-31T13:00:00+01:00\nh417 "+
			"2026-01-30T12:00:00Z earlier\n"), "denied")
	testproc.Check(t, err)
	for name, c := range map[string]struct {
		host   string
		issued time.Time
		denied bool
	}{
		"issued before":        {"h417", at.Add(-time.Second), true},
		"issued then":          {"h417", at, false},
		"a token":              {"h417", time.Time{}, true},
		"another host":         {"h4", time.Time{}, false},
		"in capital letters":   {"H417", time.Time{}, true},
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
		t.Errorf("reading the list again: %v\n%s", err, list.Text())
	}
	for _, id := range []pki.Identity{
		{Kind: pki.Host, Name: "h417", Names: []string{"other"}},
		{Kind: pki.Unmarked, Name: "other", Names: []string{"other", "h417"}},
	} {
		testproc.ErrorIs(t, list.CheckIdentity(id), pki.ErrDenied, "%+v: %v", id)
	}
	var none *pki.DenyList
	if none.Check("h417", time.Time{}) != nil {
		t.Error("no list refuses a host")
	}
	for _, bad := range []string{"h417\n", "h417 yesterday\n"} {
		testproc.Try(pki.ParseDenyList([]byte(bad), "denied")).ErrorHas(t, "denied line 1", "%q: %v", bad)
	}
	for _, bad := range []string{"", "a b", "a\nb", "#a"} {
		testproc.Try(pki.NewDenyList([]pki.Denial{{Host: bad}})).ErrorIs(t, pki.ErrInvalid, "%q: %v", bad)
	}
}

func TestDenyListsAreCombined(t *testing.T) {
	list := func(text string) *pki.DenyList {
		t.Helper()
		return testproc.Try(pki.ParseDenyList([]byte(text), "list")).Or(t)
	}
	a, b := list("h1 2026-01-01T00:00:00Z\nh2 2026-01-01T00:00:00Z old\n"),
		list("h2 2026-02-01T00:00:00Z new\nh3 2026-01-01T00:00:00Z\n")
	both, err := a.Union(b, nil)
	if err != nil || len(both.Denials()) != 3 || both.Denials()[1].Reason != "new" {
		t.Errorf("Union: got %v, %v, want 3 hosts, h2 as new", both.Denials(), err)
	}
	var none *pki.DenyList
	if same, err := none.Union(a); err != nil || !bytes.Equal(same.Text(), a.Text()) {
		t.Errorf("Union with nothing: got %v, want the same list", err)
	}
	without, found := both.Without("H2")
	if !found || len(without.Denials()) != 2 || without.Check("h2", time.Time{}) != nil ||
		without.Check("h1", time.Time{}) == nil {
		t.Errorf("Without(H2): got %v, %v, want it found, and h1 still denied", without.Denials(), found)
	}
	if _, found := without.Without("h2"); found {
		t.Error("h2 is found twice")
	}
	if len(a.Denials()) != 2 || both.Check("h2", time.Time{}) == nil {
		t.Error("a list has changed")
	}
}

// TestHostsInOtherLetters: a name that an operator types refuses the host however it is written.
func TestHostsInOtherLetters(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	list := testproc.Try((*pki.DenyList)(nil).With(pki.Denial{Host: "H50", Before: at})).Or(t)
	list = testproc.Try(list.With(pki.Denial{Host: "h50", Before: at.Add(time.Hour)})).Or(t)
	for _, id := range []pki.Identity{
		{Kind: pki.Host, Name: "h50"}, {Kind: pki.Host, Name: "H50"},
		{Kind: pki.Unmarked, Name: "x", Names: []string{"x", "H50"}},
	} {
		testproc.ErrorIs(t, list.CheckIdentity(id), pki.ErrDenied, "%+v: %v", id)
	}
	if d, _ := list.Denial("H50"); len(list.Denials()) != 1 || d.Host != "h50" || !d.Before.Equal(at.Add(time.Hour)) {
		t.Errorf("the denials: got %+v, want h50 with the later time", list.Denials())
	}
}

// TestDamagedDenyList: a list of which a part is missing or different is no list, wherever it is
// cut.
func TestDamagedDenyList(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	hosts := []pki.Denial{{Host: "h1", Before: at}, {Host: "h2", Before: at, Reason: "rack 7"}}
	list := testproc.Try(pki.NewDenyList(hosts)).Or(t).Dated(7, at)
	text := string(list.Text())
	for _, whole := range []string{text, string(list.Published())} {
		again := testproc.Try(pki.ParseDenyList([]byte(whole), "whole")).Or(t)
		if serial, date := again.Header(); serial != 7 || !date.Equal(at) || !bytes.Equal(again.Text(), list.Text()) {
			t.Errorf("serial %d of %v\n%s", serial, date, again.Text())
		}
	}
	for n := range len(text) - 1 { // without the last end of a line it is whole
		if l, err := pki.ParseDenyList([]byte(text[:n]), "cut"); err == nil {
			t.Fatalf("cut after %d bytes it is a list of %d hosts:\n%s", n, len(l.Denials()), text[:n])
		}
	}
	empty := string(new(pki.DenyList).Dated(8, at).Text())
	header, _, _ := strings.Cut(text, "\n")
	for name, bad := range map[string]string{
		"empty": "", "an empty line": "\n", "comments alone": "# stolen\n",
		"another host":      strings.Replace(text, "h2", "h3", 1),
		"another time":      strings.Replace(text, "12:00:00Z rack", "11:00:00Z rack", 1),
		"another serial":    strings.Replace(text, "serial 7", "serial 9", 1),
		"another date":      strings.Replace(text, "date 2026", "date 2027", 1),
		"a host by hand":    text + "h3 2026-01-31T12:00:00Z\n",
		"two lists":         text + empty,
		"two headers":       header + "\n" + text,
		"no serial":         strings.Replace(text, "serial 7", "serial x", 1),
		"a header of zeros": strings.Replace(text, "serial 7", "serial 0", 1),
	} {
		testproc.Try(pki.ParseDenyList([]byte(bad), "denied")).ErrorIs(t, pki.ErrDamaged, "%s: %v", name)
	}
	for name, good := range map[string]string{
		"no host": empty, "of before, no host": string(new(pki.DenyList).Text()),
		"of before": "h1 2026-01-31T12:00:00Z\n", "with comments": "# of site 7\n" + text,
	} {
		if _, err := pki.ParseDenyList([]byte(good), "denied"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReasonsAreOneLine(t *testing.T) {
	l, err := (*pki.DenyList)(nil).
		With(pki.Denial{Host: "h1", Reason: "stolen\nh2 2026-01-01T00:00:00Z\x1b[2J \u202e x"})
	testproc.Check(t, err)
	again, err := pki.ParseDenyList(l.Text(), "again")
	if err != nil || len(again.Denials()) != 1 || strings.ContainsAny(string(l.Text()), "\x1b\u202e") {
		t.Errorf("reading a reason with control characters again: %v\n%q", err, l.Text())
	}
	if _, err := l.With(pki.Denial{Host: "h2", Reason: strings.Repeat("x", 501)}); !errors.Is(err, pki.ErrInvalid) {
		t.Errorf("a long reason: %v", err)
	}
}

func TestDenyListFitsAFile(t *testing.T) {
	denials := make([]pki.Denial, 0, 40_000)
	for i := range cap(denials) {
		denials = append(denials, pki.Denial{Host: fmt.Sprintf("h%d", i)})
	}
	testproc.Try(pki.NewDenyList(denials)).ErrorIs(t, pki.ErrInvalid, "%d hosts: %v", len(denials))
	if l, err := pki.NewDenyList(denials[:20_000]); err != nil || len(l.Denials()) != 20_000 {
		t.Errorf("20,000 hosts: %v", err)
	}
}

// FuzzParseDenyList: what is parsed is written so that it is parsed again as the same list.
func FuzzParseDenyList(f *testing.F) {
	f.Add([]byte("# stolen\n\nh417 2026-01-31T12:00:00Z stolen from  rack 7\nh2 2026-01-31T13:00:00+01:00\n"))
	f.Add([]byte("h1 9999-12-31T23:59:59-23:59\n"))
	f.Add((&pki.DenyList{}).Dated(7, time.Unix(1e9, 0)).Text())
	f.Add([]byte("h\xff 2026-01-31T12:00:00.5Z \x00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := pki.ParseDenyList(text, "list")
		if err != nil {
			return
		}
		again, err := pki.ParseDenyList(l.Text(), "again")
		if err != nil || !bytes.Equal(again.Text(), l.Text()) || !slices.Equal(again.Denials(), l.Denials()) {
			t.Fatalf("%v\n%q\nfrom\n%q", err, l.Text(), text)
		}
		for _, d := range l.Denials() {
			if !errors.Is(l.Check(d.Host, time.Time{}), pki.ErrDenied) {
				t.Errorf("a token of %q is let in", d.Host)
			}
		}
	})
}
