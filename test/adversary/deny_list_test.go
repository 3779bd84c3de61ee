// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// door is a service that hosts come to, with a kind of credential.
type door struct {
	name string
	// letsIn reports whether the stolen host is let in, and another one.
	letsIn func() (thief, other bool)
}

// doors are the services of the site with a deny list: each with certificates and with tokens.
func (s *site) doors(t *testing.T, denied *pki.DenyFile, as map[string]identity) []door {
	t.Helper()
	tls, byToken, tokens := s.ofCell()
	placement := s.servePlacementWith(t, denied).url
	visit := func(name, url string, refused outcome, thief, other string, ask func(host, node string) asked) door {
		thieves, others := s.client(as[thief]), s.client(as[other])
		return door{name, func() (bool, bool) {
			t.Helper()
			a, _ := send(t, thieves, url, as[thief], ask(stolen, stolenNode))
			b, answer := send(t, others, url, as[other], ask(victim, victimNode))
			if b != refused && answer.Code/100 != 2 {
				t.Errorf("%s, as %s: %s", name, other, answer)
			}
			return a != refused, b != refused
		}}
	}
	reads := func(_, node string) asked { return get("/resource_providers?in_tree=" + node) }
	reports := func(host, node string) asked {
		return put("/v1/hosts/"+host, object{"version": "1", "nodes": []object{{"uuid": node, "name": host}}})
	}
	return []door{
		visit("Placement, with a certificate", placement, unknown, "denied", "host", reads),
		visit("Placement, with a token", placement, unknown, "denied token", "token of the host", reads),
		visit("a cell, with a certificate", s.serveCell(t, "cell1", cell.MutualTLS([]string{"compute-api"}), tls, denied), forbidden, "denied", "host", reports),
		visit("a cell, with a token", s.serveCell(t, "cell1", cell.Tokens(tokens), byToken, denied), forbidden, "denied token", "token of the host", reports),
	}
}

// byName are the identities by their names.
func (s *site) byName() map[string]identity {
	s.t.Helper()
	all := map[string]identity{}
	for _, i := range s.identities() {
		all[i.name] = i
	}
	return all
}

// listOf is a deny list with a host, of a serial and a date.
func listOf(t testing.TB, serial int64, date time.Time, hosts ...string) []byte {
	t.Helper()
	denials := make([]pki.Denial, 0, len(hosts))
	for _, host := range hosts {
		denials = append(denials, pki.Denial{Host: host, Before: time.Now().Add(time.Minute), Reason: "stolen"})
	}
	return testproc.Try(pki.NewDenyList(denials)).Or(t).Dated(serial, date).Text()
}

// onTheDenyList are attacks on the file of a deny list, and accidents, that could let the stolen
// host in. They change a list of serial 10.
var onTheDenyList = []struct {
	name string
	do   func(t *testing.T, text []byte) []byte
	// others are let in by a service that starts with it. Without, all hosts are refused.
	others bool
}{
	{"nothing", func(_ *testing.T, text []byte) []byte { return text }, true},
	{"truncated to nothing", func(*testing.T, []byte) []byte { return nil }, false},
	{"an empty line", func(*testing.T, []byte) []byte { return []byte("\n") }, false},
	{"cut in the header", func(_ *testing.T, text []byte) []byte { return text[:50] }, false},
	{"cut before the serial", func(_ *testing.T, text []byte) []byte { return text[:20] }, false},
	{"cut after the header", func(_ *testing.T, text []byte) []byte { return text[:bytes.IndexByte(text, '\n')+1] }, false},
	{"cut before the host", func(_ *testing.T, text []byte) []byte { return text[:bytes.Index(text, []byte(stolen))] }, false},
	{"cut in the line of the host", func(_ *testing.T, text []byte) []byte { return text[:bytes.Index(text, []byte("stolen"))] }, false},
	{"another host in its place", func(_ *testing.T, text []byte) []byte { return bytes.Replace(text, []byte(stolen), []byte("h999"), 1) }, false},
	{"its time long ago", func(t *testing.T, text []byte) []byte {
		at := bytes.Index(text, []byte(stolen+" ")) + len(stolen) + 1
		return append(bytes.Clone(text[:at]), append([]byte("1999"), text[at+4:]...)...)
	}, false},
	{"two headers", func(_ *testing.T, text []byte) []byte {
		return append(bytes.Clone(text[:bytes.IndexByte(text, '\n')+1]), text...)
	}, false},
	{"blocks of zeros, as after a power failure", func(_ *testing.T, text []byte) []byte { return make([]byte, len(text)) }, false},
	{"older than the longest age", func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now().Add(-48*time.Hour)) }, false},
	{"dated a year ahead", func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now().Add(365*24*time.Hour)) }, false},
	{"its name in other letters", func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now(), strings.ToUpper(stolen)) }, true},
	{"names that no host has", func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now(), "h998", stolen, "h999") }, true},
}

