// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// TokenAuth accepts a fixed set of tokens, given by their SHA-256. A token is sent as X-Auth-Token,
// which keystoneauth's admin_token plugin does, or as "Authorization: Bearer TOKEN".
type TokenAuth struct {
	tokens []knownToken
}

type knownToken struct {
	sum       [sha256.Size]byte
	principal Principal
}

// maxTokens bounds a token file: each request is compared with all of its tokens.
const maxTokens = 1000

// ReadTokens reads a token file: one token a line, as
//
//	SHA256 ROLE[,ROLE…] USER [PROJECT]
//
// where SHA256 is 64 hexadecimal digits, as printed by "printf %s TOKEN | sha256sum". Empty lines
// and lines that begin with # do not count. A token with the role [RoleHost] is that of the host
// that its user is, and has no other role. name is what errors call the file.
func ReadTokens(file io.Reader, name string) (*TokenAuth, error) {
	auth := &TokenAuth{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 3 || len(fields) > 4 {
			return nil, fmt.Errorf("%s line %d: %d fields, not SHA256 ROLES USER [PROJECT]", name, number, len(fields))
		}
		var token knownToken
		sum, err := hex.DecodeString(fields[0])
		if err != nil || copy(token.sum[:], sum) != sha256.Size || len(sum) != sha256.Size {
			return nil, fmt.Errorf("%s line %d: the first field is not a SHA-256 (64 hexadecimal digits); make it with: printf %%s TOKEN | sha256sum", name, number)
		}
		token.principal = Principal{User: fields[2], Project: fields[2], Roles: readRoles(fields[1])}
		if len(fields) == 4 {
			token.principal.Project = fields[3]
		}
		if token.principal.HasRole(RoleHost) {
			if len(token.principal.Roles) > 1 || len(fields) == 4 {
				return nil, fmt.Errorf("%s line %d: a token with the role %s has no other role and no project", name, number, RoleHost)
			}
			token.principal = hostPrincipal(pki.Identity{Kind: pki.Host, Name: fields[2], Names: fields[2:3]})
		}
		if auth.tokens = append(auth.tokens, token); len(auth.tokens) > maxTokens {
			return nil, fmt.Errorf("%s line %d: more than %d tokens", name, number, maxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the token file %s: %w", name, err)
	}
	if len(auth.tokens) == 0 {
		return nil, fmt.Errorf("%s has no tokens, so no client could use the server", name)
	}
	return auth, nil
}

// Authenticate looks up the token of the request. Its timing does not reveal the known tokens: all
// are compared, each in constant time. Cost: one SHA-256 and a few nanoseconds for each known
// token.
func (a *TokenAuth) Authenticate(r *http.Request) (Principal, error) {
	const challenge = `Bearer realm="openstack"`
	token := r.Header.Get(HeaderToken)
	if token == "" {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "bearer") {
			token = strings.TrimSpace(rest)
		}
	}
	if token == "" {
		return Principal{}, &Unauthenticated{Reason: "The request has no token: neither X-Auth-Token nor Authorization: Bearer.", Challenge: challenge}
	}
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range a.tokens {
		if subtle.ConstantTimeCompare(sum[:], a.tokens[i].sum[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Principal{}, &Unauthenticated{Reason: "The token is not known here.", Challenge: challenge}
	}
	return a.tokens[found].principal, nil
}

// TokenFile is the TokenAuth of a file, as the file is now. Make one with OpenTokens.
type TokenFile struct{ file *files.Reloaded[*TokenAuth] }

// OpenTokens reads a token file; see ReadTokens. It must be one of root or of the user of this
// process, that others cannot read. The file is looked at again while requests come, at most once a
// second. When it has changed its new tokens are known from then on, and the others no more; if it
// cannot be used the old tokens stay, and log says so.
func OpenTokens(path string, log zerolog.Logger) (*TokenFile, error) {
	file, err := files.NewReloaded([]string{path}, log, nil, func(files []files.Content) (*TokenAuth, error) {
		if err := errors.Join(files[0].Private(), files[0].OwnedHere()); err != nil {
			return nil, err
		}
		return ReadTokens(bytes.NewReader(files[0].Data), path)
	})
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return &TokenFile{file}, nil
}

// Authenticate looks for the token of the request, as TokenAuth does.
func (f *TokenFile) Authenticate(r *http.Request) (Principal, error) {
	return f.file.Get().Authenticate(r)
}
