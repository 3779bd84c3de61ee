// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// TokenAuth accepts a fixed set of tokens, given by salted digests. A token is sent as
// X-Auth-Token, which keystoneauth's admin_token plugin does, or as "Authorization: Bearer TOKEN".
type TokenAuth struct {
	tokens   []knownToken
	unsalted int // how many of them have no salt

	// seen are the tokens that were accepted before, by their HMAC with a key of this process: the
	// place of each in tokens.
	key  [sha256.Size]byte
	mu   sync.RWMutex
	seen map[[sha256.Size]byte]int
}

type knownToken struct {
	salt      []byte // before the token in what sum is of; none in old files
	sum       [sha256.Size]byte
	principal Principal
}

// sumOf is the digest of a token as that of t is made; buffer is for its use.
func (t *knownToken) sumOf(token string, buffer []byte) [sha256.Size]byte {
	return sha256.Sum256(append(append(buffer[:0], t.salt...), token...))
}

const (
	// maxTokens bounds a token file: a token that was not seen before is compared with all of it.
	maxTokens = 1000
	// minSalt and maxSalt bound a salt, in bytes.
	minSalt, maxSalt = 16, 64
	// saltedPrefix begins a digest with a salt.
	saltedPrefix = "sha256$"
)

// ReadTokens reads a token file: one token a line, as
//
//	sha256$SALT$DIGEST ROLE[,ROLE…] USER [PROJECT]
//
// as NewToken makes it: SALT and DIGEST, the SHA-256 of salt and token, in hexadecimal digits. In
// old files there is the SHA-256 of the token only, as printed by "printf %s TOKEN | sha256sum".
// Empty lines and lines that begin with # do not count. A token with the role [RoleHost] is that of
// the host that its user is, and has no other role. name is what errors call the file.
func ReadTokens(file io.Reader, name string) (*TokenAuth, error) {
	auth := &TokenAuth{seen: map[[sha256.Size]byte]int{}}
	if _, err := rand.Read(auth.key[:]); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 3 || len(fields) > 4 {
			return nil, fmt.Errorf("%s line %d: %d fields, not DIGEST ROLES USER [PROJECT]", name, number, len(fields))
		}
		var token knownToken
		if err := token.readDigest(fields[0]); err != nil {
			return nil, fmt.Errorf("%s line %d: the first field %w; make a line with: compute-agent token new",
				name, number, err)
		}
		if token.salt == nil {
			auth.unsalted++
		}
		token.principal = Principal{User: fields[2], Project: fields[2], Roles: readRoles(fields[1])}
		if len(fields) == 4 {
			token.principal.Project = fields[3]
		}
		if token.principal.HasRole(RoleHost) {
			if len(token.principal.Roles) > 1 || len(fields) == 4 {
				return nil, fmt.Errorf("%s line %d: a token with the role %s has no other role and no project",
					name, number, RoleHost)
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

// readDigest reads the digest of a token. Errors do not repeat it: it may be a token by mistake.
func (t *knownToken) readDigest(text string) error {
	digest := text
	if salted, found := strings.CutPrefix(text, saltedPrefix); found {
		var salt string
		if salt, digest, found = strings.Cut(salted, "$"); !found {
			return errors.New("is not sha256$SALT$DIGEST")
		}
		var err error
		if t.salt, err = hex.DecodeString(salt); err != nil || len(t.salt) < minSalt || len(t.salt) > maxSalt {
			return fmt.Errorf("has no salt of %d to %d bytes in hexadecimal digits", minSalt, maxSalt)
		}
	}
	sum, err := hex.DecodeString(digest)
	if err != nil || len(sum) != sha256.Size {
		return errors.New("is not a SHA-256 (64 hexadecimal digits)")
	}
	copy(t.sum[:], sum)
	return nil
}

// NewToken makes a token with roles, and its line for a token file. The project may be empty.
func NewToken(roles []string, user, project string) (token, line string, err error) {
	known := knownToken{salt: make([]byte, minSalt)}
	if _, err := rand.Read(known.salt); err != nil {
		return "", "", err
	}
	token = rand.Text()
	sum := known.sumOf(token, nil)
	fields := []string{saltedPrefix + hex.EncodeToString(known.salt) + "$" + hex.EncodeToString(sum[:]),
		strings.Join(roles, ","), user}
	if project != "" {
		fields = append(fields, project)
	}
	for _, field := range fields {
		if field == "" || strings.ContainsFunc(field,
			func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
			return "", "", fmt.Errorf("%q cannot be a role, a user or a project: they are not empty and have no spaces",
				field)
		}
	}
	line = strings.Join(fields, " ")
	if _, err := ReadTokens(strings.NewReader(line), "the new line"); err != nil {
		return "", "", err
	}
	return token, line, nil
}

// Authenticate looks up the token of the request. Its timing does not reveal the known tokens: what
// was accepted before is found by an HMAC, and others are compared with all, each in constant time.
// Cost: one HMAC; for a token that was not accepted before one SHA-256 for each known token.
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
		return Principal{},
			&Unauthenticated{Reason: "The request has no token: neither X-Auth-Token nor Authorization: Bearer.",
				Challenge: challenge}
	}
	found := a.find(token)
	if found < 0 {
		return Principal{}, &Unauthenticated{Reason: "The token is not known here.", Challenge: challenge}
	}
	return a.tokens[found].principal, nil
}

// find is the place of a token in tokens, or -1.
func (a *TokenAuth) find(token string) int {
	var mac [sha256.Size]byte
	h := hmac.New(sha256.New, a.key[:])
	_, _ = io.WriteString(h, token) // it never fails
	h.Sum(mac[:0])
	a.mu.RLock()
	found, seen := a.seen[mac]
	a.mu.RUnlock()
	if seen {
		return found
	}
	found = -1
	buffer := make([]byte, 0, maxSalt+len(token))
	plain := (&knownToken{}).sumOf(token, buffer)
	for i := range a.tokens {
		t, sum := &a.tokens[i], plain
		if t.salt != nil {
			sum = t.sumOf(token, buffer)
		}
		if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			found = i
		}
	}
	if found >= 0 { // there are at most as many as tokens
		a.mu.Lock()
		a.seen[mac] = found
		a.mu.Unlock()
	}
	return found
}

// TokenFile is the TokenAuth of a file, as the file is now. Make one with OpenTokens.
type TokenFile struct{ file *files.Reloaded[*TokenAuth] }

// OpenTokens reads a token file; see ReadTokens. It must be one of root or of the user of this
// process, that others cannot read. The file is looked at again while requests come, at most once a
// second. When it has changed its new tokens are known from then on, and the others no more; if it
// cannot be used the old tokens stay, and log says so.
func OpenTokens(path string, log zerolog.Logger) (*TokenFile, error) {
	warned := false
	file, err := files.NewReloaded([]string{path}, log, nil, func(files []files.Content) (*TokenAuth, error) {
		if err := errors.Join(files[0].Private(), files[0].OwnedHere()); err != nil {
			return nil, err
		}
		auth, err := ReadTokens(bytes.NewReader(files[0].Data), path)
		if err == nil && auth.unsalted > 0 && !warned {
			warned = true
			log.Warn().Str("file", path).Int("tokens", auth.unsalted).
				Msg("Tokens are kept without a salt: who reads the file can search for all of them at once. Make " +
					"new ones with `compute-agent token new`.")
		}
		return auth, err
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