// TestAttacksOnTheDenyList: with whatever a service starts, the stolen host is refused; a list of
// which not all is known refuses all hosts.
func TestAttacksOnTheDenyList(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	s := newSite(t)
	as := s.byName()
	for _, attack := range onTheDenyList {
		t.Run(attack.name, func(t *testing.T) {
			file := s.file("denied-"+strings.ReplaceAll(attack.name, " ", "-"), attack.do(t, listOf(t, 10, time.Now(), stolen)))
			denied := testproc.Try(pki.OpenDenyFile(file, nopLog)).Or(t).RefuseAfter(24 * time.Hour)
			for _, d := range s.doors(t, denied, as) {
				if thief, other := d.letsIn(); thief || other != attack.others {
					t.Errorf("%s: the stolen host is let in: %v; another one: %v", d.name, thief, other)
				}
			}
		})
	}
}

// TestAttacksOnADenyListInUse: a service that runs keeps the list that it has read, and refuses no
// other host, when the file is damaged, is replaced by an older one, or is removed. One that is
// repaired is used again.
func TestAttacksOnADenyListInUse(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	s := newSite(t)
	file := filepath.Join(s.dir, "denied")
	replace := func(text []byte) {
		check(t, os.WriteFile(file+".new", text, 0o600))
		check(t, os.Rename(file+".new", file))
	}
	date := time.Now()
	good := listOf(t, 10, date, stolen)
	replace(good)
	log := &testproc.Buffer{}
	denied := testproc.Try(pki.OpenDenyFile(file, zerolog.New(log))).Or(t)
	doors := s.doors(t, denied, s.byName())
	// What is logged after the file has changed says that it was read.
	logged := func(text string, change func()) {
		t.Helper()
		mark := len(log.String())
		change()
		testproc.Eventually(t, testproc.Patience, "the service reads the file again", func() error {
			if _, _ = doors[0].letsIn(); !strings.Contains(log.String()[mark:], text) {
				return fmt.Errorf("not logged: %q", text)
			}
			return nil
		})
	}
	const refused, read = "Failed to reload a changed file", "Reloaded a changed file"
	type attack struct {
		name string
		do   func()
	}
	attacks := []attack{
		{"an older list without the host", func() { replace(listOf(t, 9, date.Add(-time.Hour))) }},
		{"a list without a header", func() { replace(good[bytes.IndexByte(good, '\n')+1:]) }},
		{"removed", func() { check(t, os.Remove(file)) }},
		{"truncated in place", func() { check(t, os.Truncate(file, 0)) }},
	}
	for _, a := range onTheDenyList {
		if text := a.do(t, good); !a.others && !bytes.Contains(text, []byte("serial 11")) {
			attacks = append(attacks, attack{a.name, func() { replace(text) }})
		}
	}
	for _, a := range attacks {
		logged(refused, a.do)
		for _, d := range doors {
			if thief, other := d.letsIn(); thief || !other {
				t.Errorf("%s: %s: the stolen host is let in: %v; another one: %v", a.name, d.name, thief, other)
			}
		}
		logged(read, func() { replace(good) })
	}
	logged(stolen, func() { replace(listOf(t, 12, time.Now())) }) // letting the host in is logged
	for _, d := range doors {
		if thief, other := d.letsIn(); !thief || !other {
			t.Errorf("%s: after the host was taken off the list: it is let in: %v; another one: %v", d.name, thief, other)
		}
	}
}
