// SPDX-License-Identifier: Apache-2.0

package osapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func withToken(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Auth-Token", token)
	return r
}

func made(t testing.TB, roles []string, user, project string) (token, line string) {
	t.Helper()
	token, line, err := osapi.NewToken(roles, user, project)
	testproc.Check(t, err)
	return token, line
}

func TestNewTokens(t *testing.T) {
	one, oneLine := made(t, []string{"admin", "service"}, "nova", "service")
	two, twoLine := made(t, []string{"reader"}, "nova", "")
	host, hostLine := made(t, []string{"host"}, "h1", "")
	const salt = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
	auth, err := osapi.ReadTokens(strings.NewReader(oneLine+"\n"+twoLine+"\n"+hostLine+"\n"+
		salted(salt, "by-hand")+" reader other\n"), "tokens")
	testproc.Check(t, err)
	for range 2 { // the second time it is remembered
		for token, want := range map[string]string{one: "nova service [admin service] false",
			two: "nova nova [reader] false", host: "h1 h1 [host] true", "by-hand": "other other [reader] false"} {
			who, err := auth.Authenticate(withToken(token))
			if got := fmt.Sprint(who.User, " ", who.Project, " ", who.Roles, " ", who.Host != nil); err != nil ||
				got != want {
				t.Errorf("%s: %v", got, err)
			}
		}
		for _, wrong := range []string{one[1:], one + "x",
			strings.ToLower(one), oneLine, strings.Split(oneLine, "$")[2]} {
			if who, err := auth.Authenticate(withToken(wrong)); err == nil {
				t.Errorf("%q is %+v", wrong, who)
			}
		}
	}
	if one == two || strings.Contains(oneLine, one) {
		t.Error("the token is in its line, or made twice")
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := auth.Authenticate(withToken(two)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestTokensThatAreNotMade(t *testing.T) {
	for name, c := range map[string]struct {
		roles         []string
		user, project string
	}{
		"no role": {nil, "u", ""}, "no user": {[]string{"admin"}, "", ""},
		"a user with a space":      {[]string{"admin"}, "a b", ""},
		"a line break":             {[]string{"admin"}, "a", "b\nc"},
		"a host with another role": {[]string{"host", "admin"}, "h1", ""},
		"a host with a project":    {[]string{"host"}, "h1", "p"},
	} {
		if _, line, err := osapi.NewToken(c.roles, c.user, c.project); err == nil {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func TestUnsaltedTokensAreReported(t *testing.T) {
	_, line := made(t, []string{"admin"}, "nova", "")
	for name, c := range map[string]struct {
		content string
		warned  bool
	}{
		"salted":   {line + "\n", false},
		"unsalted": {line + "\n" + strings.Repeat("0", 64) + " admin old\n", true},
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		testproc.Check(t, os.WriteFile(path, []byte(c.content), 0o600))
		var log bytes.Buffer
		testproc.Try(osapi.OpenTokens(path, zerolog.New(&log))).Or(t)
		if warned := strings.Count(log.String(), "compute-agent token new"); (warned == 1) != c.warned {
			t.Errorf("%s: %s", name, &log)
		}
	}
}

// BenchmarkTokens looks up a token among a thousand: one that was accepted before, and one that is
// not known.
func BenchmarkTokens(b *testing.B) {
	var file strings.Builder
	last := ""
	for i := range 1000 {
		token, line := made(b, []string{"service"}, fmt.Sprintf("u%d", i), "")
		file.WriteString(line + "\n")
		last = token
	}
	auth := testproc.Try(osapi.ReadTokens(strings.NewReader(file.String()), "tokens")).Or(b)
	for name, token := range map[string]string{"known": last, "unknown": "nothing"} {
		r := withToken(token)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := auth.Authenticate(r); (err == nil) != (name == "known") {
					b.Fatal(err)
				}
			}
		})
	}
}
