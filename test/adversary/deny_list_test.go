// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
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

// joined are hosts that the enrolment service knows.
type joined struct {
	store apidb.Store
	as    map[string]identity // by host
}

// joinedHosts has the stolen host and another one join.
func (s *site) joinedHosts(t *testing.T) joined {
	t.Helper()
	j := joined{openAPI(t), map[string]identity{}}
	url := s.serveEnrolment(t, j.store, nil, time.Now)
	for host, node := range map[string]string{stolen: stolenNode, victim: victimNode} {
		j.as[host] = testproc.Try(join(t, url, host, testproc.Try(s.invite(t, j.store, host, node, time.Now())).Or(t))).
			Or(t)
	}
	return j
}

// doors are the services of the site with a deny list: Placement and a cell, with certificates and
// with tokens, and the enrolment service.
func (s *site) doors(t *testing.T, denied *pki.DenyFile, as map[string]identity, j joined) []door {
	t.Helper()
	tls, byToken, tokens := s.ofCell()
	placement := s.servePlacementWith(t, denied).url
	visit := func(name, url string, thief, other identity, ask func(host, node string) asked, refused ...int) door {
		letsIn := func(i identity, host, node string) func() bool {
			c := s.client(i)
			return func() bool {
				t.Helper()
				_, answer := send(t, c, url, i, ask(host, node))
				if answer.Code/100 != 2 && !slices.Contains(refused, answer.Code) {
					t.Errorf("%s, as %s: %s", name, i.name, answer)
				}
				return answer.Code/100 == 2
			}
		}
		a, b := letsIn(thief, stolen, stolenNode), letsIn(other, victim, victimNode)
		return door{name, func() (bool, bool) { return a(), b() }}
	}
	reads := func(_, node string) asked { return get("/resource_providers?in_tree=" + node) }
	reports := func(host, node string) asked {
		return put("/v1/hosts/"+host, object{"version": "1", "nodes": []object{{"uuid": node, "name": host}}})
	}
	var minutes atomic.Int64 // a key that was refused often is not judged for one
	now := func() time.Time { return time.Now().Add(time.Duration(minutes.Load()) * time.Minute) }
	renews := func(host, _ string) asked {
		minutes.Add(1)
		return renewal(t, host)
	}
	byCertificate := s.serveCell(t, "cell1", cell.MutualTLS([]string{"compute-api"}), tls, denied)
	return []door{
		visit("Placement, with a certificate", placement, as["denied"], as["host"], reads, http.StatusUnauthorized),
		visit("Placement, with a token", placement, as["denied token"], as["token of the host"],
			reads, http.StatusUnauthorized),
		visit("a cell, with a certificate", byCertificate, as["denied"], as["host"], reports, http.StatusForbidden),
		visit("a cell, with a token", s.serveCell(t, "cell1", cell.Tokens(tokens), byToken, denied), as["denied token"],
			as["token of the host"], reports, http.StatusForbidden),
		visit("the enrolment service", s.serveEnrolment(t, j.store, denied, now), j.as[stolen], j.as[victim], renews,
			http.StatusForbidden, http.StatusServiceUnavailable),
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
	{"cut after the header",
		func(_ *testing.T, text []byte) []byte { return text[:bytes.IndexByte(text, '\n')+1] }, false},
	{"cut before the host",
		func(_ *testing.T, text []byte) []byte { return text[:bytes.Index(text, []byte(stolen))] }, false},
	{"cut in the line of the host",
		func(_ *testing.T, text []byte) []byte { return text[:bytes.Index(text, []byte("stolen"))] }, false},
	{"another host in its place",
		func(_ *testing.T, text []byte) []byte { return bytes.Replace(text, []byte(stolen), []byte("h999"), 1) },
		false},
	{"its time long ago", func(t *testing.T, text []byte) []byte {
		at := bytes.Index(text, []byte(stolen+" ")) + len(stolen) + 1
		return append(bytes.Clone(text[:at]), append([]byte("1999"), text[at+4:]...)...)
	}, false},
	{"two headers", func(_ *testing.T, text []byte) []byte {
		return append(bytes.Clone(text[:bytes.IndexByte(text, '\n')+1]), text...)
	}, false},
	{"blocks of zeros, as after a power failure",
		func(_ *testing.T, text []byte) []byte { return make([]byte, len(text)) }, false},
	{"older than the longest age",
		func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now().Add(-48*time.Hour)) }, false},
	{"dated a year ahead",
		func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now().Add(365*24*time.Hour)) }, false},
	{"its name in other letters",
		func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now(), strings.ToUpper(stolen)) }, true},
	{"names that no host has",
		func(t *testing.T, _ []byte) []byte { return listOf(t, 11, time.Now(), "h998", stolen, "h999") }, true},
}

// TestAttacksOnTheDenyList: with whatever a service starts, the stolen host is refused; a list of
// which not all is known refuses all hosts.
func TestAttacksOnTheDenyList(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	s := newSite(t)
	as, hosts := s.byName(), s.joinedHosts(t)
	for _, attack := range onTheDenyList {
		t.Run(attack.name, func(t *testing.T) {
			file := s.file("denied-"+strings.ReplaceAll(attack.name, " ", "-"),
				attack.do(t, listOf(t, 10, time.Now(), stolen)))
			denied := testproc.Try(pki.OpenDenyFile(file, nopLog)).Or(t).RefuseAfter(24 * time.Hour)
			for _, d := range s.doors(t, denied, as, hosts) {
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
	doors := s.doors(t, denied, s.byName(), s.joinedHosts(t))
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
			t.Errorf("%s: after the host was taken off the list: it is let in: %v; another one: %v",
				d.name, thief, other)
		}
	}
}
