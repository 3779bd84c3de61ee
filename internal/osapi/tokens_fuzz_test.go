// SPDX-License-Identifier: Apache-2.0

package osapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// salted is the digest of a token with a salt in hexadecimal digits, as a token file has it.
func salted(salt, token string) string {
	raw, err := hex.DecodeString(salt)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append(raw, token...))
	return "sha256$" + salt + "$" + hex.EncodeToString(sum[:])
}

// FuzzReadTokens reads token files of any content: what is accepted knows the tokens that its lines
// name, with their roles, and no others; an error says in which line, and never shows a sum.
func FuzzReadTokens(f *testing.F) {
	sum := sha256.Sum256([]byte("secret"))
	known := hex.EncodeToString(sum[:])
	f.Add(known+" admin,service nova service", "secret")
	f.Add("# tokens\n\n"+known+" reader someone\n", "secret")
	f.Add(known+"\tADMIN , x", "")
	f.Add(strings.ToUpper(known)+" , user", "secret")
	f.Add(known[:63]+" admin nova", "x")
	f.Add(known+"00 admin nova", "secret")
	f.Add(known+" admin nova service more", "x")
	f.Add(strings.Repeat(known+" a b\n", 1001), "secret")
	f.Add(strings.Repeat("x", 1<<17), "x")
	salt := strings.Repeat("5a", 16)
	f.Add(salted(salt, "secret")+" service nova\n"+known+" reader someone\n", "secret")
	f.Add(salted(salt[2:], "secret")+" service nova\n", "secret")
	f.Add("sha256$"+salt+" service nova\n", "secret")
	f.Add("sha256$$"+known+" service nova\n", "secret")
	f.Add("\x00\xff \xfe", "\x00")
	f.Fuzz(func(t *testing.T, content, token string) {
		auth, err := osapi.ReadTokens(strings.NewReader(content), "tokens")
		if err != nil {
			if !strings.Contains(err.Error(), "tokens") || len(err.Error()) > 500 {
				t.Errorf("the error is %q", err)
			}
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["X-Auth-Token"] = []string{token}
		sum := sha256.Sum256([]byte(token))
		named := false
		for line := range strings.Lines(content) {
			fields := strings.Fields(line)
			if len(fields) == 0 {
				continue
			}
			if parts := strings.Split(fields[0], "$"); len(parts) == 3 && parts[0] == "sha256" {
				named = named || strings.EqualFold("sha256$"+parts[1]+"$"+parts[2], salted(parts[1], token))
			}
			named = named || strings.EqualFold(fields[0], hex.EncodeToString(sum[:]))
		}
		who, err := auth.Authenticate(r)
		if accepted := err == nil; accepted != (named && token != "") {
			t.Errorf("the token %q is accepted: %v, named: %v\n%s", token, accepted, named, content)
		}
		if err == nil && (who.User == "" || who.Project == "") {
			t.Errorf("the token %q has no user or project: %+v", token, who)
		}
	})
}
